"""Explanations of a trained estimator on held-out rows: what it uses of each column, and how it depends on it.

Rows are encoded once. A column of the table is a block of the network's inputs, so shuffling the block or replacing it
by that of another row does the same as shuffling or replacing the cells of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from awn.report.table_data import Cell, Dependence
from awn.tabular.calibration import softmax
from awn.tabular.estimators import AdaptiveClassifier, predict_rows
from awn.tabular.folder import Estimator
from awn.tabular.read.values import distinct

Array = NDArray[Any]
_ROWS = 1000  # of more, a sample is used
_SHUFFLES = 3
_MOST_COLUMNS = 100  # of more, those with the largest weights are shuffled
_GRID, _MOST_LEVELS, _MOST_CLASSES = 24, 12, 5  # of a partial dependence
_GRID_ROWS = 200
_LEAST_CHANCE = 1e-15


@dataclass(frozen=True)
class Shuffled:
    """How much worse predictions become when a column is shuffled: the mean and deviation over a few shuffles."""

    importance: float
    spread: float


class Explainer:
    """The predictions of an estimator for held-out rows, with columns changed.

    >>> X = pd.DataFrame({"used": np.arange(300) % 7, "noise": np.arange(300) % 5})
    >>> estimator = AdaptiveClassifier(epochs=20, random_state=0).fit(X, X["used"] > 3)
    >>> shuffled = Explainer(estimator, X, X["used"] > 3).importances()
    >>> shuffled["used"].importance > 10 * abs(shuffled["noise"].importance)
    True
    """

    def __init__(self, estimator: Estimator, X: pd.DataFrame, y: Any, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        rows = np.sort(self._rng.permutation(len(X))[:_ROWS])
        self._estimator, self._frame, self._y = estimator, X.iloc[rows], np.asarray(y)[rows]
        self._encoded = estimator.encode(self._frame)
        self._network: nn.Module = estimator.to_torch().eval()
        self._inputs = estimator.preprocessor_.inputs_of

    @property
    def rows(self) -> int:
        """The number of rows that are used."""
        return len(self._frame)

    @property
    def measure(self) -> str:
        """What `importances` are measured in."""
        return "increase of the log-loss" if isinstance(self._estimator, AdaptiveClassifier) else "drop of R²"

    def importances(self) -> dict[str, Shuffled]:
        """The permutation importance of every column, or of those with the largest weights if they are many."""
        whole = self._badness(self._encoded)
        found = {}
        for name in self._heaviest():
            inputs, worse = self._inputs[name], []
            for _ in range(_SHUFFLES):
                shuffled = self._encoded.copy()
                shuffled[:, inputs] = self._encoded[self._rng.permutation(self.rows)][:, inputs]
                worse.append(self._badness(shuffled) - whole)
            found[name] = Shuffled(float(np.mean(worse)), float(np.std(worse)))
        return found

    def dependence(self, name: str) -> Dependence:
        """The mean prediction if all rows had the same value in a column, for some of its values.

        >>> X = pd.DataFrame({"age": np.arange(60.0)})
        >>> estimator = AdaptiveClassifier(epochs=2, random_state=0).fit(X, X["age"] > 30)
        >>> found = Explainer(estimator, X, X["age"] > 30).dependence("age")
        >>> len(found.values), list(found.curves)
        (24, ['True'])
        """
        values, places = self._some_values(name)
        inputs, base = self._inputs[name], self._encoded[:_GRID_ROWS]
        means = []
        for place in places:
            changed = base.copy()
            changed[:, inputs] = self._encoded[place, inputs]
            means.append(self._outputs(changed).mean(0))
        return Dependence(name, values, self._named(np.array(means)))

    def _some_values(self, name: str) -> tuple[list[Cell], list[int]]:
        """Values of a column in order, and for each of them a row that has it."""
        column = next(one for one in self._estimator.preprocessor_.columns if one.name == name)
        if column.kind in ("number", "date"):
            place = next(
                place
                for place, number in enumerate(self._estimator.preprocessor_.number_names)
                if number in (name, f"{name}: days")
            )
            numbers = self._estimator.preprocessor_.numbers(self._frame)[:, place]
            known = np.flatnonzero(~np.isnan(numbers))
            ordered = known[np.argsort(numbers[known], kind="stable")]
            chosen = ordered[np.unique(np.linspace(0, len(ordered) - 1, _GRID).round().astype(int))]
            chosen = chosen[np.unique(numbers[chosen], return_index=True)[1]]
            shown = numbers[chosen] if column.kind == "number" else self._frame[name].iloc[chosen].astype(str)
            return list(shown), chosen.tolist()
        codes, levels = distinct(self._frame[name])
        codes = codes % len(levels)
        often = np.bincount(codes, minlength=len(levels)).argsort(kind="stable")[::-1][:_MOST_LEVELS]
        often = often[np.isin(often, codes)]
        return [levels[code] or "missing" for code in often], [int(np.argmax(codes == code)) for code in often]

    def _heaviest(self) -> Sequence[str]:
        if len(self._inputs) <= _MOST_COLUMNS:
            return list(self._inputs)
        first: Any = next(layer for layer in self._network.modules() if isinstance(layer, nn.Linear))
        weights = np.asarray(first.weight.detach().square().sum(0).cpu()) * self._encoded.var(0)
        sizes = {name: float(weights[inputs].sum()) for name, inputs in self._inputs.items()}
        return sorted(sizes, key=lambda name: -sizes[name])[:_MOST_COLUMNS]

    def _outputs(self, encoded: Array) -> Array:
        """Probabilities, or predictions in the unit of the target: [rows, classes or targets]."""
        outputs = predict_rows(self._network, torch.from_numpy(encoded))
        if isinstance(self._estimator, AdaptiveClassifier):
            return softmax(outputs, self._estimator.temperature_)
        return np.asarray(outputs * self._estimator.target_scale_ + self._estimator.target_mean_)

    def _badness(self, encoded: Array) -> float:
        """The log-loss, or 1 − R²."""
        outputs = self._outputs(encoded)
        if isinstance(self._estimator, AdaptiveClassifier):
            actual = np.searchsorted(self._estimator.classes_, self._y)
            return float(-np.log(outputs[np.arange(len(actual)), actual].clip(_LEAST_CHANCE)).mean())
        wanted = np.asarray(self._y, dtype=np.float64).reshape(len(outputs), -1)
        spread = ((wanted - wanted.mean(0)) ** 2).sum()
        return float(((wanted - outputs) ** 2).sum() / spread) if spread > 0 else 0.0

    def _named(self, means: Array) -> dict[str, list[float]]:
        """The curves by class: the second of two, otherwise the most frequent ones."""
        if not isinstance(self._estimator, AdaptiveClassifier):
            return {"prediction": means[:, 0].tolist()}
        classes = self._estimator.classes_
        often = [1] if len(classes) == 2 else (-means.mean(0)).argsort(kind="stable")[:_MOST_CLASSES].tolist()
        return {str(classes[place]): means[:, place].tolist() for place in often}
