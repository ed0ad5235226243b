"""TrainingRows: rows of a table with what an estimator learns from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from awn.errors import ArgumentError

Array = NDArray[Any]
# The loss on fewer validation rows is too noisy for early stopping.
_FEWEST_VALIDATION_ROWS = 5
# More rows would judge a network hardly better, and they are missing in training.
_MOST_VALIDATION_ROWS = 2500


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

    def split(self, validation: float, *, stratify: bool, seed: int) -> tuple[TrainingRows, TrainingRows]:
        """The rows to train on, and the share `validation` of the rows to stop early by; none if these are very few."""
        if not 0 <= validation < 1:
            raise ArgumentError(f"validation_fraction must be at least 0 and below 1, got {validation}.")
        held_back = min(int(len(self) * validation), _MOST_VALIDATION_ROWS)
        everything = np.arange(len(self))
        if held_back < _FEWEST_VALIDATION_ROWS:
            return self, self.take(everything[:0])
        classes = self.targets if stratify else None
        if classes is not None:
            counts = np.unique(classes, return_counts=True)[1]
            if counts.min() < 2 or len(counts) > min(held_back, len(self) - held_back):
                classes = None
        train, held = train_test_split(everything, test_size=held_back, stratify=classes, random_state=seed)
        return self.take(train), self.take(held)
