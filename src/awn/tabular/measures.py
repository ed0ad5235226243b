"""Measures of predictions on a test set, each with a bootstrap interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Statistics = Callable[[Array], dict[str, float]]

LEVEL = 0.95
_RESAMPLES, _FEWEST_RESAMPLES = 1000, 100
_MOST_DRAWS = 10_000_000  # of rows, in all resamples together
_LEAST_CHANCE = 1e-15  # the log-loss of a probability of 0 would be infinite


@dataclass(frozen=True)
class Measure:
    """A measure on the test set, and its 95 % interval over resamples of the rows."""

    value: float
    low: float
    high: float


def measure_classes(classes: Sequence[Any], actual: Array, chances: Array) -> dict[str, Measure]:
    """Accuracy, balanced accuracy, AUC, F1 and log-loss of predicted probabilities, [rows, classes].

    `actual` holds positions in `classes`. AUC and F1 are means over the classes. F1 of two classes is that of the rarer
    one, and named after it. A measure that the rows do not define is left out, such as the AUC of a single class.

    >>> found = measure_classes(["no", "yes"], np.array([0, 0, 1, 0]), np.eye(2)[[0, 0, 1, 1]])
    >>> {name: round(measure.value, 2) for name, measure in found.items()}
    {'accuracy': 0.75, 'balanced accuracy': 0.83, 'AUC': 0.83, "F1 of 'yes'": 0.67, 'log-loss': 8.63}
    """
    number = len(classes)
    cells = actual * number + chances.argmax(1)
    losses = -np.log(chances[np.arange(len(actual)), actual].clip(_LEAST_CHANCE))
    rankings = [_Ranking.of(chances[:, place], actual == place) for place in ([1] if number == 2 else range(number))]
    rare = int(np.bincount(actual, minlength=number).argmin()) if number == 2 else None
    f1_name = "F1 (macro)" if rare is None else f"F1 of {str(classes[rare])!r}"

    def statistics(weights: Array) -> dict[str, float]:
        counts = np.bincount(cells, weights, number * number).reshape(number, number)
        right, rows, named = counts.diagonal(), counts.sum(1), counts.sum(0)
        present = rows > 0
        f1 = 2 * right / np.maximum(rows + named, 1e-300)
        areas = [ranking.area(weights) for ranking in rankings]
        return {
            "accuracy": right.sum() / weights.sum(),
            "balanced accuracy": float((right[present] / rows[present]).mean()),
            "AUC": float(np.nanmean(areas)) if not np.isnan(areas).all() else math.nan,
            f1_name: float(f1[present].mean()) if rare is None else float(f1[rare]),
            "log-loss": float(weights @ losses / weights.sum()),
        }

    return bootstrap(statistics, len(actual))


def measure_numbers(actual: Array, predicted: Array) -> dict[str, Measure]:
    """R², RMSE and MAE of predicted numbers.

    >>> found = measure_numbers(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 5.0]))
    >>> {name: round(measure.value, 2) for name, measure in found.items()}
    {'R²': -1.0, 'RMSE': 1.15, 'MAE': 0.67}
    """
    squares, sizes = (actual - predicted) ** 2, np.abs(actual - predicted)

    def statistics(weights: Array) -> dict[str, float]:
        rows = weights.sum()
        spread = weights @ (actual - weights @ actual / rows) ** 2
        return {
            "R²": 1 - float(weights @ squares / spread) if spread > 0 else math.nan,
            "RMSE": math.sqrt(weights @ squares / rows),
            "MAE": float(weights @ sizes / rows),
        }

    return bootstrap(statistics, len(actual))


def bootstrap(statistics: Statistics, rows: int) -> dict[str, Measure]:
    """Every statistic with equal weights, and its 95 % interval over resamples of the rows with replacement.

    `statistics` takes the number of times that each row is drawn. NaN means that the rows do not define a statistic.

    >>> found = bootstrap(lambda weights: {"rows": weights.sum()}, rows=50)
    >>> found["rows"]
    Measure(value=50.0, low=50.0, high=50.0)
    """
    rng = np.random.default_rng(0)
    values = statistics(np.ones(rows))
    number = max(_FEWEST_RESAMPLES, min(_RESAMPLES, _MOST_DRAWS // max(rows, 1)))
    drawn: dict[str, list[float]] = {name: [] for name in values}
    for _ in range(number):
        weights = np.bincount(rng.integers(rows, size=rows), minlength=rows).astype(np.float64)
        for name, value in statistics(weights).items():
            drawn[name].append(value)
    ends = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    return {
        name: Measure(float(value), *(float(end) for end in np.nanquantile(drawn[name], ends)))
        for name, value in values.items()
        if not math.isnan(value)
    }


@dataclass(frozen=True)
class _Ranking:
    """Rows in the order of a class's probability, for its area under the ROC curve."""

    order: Array
    positive: Array
    starts: Array  # of rows with the same probability

    @classmethod
    def of(cls, chances: Array, positive: Array) -> _Ranking:
        order = np.argsort(chances, kind="stable")
        ranked = chances[order]
        return cls(order, positive[order].astype(np.float64), np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]))

    def area(self, weights: Array) -> float:
        """The share of pairs of a positive and a negative row that are in order; a tie counts half."""
        ranked = weights[self.order]
        above = np.add.reduceat(ranked * self.positive, self.starts)
        below = np.add.reduceat(ranked * (1 - self.positive), self.starts)
        pairs = above.sum() * below.sum()
        return float(above @ (below.cumsum() - below / 2) / pairs) if pairs else math.nan
