"""Rivals: other models of the same rows, to compare a network with: boosting, a linear model and a constant."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge

from awn.tabular.encode.preprocess import Preprocessor
from awn.tabular.read.target import Task

Array = NDArray[Any]
_LINEAR_ITERATIONS = 300
# Beyond these, boosting and a linear model would take longer than the network.
_MOST_COLUMNS, _MOST_VALUES = 2_000, 50_000_000


@dataclass(frozen=True)
class Rival:
    """A fitted model, how it reads a table, and the seconds that its training took."""

    name: str
    model: Any
    read: Callable[[pd.DataFrame], Array]
    seconds: float

    def outputs(self, X: pd.DataFrame) -> Array:
        """The probability of every class, or the predicted numbers."""
        classifies = isinstance(self.model, DummyClassifier | HistGradientBoostingClassifier | LogisticRegression)
        return np.asarray(self.model.predict_proba(self.read(X)) if classifies else self.model.predict(self.read(X)))


def fit_rivals(
    preprocessor: Preprocessor,
    X: pd.DataFrame,
    y: Any,
    task: Task,
    *,
    kinds: Sequence[str] = ("boosting", "linear", "baseline"),
    seed: int = 0,
    balanced: bool = False,
) -> dict[str, Rival]:
    """Fit scikit-learn's gradient boosting, a linear model and a constant to rows of a table, at their defaults.

    >>> X = pd.DataFrame({"age": np.arange(80), "job": ["cook", "smith"] * 40})
    >>> rivals = fit_rivals(Preprocessor().fit(X), X, (X["job"] == "cook").astype(float), "regression")
    >>> {name: round(float(rival.outputs(X)[0]), 1) for name, rival in rivals.items()}
    {'boosting': 1.0, 'linear': 1.0, 'baseline': 0.5}
    """
    reading = _Reading(preprocessor)
    makers: dict[str, tuple[Callable[[], Any], Callable[[pd.DataFrame], Array]]] = {
        "boosting": (lambda: _boosting(task, reading, seed, balanced), reading.for_trees),
        "linear": (lambda: _linear(task, balanced), reading.for_sums),
        "baseline": (lambda: DummyClassifier() if task == "classification" else DummyRegressor(), _nothing),
    }
    fitted = {}
    for name in kinds:
        make, read = makers[name]
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of iterations and of classes with a single row
            model = make().fit(read(X), y)
        fitted[name] = Rival(name, model, read, time.perf_counter() - started)
    return fitted


def why_no_rivals(rows: int, columns: int) -> str:
    """Why a table is too large for rivals, as a note for the user; '' if it is not.

    >>> why_no_rivals(1_000, 20_000)
    'gradient boosting and the linear model are left out: the table has 20,000 columns'
    >>> why_no_rivals(100_000, 30)
    ''
    """
    if columns > _MOST_COLUMNS:
        return f"gradient boosting and the linear model are left out: the table has {columns:,} columns"
    if rows * columns > _MOST_VALUES:
        return f"gradient boosting and the linear model are left out: the table has {rows * columns:,} values"
    return ""


def _boosting(task: Task, reading: _Reading, seed: int, balanced: bool) -> Any:
    options: dict[str, Any] = {"random_state": seed, "categorical_features": reading.are_categories}
    if task == "regression":
        return HistGradientBoostingRegressor(**options)
    return HistGradientBoostingClassifier(class_weight="balanced" if balanced else None, **options)


def _linear(task: Task, balanced: bool) -> Any:
    if task == "regression":
        return Ridge()
    return LogisticRegression(max_iter=_LINEAR_ITERATIONS, class_weight="balanced" if balanced else None)


def _nothing(X: pd.DataFrame) -> Array:
    return np.zeros((len(X), 1))


class _Reading:
    """A table as the inputs of other models, with the columns that the network uses."""

    def __init__(self, preprocessor: Preprocessor) -> None:
        self._preprocessor = preprocessor
        self._categories = [preprocessor.inputs_of[name] for name in preprocessor.category_columns]
        numbers = preprocessor.number_names
        self.are_categories = [False] * len(numbers) + [True] * len(self._categories)

    def for_trees(self, X: pd.DataFrame) -> Array:
        """Numbers with gaps, and a code for the level of every category."""
        encoded = self._preprocessor.transform(X) if self._categories else np.empty((len(X), 0))
        codes = [encoded[:, inputs].argmax(1).astype(float) for inputs in self._categories]
        for code, inputs in zip(codes, self._categories, strict=True):
            code[~encoded[:, inputs].any(1)] = np.nan
        return np.column_stack([self._preprocessor.numbers(X), *codes])

    def for_sums(self, X: pd.DataFrame) -> Array:
        """The inputs of the network without the bins of numbers."""
        encoded: Array = self._preprocessor.transform(X)[:, self._preprocessor.unbinned_inputs]
        return encoded
