"""Parts of a report on a table: score against size, other models, columns, and rows that are hard to predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from awn.errors import ArgumentError

Cell = str | int | float | None


@dataclass(frozen=True)
class Leader:
    """A model with its score, its loss, and the ends of their 95 % intervals. Its size is None if it has no units."""

    name: str
    score: float
    low: float
    high: float
    loss: float | None = None
    loss_low: float | None = None
    loss_high: float | None = None
    units: int | None = None
    parameters: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class SizeCurve:
    """Score against size: models of one family from the largest to the smallest, and others to compare them with.

    `chosen` is the place of the chosen one among `points`, and `final` that model as it is kept. `rows` says which rows
    all of them are scored on.
    """

    points: Sequence[Leader]
    chosen: int
    rows: str
    final: Leader | None = None
    others: Sequence[Leader] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.chosen < len(self.points):
            raise ArgumentError(f"chosen must be a place among the {len(self.points)} points, got {self.chosen}.")


@dataclass(frozen=True)
class ColumnFacts:
    """A column: its kind, the share of missing values, the number of distinct values, and counts for a histogram.

    `labels` names the first and the last bar, or every bar of a category. `importance` is how much worse predictions
    become when the column is shuffled, and `spread` its standard deviation over shuffles.
    """

    name: str
    kind: str
    missing: float
    levels: int
    counts: Sequence[int] = ()
    labels: Sequence[str] = ()
    importance: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class Dependence:
    """The mean prediction if every row had the same value in a column, for some of its values; a curve per class."""

    column: str
    values: Sequence[Cell]
    curves: Mapping[str, Sequence[float]]

    def __post_init__(self) -> None:
        if any(len(curve) != len(self.values) for curve in self.curves.values()):
            raise ArgumentError(f"every curve of {self.column!r} needs a number for each of {len(self.values)} values.")


@dataclass(frozen=True)
class HardRows:
    """The worst-predicted rows, with a name for each column."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
