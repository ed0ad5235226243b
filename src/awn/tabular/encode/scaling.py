"""Scaling: numbers standardised and clipped, with missing values imputed and marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from awn.tabular.encode.blocks import column_blocks
from awn.tabular.read.values import Floats

# Beyond ten standard deviations, a value means no more than 'very large', but it would dominate every unit it reaches.
CLIP = 10.0
# Mean and standard deviation are computed within ten interquartile ranges. Otherwise a single mistake (an age of
# 999999999) determines them, and all other values of the column become equal.
_FENCE = 10.0


@dataclass(frozen=True, eq=False)
class Scaling:
    """Imputation by the median, mean 0 and standard deviation 1, clipping at ±CLIP, and marks for missing values.

    >>> ages = np.array([[20.0], [30.0], [40.0], [np.nan]])
    >>> scaling = Scaling.fit(ages, marked=[0])
    >>> scaling.transform(ages).round(2)
    array([[-1.22,  0.  ],
           [ 0.  ,  0.  ],
           [ 1.22,  0.  ],
           [ 0.  ,  1.  ]])

    `marked` are the columns that get a mark if they have missing values in training, `marks` those that have one. The
    marks follow the numbers. In another column, a value that is missing at prediction is imputed without a mark.
    """

    medians: Floats
    means: Floats
    scales: Floats
    marked: tuple[int, ...]
    marks: tuple[int, ...]

    @classmethod
    def fit(cls, values: Floats, marked: list[int]) -> Scaling:
        """Compute medians, means and standard deviations, and find the columns with missing values."""
        medians, means, scales = (np.empty(values.shape[1]) for _ in range(3))
        gaps = np.empty(values.shape[1], dtype=bool)
        for block in column_blocks(*values.shape):
            part = values[:, block]
            medians[block], low, high = _median_and_fences(part)
            gaps[block] = np.isnan(part).any(0)
            # Of the known values alone: imputed ones would reduce the standard deviation.
            scaler = StandardScaler(copy=False).fit(part.clip(low, high))
            means[block], scales[block] = scaler.mean_, scaler.scale_
        return cls(medians, means, scales, tuple(marked), tuple(place for place in marked if gaps[place]))

    def transform(self, values: Floats) -> Floats:
        """The scaled numbers, then the marks."""
        missing = np.isnan(values)
        scaled = np.where(missing, self.medians, values)
        scaled -= self.means
        scaled /= self.scales
        scaled.clip(-CLIP, CLIP, out=scaled)
        return np.hstack([scaled, missing[:, list(self.marks)]]) if self.marks else scaled

    def to_json(self) -> dict[str, Any]:
        """The fitted values as plain data."""
        return {
            "medians": self.medians.tolist(),
            "means": self.means.tolist(),
            "scales": self.scales.tolist(),
            "marked": list(self.marked),
            "marks": list(self.marks),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Scaling:
        """Restore a scaling exactly."""
        medians, means, scales = (np.array(data[key], dtype=np.float64) for key in ("medians", "means", "scales"))
        if not medians.shape == means.shape == scales.shape or not np.isfinite([medians, means, scales]).all():
            raise ValueError("medians, means and scales must be finite numbers, one of each per input")
        marked, marks = (tuple(int(place) for place in data[key]) for key in ("marked", "marks"))
        if not set(marks) <= set(marked) <= set(range(len(means))):
            raise ValueError("marked must be numbers of inputs, and marks some of these")
        return cls(medians, means, scales, marked, marks)


def _median_and_fences(values: Floats) -> tuple[Floats, Floats, Floats]:
    """The median of each column, and the fences, ten interquartile ranges beyond the quartiles.

    The quartiles leave out values equal to the median, so that a column of mostly zeros has a range too. A column
    without a range has no fences.
    """
    ordered = np.sort(values, axis=0)  # missing values come last
    known = (~np.isnan(ordered)).sum(0)
    middle = _at(ordered, (known - 1) / 2)
    first, after = (ordered < middle).sum(0), (ordered <= middle).sum(0)  # where the values equal to the median are
    others = known - (after - first)

    def quartile(share: float) -> Floats:
        return _at(ordered, share * np.maximum(others - 1, 0), first, after)

    low, high = quartile(0.25), quartile(0.75)
    fenced, beyond = (others > 0) & (high > low), _FENCE * (high - low)
    return middle, np.where(fenced, low - beyond, -np.inf), np.where(fenced, high + beyond, np.inf)


def _at(ordered: Floats, places: Floats, first: Any = 0, after: Any = 0) -> Floats:
    """The values at fractional places of the sorted columns, interpolated, without those from `first` to `after`."""

    def take(place: Any) -> Floats:
        rows = np.where(place < first, place, place + after - first).astype(np.intp)
        taken: Floats = np.take_along_axis(ordered, np.minimum(rows, len(ordered) - 1)[None], axis=0)[0]
        return taken

    below = np.floor(places)
    low, high = take(below), take(np.ceil(places))
    return low + (high - low) * (places - below)
