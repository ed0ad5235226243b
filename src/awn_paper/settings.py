"""Settings: everything that decides a run but its seed, as data."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from awn.basics.plain import to_plain
from awn.errors import ArgumentError
from awn.training.options import Precision
from awn.training.schedule import Cosine, Milestones, Plateau, Schedule, Warmup
from awn_paper.models import Network, Widths

OptimizerName = Literal["adam", "sgd"]


@dataclass(frozen=True)
class Training:
    """How a network is trained. Of the epochs with the best validation score the last is kept.

    `patience`: epochs without a better score before training ends; None trains all epochs. The learning rate is
    multiplied by `factor` at each of the `milestones`, or whenever the validation score has not improved for `plateau`
    epochs.
    """

    epochs: int
    batch_size: int = 128
    optimizer: OptimizerName = "adam"
    lr: float = 0.01
    weight_decay: float = 0.0
    momentum: float = 0.0
    eps: float = 1e-8
    patience: int | None = None
    milestones: tuple[int, ...] = ()
    plateau: int | None = None
    factor: float = 0.1

    def __post_init__(self) -> None:
        if self.milestones and self.plateau is not None:
            raise ArgumentError("the learning rate falls by milestones or by plateaus, not by both: give one of them.")

    @property
    def schedule(self) -> Schedule | Literal["constant"]:
        """The schedule of the learning rate."""
        if self.milestones:
            return Milestones(self.milestones, self.factor)
        return "constant" if self.plateau is None else Plateau(self.plateau, self.factor)


@dataclass(frozen=True)
class OneCycle(Training):
    """The learning rate rises over the `warmup` epochs and falls along a cosine to a hundredth.

    With `precision="bfloat16"` forward passes are computed in bfloat16, which is faster where the processor has it.
    """

    warmup: int = 5
    precision: Precision = "float32"

    @property
    def schedule(self) -> Schedule:
        """See `Training`."""
        return Warmup(self.warmup, Cosine(max(1, self.epochs - self.warmup)))


@dataclass(frozen=True)
class Settings:
    """A run, but for its seed: data, network, widths, training, and what is measured on the trained network."""

    dataset: str
    network: Network
    widths: Widths
    training: Training
    fold: int = 0
    measure: tuple[str, ...] = ()

    def change(self, **fields: Any) -> Settings:
        """The same with other values, each in the part that has a field of that name.

        >>> from awn_paper.models import MLP, Fixed
        >>> settings = Settings("Spiral", MLP(layers=1), Fixed(16), Training(epochs=10))
        >>> settings.change(layers=2, epochs=5, dataset="pol")
        Settings(dataset='pol', network=MLP(layers=2, ...), widths=Fixed(units=16), training=Training(epochs=5, ...)...)
        """
        changed = self
        for name, value in fields.items():
            if name in _names(self):
                changed = dataclasses.replace(changed, **{name: value})
                continue
            parts = [part for part in ("network", "widths", "training") if name in _names(getattr(changed, part))]
            if not parts:
                raise ArgumentError(f"no part of the settings has a field {name!r}: {self}.")
            part = dataclasses.replace(getattr(changed, parts[0]), **{name: value})
            changed = dataclasses.replace(changed, **{parts[0]: part})
        return changed

    def vary(self, **axes: Sequence[Any]) -> tuple[Settings, ...]:
        """All combinations of the given values, the last axis fastest.

        >>> from awn_paper.models import MLP, Fixed
        >>> grid = Settings("Spiral", MLP(), Fixed(8), Training(epochs=10)).vary(units=(8, 16), lr=(0.1, 0.01))
        >>> [(settings.widths.units, settings.training.lr) for settings in grid]
        [(8, 0.1), (8, 0.01), (16, 0.1), (16, 0.01)]
        """
        return tuple(
            self.change(**dict(zip(axes, values, strict=True))) for values in itertools.product(*axes.values())
        )


def fingerprint(*values: Any) -> str:
    """A short name that other settings do not have.

    >>> fingerprint(1, "a") == fingerprint(1, "b")
    False
    """
    text = json.dumps(to_plain(values, kinds=True, other=repr), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _names(part: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(part)]
