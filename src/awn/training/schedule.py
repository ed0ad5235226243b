"""Learning-rate schedules: the rate of an epoch as a function of earlier epochs, so that a resume needs no state.

The merit of an epoch is a number, higher is better, such as the validation score (`FitOptions.merit`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from awn.basics.checks import check_number, check_units
from awn.errors import ArgumentError


class Schedule(ABC):
    """Subclass it as a frozen dataclass: a run is resumed only with a schedule of the same class and fields."""

    @abstractmethod
    def relative_rate(self, merits: Sequence[float]) -> float:
        """The learning rate of the next epoch over the initial one, given the merits of all epochs so far."""


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from the initial rate down to `end` times it, over `epochs` epochs.

    >>> [round(Cosine(epochs=4).relative_rate([0.0] * done), 3) for done in range(6)]
    [1.0, 0.855, 0.505, 0.155, 0.01, 0.01]
    """

    epochs: int
    end: float = 0.01

    def __post_init__(self) -> None:
        check_units("epochs", self.epochs)
        check_number("end", self.end, or_equal=True)

    def relative_rate(self, merits: Sequence[float]) -> float:
        """See `Schedule`."""
        done = min(len(merits), self.epochs)
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * done / self.epochs)) / 2


@dataclass(frozen=True)
class Plateau(Schedule):
    """Multiply the rate by `factor` after more than `patience` epochs in a row without improvement.

    >>> Plateau(patience=2).relative_rate([0.1, 0.7, 0.7, 0.6, 0.7, 0.9])
    0.5
    """

    patience: int
    factor: float = 0.5

    def __post_init__(self) -> None:
        check_units("patience", self.patience)
        check_number("factor", self.factor)

    def relative_rate(self, merits: Sequence[float]) -> float:
        """See `Schedule`."""
        best, waited, plateaus = -math.inf, 0, 0
        for merit in merits:
            best, waited = (merit, 0) if merit > best else (best, waited + 1)
            if waited > self.patience:
                plateaus, waited = plateaus + 1, 0
        return self.factor**plateaus


@dataclass(frozen=True)
class Milestones(Schedule):
    """Multiply the rate by `factor` after each of these epochs.

    >>> [Milestones((1, 3), factor=0.5).relative_rate([0.0] * done) for done in range(5)]
    [1.0, 0.5, 0.5, 0.25, 0.25]
    """

    epochs: tuple[int, ...]
    factor: float = 0.1

    def __post_init__(self) -> None:
        for epoch in self.epochs:
            check_units("a milestone", epoch)
        check_number("factor", self.factor)

    def relative_rate(self, merits: Sequence[float]) -> float:
        """See `Schedule`."""
        return self.factor ** sum(len(merits) >= epoch for epoch in self.epochs)


@dataclass(frozen=True)
class Warmup(Schedule):
    """Raise the rate linearly over `epochs` epochs, then keep it constant or follow another schedule.

    >>> [Warmup(epochs=3, then=Milestones((1,))).relative_rate([0.0] * done) for done in range(6)]
    [0.25, 0.5, 0.75, 1.0, 0.1, 0.1]
    """

    epochs: int
    then: Schedule | None = None

    def __post_init__(self) -> None:
        check_units("epochs", self.epochs)
        if not (self.then is None or isinstance(self.then, Schedule)):
            raise ArgumentError(f"then must be a Schedule or None, got {self.then!r}.")

    def relative_rate(self, merits: Sequence[float]) -> float:
        """See `Schedule`."""
        if len(merits) < self.epochs:
            return (len(merits) + 1) / (self.epochs + 1)
        return 1.0 if self.then is None else self.then.relative_rate(merits[self.epochs :])
