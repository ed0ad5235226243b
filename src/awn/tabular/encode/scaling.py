"""Scaling: numbers standardised and clipped, with missing values imputed and marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import StandardScaler

from awn.tabular.read.values import Floats

# Beyond ten standard deviations, a value means no more than 'very large', but it would dominate every unit it reaches.
CLIP = 10.0
# Mean and standard deviation are computed within ten interquartile ranges. Otherwise a single mistake (an age of
# 999999999) determines them, and all other values of the column become equal.
_FENCE = 10.0


@dataclass(frozen=True)
class Scaling:
    """Imputation by the median, mean 0 and standard deviation 1, clipping at ±CLIP, and marks for missing values.

    >>> ages = np.array([[20.0], [30.0], [40.0], [np.nan]])
    >>> scaling = Scaling.fit(ages, marked=[0])
    >>> scaling.transform(ages).round(2)
    array([[-1.22,  0.  ],
           [ 0.  ,  0.  ],
           [ 1.22,  0.  ],
           [ 0.  ,  1.  ]])

    `marked` are the columns that get a mark if they have missing values; the marks follow the numbers.
    """

    imputer: SimpleImputer
    indicator: MissingIndicator
    scaler: StandardScaler
    marked: tuple[int, ...]

    @classmethod
    def fit(cls, values: Floats, marked: list[int]) -> Scaling:
        """Compute medians, means and standard deviations, and find the columns with missing values."""
        # Of the known values alone: imputed ones would reduce the standard deviation.
        scaler = StandardScaler().fit(_within_fences(values))
        imputer = SimpleImputer(strategy="median").fit(values)
        return cls(imputer, _indicator().fit(values[:, marked]), scaler, tuple(marked))

    def transform(self, values: Floats) -> Floats:
        """The scaled numbers, then the marks."""
        scaled = np.asarray(self.scaler.transform(np.asarray(self.imputer.transform(values))))
        marks = np.asarray(self.indicator.transform(values[:, list(self.marked)]), dtype=np.float64)
        return np.hstack([scaled.clip(-CLIP, CLIP), marks])

    @property
    def marks(self) -> list[int]:
        """The columns that have a mark, in the order of the marks."""
        return [self.marked[place] for place in self.indicator.features_]

    def to_json(self) -> dict[str, Any]:
        """The fitted values as plain data."""
        return {
            "medians": self.imputer.statistics_.tolist(),
            "means": self.scaler.mean_.tolist(),
            "scales": self.scaler.scale_.tolist(),
            "marked": list(self.marked),
            "marks": self.marks,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Scaling:
        """Restore a scaling exactly.

        Imputer and indicator are fitted to two rows that give the same result: the medians, and the medians with a gap
        wherever there is a mark. This avoids private attributes of scikit-learn.
        """
        medians, means, scales = (np.array(data[key], dtype=np.float64) for key in ("medians", "means", "scales"))
        marked = [int(place) for place in data["marked"]]
        if not medians.shape == means.shape == scales.shape or not np.isfinite([medians, means, scales]).all():
            raise ValueError("medians, means and scales must be finite numbers, one of each per input")
        rows = np.stack([medians, medians])
        rows[1, data["marks"]] = np.nan
        scaler = StandardScaler()
        scaler.mean_, scaler.scale_, scaler.var_ = means, scales, scales**2
        scaler.n_features_in_, scaler.n_samples_seen_ = len(means), 1
        imputer = SimpleImputer(strategy="median").fit(rows)
        return cls(imputer, _indicator().fit(rows[:, marked]), scaler, tuple(marked))


def _indicator() -> MissingIndicator:
    # In a column without missing values in training, one at prediction is imputed without a mark.
    return MissingIndicator(features="missing-only", error_on_new=False)


def _within_fences(values: Floats) -> npt.NDArray[np.float64]:
    """The values, clipped ten interquartile ranges beyond the quartiles of each column.

    The quartiles leave out values equal to the median, so that a column of mostly zeros has a range too.
    """
    fenced = values.copy()
    for column in fenced.T:
        known = column[~np.isnan(column)]
        other = known[known != np.median(known)]
        if other.size:
            low, high = np.quantile(other, [0.25, 0.75])
            if high > low:
                column.clip(low - _FENCE * (high - low), high + _FENCE * (high - low), out=column)
    return fenced
