"""Codes: whole numbers that name something, such as a customer or a shop, get an input for each value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from awn.tabular.encode.bins import bin_edges
from awn.tabular.encode.blocks import row_blocks
from awn.tabular.read.values import Floats

# Fewer values have a bin each. More, or values with few rows, leave too little to learn about each of them.
_FEWEST_VALUES, _MOST_VALUES, _ROWS_PER_VALUE = 18, 1000, 3
# The inputs of all codes need at most so many numbers, 256 MB.
_MOST_NUMBERS = 1 << 26
# The gain of a code, in standard errors. Identifiers had 16 and more in real tables, measurements 8 and less.
_CLEAR = 10.0
# What the decision is made on.
_BINS, _MOST_ROWS, _MOST_CLASSES = 16, 20_000, 10
# A value counts as if so many of its rows had the mean of its bin, so that rare values gain nothing by chance.
_SHRINKAGE = 5.0


@dataclass(frozen=True, eq=False)
class Codes:
    """One input per value of some columns: 1 for a row with that value, otherwise 0.

    >>> shops = np.tile(np.arange(40.0), 20)[:, None]
    >>> sales = np.random.default_rng(0).normal(size=40)[shops[:, :1].astype(int)]   # each shop has its own
    >>> codes = Codes.fit(shops, sales, candidates=[0])
    >>> len(codes.values), codes.transform(np.array([[3.0], [99.0], [np.nan]])).sum(1)
    (40, array([1., 0., 0.], dtype=float32))

    A column is a code if the mean target of each value predicts the target of other rows clearly better than the mean
    over a bin of neighbouring values does. Input number i is for `values[i]` of column number `columns[i]`.
    """

    columns: npt.NDArray[np.intp]
    values: Floats

    @classmethod
    def fit(cls, numbers: Floats, targets: npt.NDArray[Any], candidates: Sequence[int]) -> Codes:
        """Find the codes among the columns numbered in `candidates`.

        `targets` are classes [rows] or numbers [rows, targets].
        """
        step = -(-len(numbers) // _MOST_ROWS)
        wanted = _as_numbers(targets[::step])
        columns, values, room = [], [np.empty(0)], _MOST_NUMBERS // max(1, len(numbers))
        for place in candidates:
            found = np.unique(numbers[:, place])
            found = found[~np.isnan(found)]
            if _could_be_codes(found, len(numbers), room) and _gain(numbers[::step, place], wanted) > _CLEAR:
                columns += [place] * len(found)
                values.append(found)
                room -= len(found)
        return cls(np.array(columns, dtype=np.intp), np.concatenate(values))

    def transform(self, numbers: Floats, out: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
        """The inputs of rows, whose missing values are NaN: [rows, values], written to `out` if it is given."""
        out = np.empty((len(numbers), len(self.columns)), dtype=np.float32) if out is None else out
        for block in row_blocks(*out.shape):
            out[block] = numbers[block][:, self.columns] == self.values
        return out

    def names(self, numbers: list[str]) -> list[str]:
        """The names of the inputs.

        >>> Codes(np.array([0]), np.array([20.0])).names(["shop"])
        ['shop = 20']
        """
        pairs = zip(self.columns.tolist(), self.values.tolist(), strict=True)
        return [f"{numbers[place]} = {value:.12g}" for place, value in pairs]

    def to_json(self) -> dict[str, Any]:
        """The codes as plain data."""
        return {"columns": self.columns.tolist(), "values": self.values.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any], numbers: int) -> Codes:
        """Restore the codes of a table with so many numbers exactly."""
        columns = np.array([int(place) for place in data["columns"]], dtype=np.intp)
        values = np.array(data["values"], dtype=np.float64)
        if columns.shape != values.shape or not np.isfinite(values).all():
            raise ValueError("every code needs a column and a finite value")
        if not set(columns.tolist()) <= set(range(numbers)):
            raise ValueError(f"codes of columns that are not among the {numbers} numbers")
        return cls(columns, values)


def _could_be_codes(values: Floats, rows: int, room: int) -> bool:
    """Whether the distinct values of a column are whole numbers, neither too few nor too many."""
    most = min(_MOST_VALUES, room, rows // _ROWS_PER_VALUE)
    return _FEWEST_VALUES <= len(values) <= most and bool((values == np.round(values)).all())


def _as_numbers(targets: npt.NDArray[Any]) -> Floats:
    """Targets as a matrix of numbers: those of a regression, or 1 for the class of a row, for the commonest classes."""
    if targets.ndim == 2:
        return np.asarray(targets, dtype=np.float64)
    classes, counts = np.unique(targets, return_counts=True)
    common = classes[np.argsort(-counts, kind="stable")[:_MOST_CLASSES]]
    return np.asarray(targets[:, None] == common, dtype=np.float64)


def _gain(column: Floats, targets: Floats) -> float:
    """How much smaller the squared error is if every value has a mean of its own, in standard errors of the gain.

    Each half of the rows is predicted from the other.
    """
    known = ~np.isnan(column)
    column, targets = column[known], targets[known]
    bins = np.searchsorted(bin_edges(column, _BINS)[1:-1], column, side="right")
    values = np.unique(column, return_inverse=True)[1]
    half = np.random.default_rng(0).permutation(len(column)) % 2
    gain = np.zeros(len(column))
    for train, test in ((half == 0, half == 1), (half == 1, half == 0)):
        for target in targets.T:
            rest = target - target[train].mean()
            rest = rest - _means(bins, rest, train, shrinkage=1.0)
            gain[test] += (rest**2 - (rest - _means(values, rest, train, _SHRINKAGE)) ** 2)[test]
    error = gain.std() / np.sqrt(len(gain))
    return float(gain.mean() / error) if error > 0 else 0.0


def _means(groups: npt.NDArray[np.intp], target: Floats, rows: npt.NDArray[np.bool_], shrinkage: float) -> Floats:
    """For every row, the mean over its group, of the given rows alone, drawn towards 0."""
    number = int(groups.max()) + 1
    sums = np.bincount(groups[rows], target[rows], number)
    means: Floats = (sums / (np.bincount(groups[rows], minlength=number) + shrinkage))[groups]
    return means
