"""Scaling: numbers on a robust scale with a smooth limit, with missing values imputed and marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from awn.tabular.encode.blocks import column_blocks
from awn.tabular.read.values import Floats

#: Scaled numbers approach ±LIMIT: a far value means only 'very large', but would dominate every unit it reaches.
LIMIT = 3.0
#: Farther values are the same after the limit, and their squares would overflow.
FARTHEST = 1e100
_CLIP_OF_FORMAT_1 = 10.0
# The interquartile range of a normal distribution, in standard deviations.
_NORMAL_RANGE = 1.349


@dataclass(frozen=True, eq=False)
class Scaling:
    """Imputation by the median, a median of 0 and a spread of 1, a smooth limit, and marks for missing values.

    >>> ages = np.array([[20.0], [30.0], [40.0], [np.nan]])
    >>> scaling = Scaling.fit(ages, marked=[0])
    >>> scaling.transform(ages).round(2)
    array([[-1.23,  0.  ],
           [ 0.  ,  0.  ],
           [ 1.23,  0.  ],
           [ 0.  ,  1.  ]])

    A number x becomes z = (x − median) / scale, then z / √(1 + (z / LIMIT)²). The scale is the interquartile range over
    1.349, which is the standard deviation of a normal distribution. `marked` are the columns that get a mark if they
    have missing values in training, `marks` those that have one. The marks follow the numbers. In another column, a
    value that is missing at prediction is imputed without a mark. Files of format 1 have `means`: there, z is
    (x − mean) / scale, clipped.
    """

    medians: Floats
    scales: Floats
    marked: tuple[int, ...]
    marks: tuple[int, ...]
    means: Floats | None = None

    @classmethod
    def fit(cls, values: Floats, marked: list[int]) -> Scaling:
        """Compute medians and scales, and find the columns with missing values."""
        medians, scales = (np.empty(values.shape[1]) for _ in range(2))
        gaps = np.empty(values.shape[1], dtype=bool)
        for block in column_blocks(*values.shape):
            part = values[:, block]
            medians[block], scales[block] = _median_and_scale(part)
            gaps[block] = np.isnan(part).any(0)
        return cls(medians, scales, tuple(marked), tuple(place for place in marked if gaps[place]))

    def fill(self, values: Floats) -> Floats:
        """A copy with missing values replaced by the median of their column."""
        return np.where(np.isnan(values), self.medians, values)

    def transform(self, values: Floats) -> Floats:
        """The scaled numbers, then the marks."""
        scaled = self.fill(values)
        scaled -= self.medians if self.means is None else self.means
        scaled /= self.scales
        if self.means is None:
            scaled.clip(-FARTHEST, FARTHEST, out=scaled)
            scaled /= np.sqrt(1 + (scaled / LIMIT) ** 2)
        else:
            scaled.clip(-_CLIP_OF_FORMAT_1, _CLIP_OF_FORMAT_1, out=scaled)
        return np.hstack([scaled, np.isnan(values[:, list(self.marks)])]) if self.marks else scaled

    def to_json(self) -> dict[str, Any]:
        """The fitted values as plain data."""
        return {
            **({} if self.means is None else {"means": self.means.tolist()}),
            "medians": self.medians.tolist(),
            "scales": self.scales.tolist(),
            "marked": list(self.marked),
            "marks": list(self.marks),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Scaling:
        """Restore a scaling exactly."""
        medians, scales = (np.array(data[key], dtype=np.float64) for key in ("medians", "scales"))
        if medians.shape != scales.shape or not np.isfinite([medians, scales]).all() or not (scales > 0).all():
            raise ValueError("medians and scales must be finite numbers, one of each per input, and scales above 0")
        marked, marks = (tuple(int(place) for place in data[key]) for key in ("marked", "marks"))
        if not set(marks) <= set(marked) <= set(range(len(medians))):
            raise ValueError("marked must be numbers of inputs, and marks some of these")
        means = np.array(data["means"], dtype=np.float64) if "means" in data else None
        if means is not None and (means.shape != medians.shape or not np.isfinite(means).all()):
            raise ValueError("means must be finite numbers, one per input")
        return cls(medians, scales, marked, marks, means)


def _median_and_scale(values: Floats) -> tuple[Floats, Floats]:
    """The median and the scale of each column.

    The quartiles leave out values equal to the median, so that a column of mostly zeros has a range too. A column
    without a range, such as one of two values, is scaled by its standard deviation.
    """
    ordered = np.sort(values, axis=0)  # missing values come last
    known = (~np.isnan(ordered)).sum(0)
    middle = _at(ordered, (known - 1) / 2)
    first, after = (ordered < middle).sum(0), (ordered <= middle).sum(0)  # where the values equal to the median are
    others = known - (after - first)

    def quartile(share: float) -> Floats:
        return _at(ordered, share * np.maximum(others - 1, 0), first, after)

    scale = np.where(others > 0, quartile(0.75) - quartile(0.25), 0.0) / _NORMAL_RANGE
    for place in np.flatnonzero(scale <= 0):
        scale[place] = np.nanstd(values[:, place]) or 1.0
    return middle, scale


def _at(ordered: Floats, places: Floats, first: Any = 0, after: Any = 0) -> Floats:
    """The values at fractional places of the sorted columns, interpolated, without those from `first` to `after`."""

    def take(place: Any) -> Floats:
        rows = np.where(place < first, place, place + after - first).astype(np.intp)
        taken: Floats = np.take_along_axis(ordered, np.minimum(rows, len(ordered) - 1)[None], axis=0)[0]
        return taken

    below = np.floor(places)
    low, high = take(below), take(np.ceil(places))
    return low + (high - low) * (places - below)
