"""Numbers for a network: missing ones filled and marked, all brought to one scale, the far tails cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import StandardScaler

from awn.tabular.read.values import Floats

# Beyond ten deviations a value says no more than 'very large', but one of a thousand would drive every unit it reaches.
CLIP = 10.0
# Mean and deviation are learned from values within ten quartile ranges: else a single mistake (an age of 999999999)
# sets the deviation, and all other values of the column become one.
_FENCE = 10.0


@dataclass(frozen=True)
class Scaling:
    """Median for the missing, a mark where the training data had missing values, mean 0 and deviation 1, cut at ±CLIP.

    >>> ages = np.array([[20.0], [30.0], [40.0], [np.nan]])
    >>> scaling = Scaling.fit(ages, marked=[0])
    >>> scaling.transform(ages).round(2)
    array([[-1.22,  0.  ],
           [ 0.  ,  0.  ],
           [ 1.22,  0.  ],
           [ 0.  ,  1.  ]])

    `marked` are the columns that may get a mark; the marks follow the numbers.
    """

    imputer: SimpleImputer
    indicator: MissingIndicator
    scaler: StandardScaler
    marked: tuple[int, ...]

    @classmethod
    def fit(cls, values: Floats, marked: list[int]) -> Scaling:
        """Learn medians, means and deviations, and where values are missing."""
        # Deviations are those of the known values: filled ones would make a column with gaps look narrower.
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
        """All that was learned, as plain data."""
        return {
            "medians": self.imputer.statistics_.tolist(),
            "means": self.scaler.mean_.tolist(),
            "deviations": self.scaler.scale_.tolist(),
            "marked": list(self.marked),
            "marks": self.marks,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Scaling:
        """The same scaling again, to the last bit.

        Imputer and indicator are fitted to two rows from which they learn just what they had learned: the medians, and
        the medians with gaps where there was a mark. This needs no attribute that scikit-learn keeps to itself.
        """
        medians, means, deviations = (
            np.array(data[key], dtype=np.float64) for key in ("medians", "means", "deviations")
        )
        marked = [int(place) for place in data["marked"]]
        if not medians.shape == means.shape == deviations.shape or not np.isfinite([medians, means, deviations]).all():
            raise ValueError("there is not one median, mean and deviation for each number")
        rows = np.stack([medians, medians])
        rows[1, data["marks"]] = np.nan
        scaler = StandardScaler()
        scaler.mean_, scaler.scale_, scaler.var_ = means, deviations, deviations**2
        scaler.n_features_in_, scaler.n_samples_seen_ = len(means), 1
        imputer = SimpleImputer(strategy="median").fit(rows)
        return cls(imputer, _indicator().fit(rows[:, marked]), scaler, tuple(marked))


def _indicator() -> MissingIndicator:
    # A value that is missing for the first time at prediction is filled; there is no mark for it, and no error.
    return MissingIndicator(features="missing-only", error_on_new=False)


def _within_fences(values: Floats) -> npt.NDArray[np.float64]:
    """The values, cut ten quartile ranges beyond the quartiles of each column's values other than its median.

    Without the median itself a column of mostly zeros has a range too.
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
