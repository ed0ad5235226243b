"""Bins: the piecewise-linear encoding of numbers, which lets a network bend its response at quantiles of a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from awn.tabular.encode.blocks import row_blocks
from awn.tabular.read.values import Floats

# More inputs make every step slower, and more numbers need more memory (256 MB here). Tables with many columns or rows
# get fewer bins per column, or none.
_MOST_INPUTS = 1024
_MOST_NUMBERS = 1 << 26
_FEWEST_BINS = 3
# Quantiles of more rows are no better.
_MOST_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class Bins:
    """One input per bin: 0 for a number below the bin, 1 above it, and linear inside.

    >>> ages = np.array([[20.0], [30.0], [50.0]])
    >>> bins = Bins.fit(ages, most=16)
    >>> bins.lows, bins.widths
    (array([20., 30.]), array([10., 20.]))
    >>> bins.transform(np.array([[25.0], [45.0], [99.0]]))
    array([[0.5 , 0.  ],
           [1.  , 0.75],
           [1.  , 1.  ]], dtype=float32)

    Bin number i covers `widths[i]` from `lows[i]` on, of column number `columns[i]`.
    """

    columns: npt.NDArray[np.intp]
    lows: Floats
    widths: Floats

    @classmethod
    def fit(cls, values: Floats, most: int) -> Bins:
        """At most `most` bins for each column; none for a column with fewer than three distinct values."""
        number = min(most, _MOST_INPUTS // values.shape[1], _MOST_NUMBERS // values.size)
        columns, lows, widths = [], [np.empty(0)], [np.empty(0)]
        if number >= min(most, _FEWEST_BINS) > 0:
            step = -(-len(values) // _MOST_ROWS)
            for place, column in enumerate(values[::step].T):
                edges = bin_edges(column[~np.isnan(column)], number)
                columns += [place] * (len(edges) - 1)
                lows.append(edges[:-1])
                widths.append(np.diff(edges))
        return cls(np.array(columns, dtype=np.intp), np.concatenate(lows), np.concatenate(widths))

    def transform(self, values: Floats, out: npt.NDArray[np.float32] | None = None) -> npt.NDArray[np.float32]:
        """The inputs for numbers without gaps, [rows, bins], written to `out` if it is given."""
        out = np.empty((len(values), len(self.columns)), dtype=np.float32) if out is None else out
        for block in row_blocks(*out.shape):
            part = values[block][:, self.columns]
            part -= self.lows
            part /= self.widths
            out[block] = part.clip(0.0, 1.0, out=part)
        return out

    def names(self, numbers: list[str]) -> list[str]:
        """The names of the inputs.

        >>> Bins(np.array([0]), np.array([20.0]), np.array([10.0])).names(["age"])
        ['age from 20 to 30']
        """
        ends = zip(self.columns.tolist(), self.lows.tolist(), self.widths.tolist(), strict=True)
        return [f"{numbers[place]} from {low:.12g} to {low + width:.12g}" for place, low, width in ends]

    def to_json(self) -> dict[str, Any]:
        """The bins as plain data."""
        return {"columns": self.columns.tolist(), "lows": self.lows.tolist(), "widths": self.widths.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any], numbers: int) -> Bins:
        """Restore the bins of a table with so many numbers exactly."""
        columns = np.array([int(place) for place in data["columns"]], dtype=np.intp)
        lows, widths = (np.array(data[key], dtype=np.float64) for key in ("lows", "widths"))
        if not (columns.shape == lows.shape == widths.shape and np.isfinite(lows).all() and (widths > 0).all()):
            raise ValueError("every bin needs a column, a finite start and a width above 0")
        if not set(columns.tolist()) <= set(range(numbers)):
            raise ValueError(f"bins of columns that are not among the {numbers} numbers")
        return cls(columns, lows, widths)


def bin_edges(values: Floats, bins: int) -> Floats:
    """The ends of the bins: all distinct values if they are few, otherwise quantiles.

    A value counts as at most a bin's share of the rows. Quantiles of a column that is mostly 0 would all be 0.
    """
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) < 3:
        return distinct[:1]
    if len(distinct) <= bins + 1:
        return distinct
    mass = np.minimum(counts, len(values) / bins)
    middle = np.cumsum(mass) - mass / 2
    edges: Floats = np.unique(np.interp(np.linspace(middle[0], middle[-1], bins + 1), middle, distinct))
    return edges
