"""The options of `fit`, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from awn.basics.checks import check_units
from awn.errors import ArgumentError

Schedule = Literal["constant", "cosine", "plateau"]
StopBy = Literal["score", "loss"]
Ties = Literal["first", "last"]
Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class FitOptions:
    """How `fit` trains.

    `width_lr` is the learning rate of ν, `lr` unless given. `patience`: epochs without a better score before training
    stops; None trains all epochs. `schedule`: "cosine" brings the learning rate down to a hundredth over all epochs,
    "plateau" halves it after a quarter of the patience without a better score. `clip` is the largest norm of the
    gradient. `precision="auto"` uses bfloat16 where an accelerator has it. `resize_every`: steps between two resizes.
    `stop_by="loss"` keeps the epoch with the lowest validation loss, where "score" keeps the one with the best score.
    `ties`: of equally good epochs the first is kept, or the last, whose layers have had more time to find their width;
    patience counts from the first either way.

    >>> FitOptions(epochs=50, schedule="cosine").lr
    0.01
    """

    epochs: int = 200
    batch_size: int = 128
    lr: float = 0.01
    width_lr: float | None = None
    weight_decay: float = 0.0
    schedule: Schedule = "constant"
    patience: int | None = 30
    clip: float | None = None
    precision: Precision = "auto"
    resize_every: int = 1
    stop_by: StopBy = "score"
    ties: Ties = "first"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "resize_every"):
            check_units(name, getattr(self, name))
        if self.patience is not None:
            check_units("patience", self.patience)
        for name in ("lr", "width_lr", "clip"):
            number = getattr(self, name)
            if number is not None and not (math.isfinite(number) and number > 0):
                raise ArgumentError(f"{name} must be a finite number above 0, got {number}.")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ArgumentError(f"weight_decay must be a finite number of at least 0, got {self.weight_decay}.")
        for name, known in (
            ("schedule", get_args(Schedule)),
            ("precision", get_args(Precision)),
            ("stop_by", get_args(StopBy)),
            ("ties", get_args(Ties)),
        ):
            if getattr(self, name) not in known:
                raise ArgumentError(f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}.")
