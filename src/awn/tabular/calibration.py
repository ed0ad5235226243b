"""Calibration on validation rows: a temperature for probabilities, and error quantiles for prediction intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from awn.errors import ArgumentError

Array = NDArray[Any]
_COLDEST, _HOTTEST = 0.01, 100.0
_STEPS = 50  # of bisection
_MOST_ERRORS = 1000  # kept of each target; more are thinned to their quantiles


def softmax(logits: Array, temperature: float = 1.0) -> Array:
    """Probabilities of classes, [rows, classes].

    >>> softmax(np.array([[0.0, 2 * math.log(3)]]), temperature=2.0)
    array([[0.25, 0.75]])
    """
    scaled = logits / temperature
    powers = np.exp(scaled - scaled.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def fit_temperature(logits: Array, actual: Array, weights: Array | None = None) -> float:
    """The temperature at which the probabilities of the actual classes have the lowest log-loss.

    As in Platt's scaling, the classes are not taken for certain, but as if one row more, and one less, had been of
    another class. Where all of a few rows are predicted correctly, the temperature would otherwise be 0.

    >>> logits = np.array([[0.0, 10.0]] * 400)  # sure of the second class, and wrong in one of four rows
    >>> round(fit_temperature(logits, np.arange(400) % 4 > 0), 1) == round(10 / math.log(3), 1)
    True
    >>> 2.0 < fit_temperature(logits[:4], np.ones(4, dtype=int)) < 6.0
    True
    """
    if not len(actual):
        return 1.0
    rows = np.arange(len(actual))
    doubt = 1 / (2 + (len(actual) if weights is None else float(weights.sum())))
    expected = (1 - doubt) * logits[rows, np.asarray(actual, dtype=int)] + doubt * logits.mean(1)

    def slope(temperature: float) -> float:
        """The derivative of the log-loss, which is convex, with respect to 1/temperature."""
        return float(np.average((softmax(logits, temperature) * logits).sum(1) - expected, weights=weights))

    low, high = math.log(_COLDEST), math.log(_HOTTEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(math.exp(middle)) > 0 else (low, middle)
    return math.exp((low + high) / 2)


@dataclass(frozen=True)
class ValidationErrors:
    """The sizes of the errors on `rows` validation rows, in increasing order, for each target.

    >>> errors = ValidationErrors.of(np.arange(1.0, 20.0)[:, None])
    >>> errors.half_widths(0.9)
    array([18.])
    """

    sizes: tuple[tuple[float, ...], ...]
    rows: int

    @classmethod
    def of(cls, errors: Array) -> ValidationErrors:
        """Keep errors, [rows, targets], or their quantiles if there are many rows."""
        ordered = np.sort(np.abs(errors), axis=0)
        if len(ordered) > _MOST_ERRORS:
            places = np.ceil(np.arange(1, _MOST_ERRORS + 1) * len(ordered) / _MOST_ERRORS).astype(int) - 1
            ordered = ordered[places]
        return cls(tuple(tuple(target) for target in ordered.T.tolist()), len(errors))

    def half_widths(self, coverage: float) -> Array:
        """The half-width of the intervals of each target that contain the actual value with this probability.

        These are split conformal intervals: the ⌈(n + 1) · coverage⌉-th smallest of n errors.
        """
        if not 0 < coverage < 1:
            raise ArgumentError(f"interval must lie strictly between 0 and 1, got {coverage}.", argument="interval")
        place = math.ceil((self.rows + 1) * coverage)
        if place > self.rows:
            most = self.rows / (self.rows + 1)
            raise ArgumentError(
                f"interval={coverage:g} needs more than {self.rows} validation rows; they allow at most {most:.3f}.",
                argument="interval",
            )
        kept = [sizes[math.ceil(place * len(sizes) / self.rows) - 1] for sizes in self.sizes]
        return np.array(kept)


@dataclass(frozen=True)
class CalibrationCurve:
    """How often the predicted class was right, by the probability that it had: bins with about equally many rows.

    `error` is the expected calibration error, the mean of |accuracy − confidence| over the rows.
    """

    confidence: list[float]
    accuracy: list[float]
    rows: list[int]
    error: float

    @classmethod
    def of(cls, chances: Array, actual: Array, bins: int = 10) -> CalibrationCurve:
        """The curve of predicted probabilities, [rows, classes], for rows of these classes.

        >>> chances = np.array([[0.75, 0.25]] * 4)
        >>> CalibrationCurve.of(chances, np.array([0, 0, 0, 1]), bins=1)
        CalibrationCurve(confidence=[0.75], accuracy=[0.75], rows=[4], error=0.0)
        """
        sure, right = chances.max(1), chances.argmax(1) == actual
        parts = [part for part in np.array_split(np.argsort(sure, kind="stable"), bins) if len(part)]
        confidence = [float(sure[part].mean()) for part in parts]
        accuracy = [float(right[part].mean()) for part in parts]
        rows = [len(part) for part in parts]
        gaps = [abs(a - c) * n for a, c, n in zip(accuracy, confidence, rows, strict=True)]
        return cls(confidence, accuracy, rows, sum(gaps) / len(actual))
