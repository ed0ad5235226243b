"""The options of `fit`, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from awn.basics.checks import check_number, check_share, check_units
from awn.errors import ArgumentError
from awn.training.history import EpochRow
from awn.training.schedule import Cosine, Plateau, Schedule

ScheduleName = Literal["constant", "cosine", "plateau"]
StopBy = Literal["score", "loss"]
Ties = Literal["first", "last"]
Precision = Literal["auto", "float32", "bfloat16"]
#: The default learning rate of ν over that of the weights, for Adam: widths settle before the weights do.
WIDTH_RATE = 5.0
Chooses = Literal["smallest", "epoch"]


@dataclass(frozen=True)
class FitOptions:
    """How `fit` trains.

    An epoch is `passes` passes over the samples, after which the model is evaluated.

    `width_lr` is the learning rate of ν, five times `lr` unless given. `patience`: epochs without a better score before
    training stops; None trains all epochs. `schedule`: "cosine" brings the learning rate down to a hundredth over all
    epochs, "plateau" halves it after a quarter of the patience without a better score, "constant" leaves it to the
    optimizer and to callbacks; for others, pass a `Schedule`. `clip` is the largest norm of the gradient.
    `precision="auto"` uses bfloat16 where an accelerator has it. `resize_every`: steps between two resizes.
    `stop_by="loss"` keeps the epoch with the lowest validation loss, where "score" keeps the one with the best score.
    `ties`: of equally good epochs the first is kept, or the last, whose layers have had more time to find their width;
    patience counts from the first either way. `by_hand`: None trains an `AdaptiveMLP` without autograd where `fit`
    knows how, which gives the same result in less time; False always uses autograd; True is an error where autograd is
    needed. `choose="smallest"` cuts an adaptive model after training to the smallest size that is as good on the
    validation set, see `awn.choose`, and fine-tunes it. "epoch" does not cut, but of epochs whose validation loss is as
    good as the lowest it keeps one with a clearly smaller network, as "smallest" does, too. None keeps the best epoch.
    `ordered` is the share of the steps that also train a random prefix of the units; None leaves it to the model.
    `narrow`: ν waits for the first epochs, until the weights have found their scale. Layers of more units than `narrow`
    are then cut, to so many or twice, four times … as many, whichever costs no more than a standard error of the
    validation loss. The result hardly depends on the initial width then. None lets ν learn from the first step.
    `fresh=True` also trains a new network at the chosen widths, and keeps it if its validation loss is lower. It takes
    about as long as the first training, and the model must be an `AdaptiveMLP`.

    >>> FitOptions(epochs=50, schedule="cosine").lr
    0.01
    """

    epochs: int = 200
    passes: int = 1
    batch_size: int = 128
    lr: float = 0.01
    width_lr: float | None = None
    weight_decay: float = 0.0
    schedule: ScheduleName | Schedule = "constant"
    patience: int | None = 30
    clip: float | None = None
    precision: Precision = "auto"
    resize_every: int = 1
    stop_by: StopBy = "score"
    ties: Ties = "first"
    seed: int = 0
    by_hand: bool | None = None
    choose: Chooses | None = "smallest"
    ordered: float | None = None
    narrow: int | None = None
    fresh: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "passes", "batch_size", "resize_every"):
            check_units(name, getattr(self, name))
        if self.ordered is not None:
            check_share("ordered", self.ordered)
        for name in ("patience", "narrow"):
            if getattr(self, name) is not None:
                check_units(name, getattr(self, name))
        for name in ("lr", "width_lr", "clip"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))
        check_number("weight_decay", self.weight_decay, or_equal=True)
        if not isinstance(self.schedule, Schedule) and self.schedule not in get_args(ScheduleName):
            names = ", ".join(get_args(ScheduleName))
            raise ArgumentError(f"schedule must be one of {names}, or a Schedule; got {self.schedule!r}.")
        for name, known in (
            ("precision", get_args(Precision)),
            ("stop_by", get_args(StopBy)),
            ("ties", get_args(Ties)),
            ("choose", (*get_args(Chooses), None)),
        ):
            if getattr(self, name) not in known:
                raise ArgumentError(f"{name} must be one of {', '.join(map(str, known))}; got {getattr(self, name)!r}.")

    def rate_schedule(self) -> Schedule | None:
        """The learning-rate schedule, or None for a constant rate."""
        if isinstance(self.schedule, Schedule):
            return self.schedule
        if self.schedule == "cosine":
            return Cosine(self.epochs)
        return Plateau(max(1, (self.patience or 40) // 4)) if self.schedule == "plateau" else None

    @property
    def waiting_epochs(self) -> int:
        """The epochs in which ν waits: a tenth of all, from one to five; none of fewer than four.

        >>> [FitOptions(epochs=epochs, narrow=32).waiting_epochs for epochs in (3, 4, 25, 200)]
        [0, 1, 2, 5]
        """
        if self.narrow is None or self.choose is None or self.epochs < 4:
            return 0
        return min(5, max(1, round(self.epochs / 10)))

    @property
    def rate_of_width(self) -> float:
        """The learning rate of ν.

        >>> FitOptions(lr=0.01).rate_of_width
        0.05
        """
        return WIDTH_RATE * self.lr if self.width_lr is None else self.width_lr

    def merit(self, row: EpochRow) -> float:
        """The merit of an epoch; higher is better.

        It is the validation score or, with `stop_by="loss"`, minus the validation loss. Without validation it is minus
        the training loss.

        >>> FitOptions(stop_by="loss").merit({"score": 0.9, "validation_loss": 0.25, "total": 0.5})
        -0.25
        """
        if row["score"] is None:
            return -float(row["total"])
        return -float(row["validation_loss"]) if self.stop_by == "loss" else float(row["score"])
