"""TrainingRows: rows of a table with what an estimator learns from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class TrainingRows:
    """Rows of a table, their targets as the loss takes them, and their sample weights, of mean 1."""

    frame: pd.DataFrame
    targets: Array
    weights: Array | None

    def __len__(self) -> int:
        return len(self.frame)

    def take(self, rows: Array) -> TrainingRows:
        """The rows at these positions, or where this mask is true."""
        weights = None if self.weights is None else self.weights[rows]
        return TrainingRows(self.frame.iloc[rows], self.targets[rows], weights)

    def of_positive_weight(self) -> TrainingRows:
        """Without the rows of weight 0, so that they affect neither the scaling nor early stopping."""
        if self.weights is None or (self.weights > 0).all():
            return self
        kept = self.take(self.weights > 0)
        assert kept.weights is not None
        return TrainingRows(kept.frame, kept.targets, kept.weights / kept.weights.mean())
