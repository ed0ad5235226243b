"""The contest: the network and other models of a table, scored on the same rows, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from awn.core.count import count_parameters
from awn.report.table_data import Leader, SizeCurve
from awn.tabular.estimators import AdaptiveClassifier
from awn.tabular.folder import Estimator
from awn.tabular.measures import measure_classes, measure_numbers
from awn.tabular.members import networks_of
from awn.tabular.outcome import SCORES
from awn.tabular.read.values import numbers
from awn.tabular.rivals import Rival

Array = NDArray[Any]
_NORMAL = 1.96  # standard errors on either side of a 95 % interval
_LOSSES = ("log-loss", "RMSE")


@dataclass(frozen=True)
class Contestant:
    """A fitted model: its probabilities or predictions for rows of the table, its size and its training time."""

    name: str
    outputs: Callable[[pd.DataFrame], Array]
    seconds: float | None = None
    units: int | None = None
    parameters: int | None = None

    @classmethod
    def of_network(cls, name: str, estimator: Estimator, seconds: float) -> Contestant:
        """An estimator of awn."""
        outputs = estimator.predict_proba if isinstance(estimator, AdaptiveClassifier) else estimator.predict
        units = sum(estimator.fixed_widths or estimator.widths_.values())
        return cls(name, outputs, seconds, units, count_parameters(estimator.model_))

    @classmethod
    def of_rival(cls, rival: Rival, classes: Array | None) -> Contestant:
        """A model of another kind, with a probability for each of `classes`, which it may not all have seen."""

        def outputs(X: pd.DataFrame) -> Array:
            found = rival.outputs(X)
            if classes is None or found.shape[1] == len(classes):
                return found
            complete = np.zeros((len(found), len(classes)))
            complete[:, np.searchsorted(classes, rival.model.classes_)] = found
            return complete

        return cls(rival.name, outputs, rival.seconds)


@dataclass(frozen=True)
class Scored:
    """A model's score on some rows, and all measures as plain numbers."""

    score: float
    measures: dict[str, dict[str, float]]


def score_outputs(y: pd.Series, outputs: Array, classes: Array | None) -> Scored:
    """The score of probabilities of `classes`, or of predicted numbers if there are none.

    >>> score_outputs(pd.Series(["no", "yes"]), np.eye(2), np.array(["no", "yes"])).score
    1.0
    """
    if classes is None:
        found = measure_numbers(numbers(y), outputs)
        score = found["R²"].value if "R²" in found else math.nan
    else:
        place = {label: number for number, label in enumerate(classes)}
        known = y.isin(classes).to_numpy()  # a class of one row may be in the test set alone
        actual = np.array([place[label] for label in y[known]], dtype=np.intp)
        found = measure_classes(list(classes), actual, outputs[known]) if len(actual) else {}
        score = float(np.mean(classes[outputs.argmax(1)] == y.to_numpy()))
    return Scored(score, {name: asdict(measure) for name, measure in found.items()})


def leaderboard(contestants: Iterable[Contestant], scored: Mapping[str, Scored], score_name: str) -> list[Leader]:
    """The models by falling score, with the loss and the intervals that their measures have."""
    leaders = []
    for one in contestants:
        own = scored[one.name]
        interval = own.measures.get(score_name, {"low": math.nan, "high": math.nan})
        loss = next((own.measures[name] for name in _LOSSES if name in own.measures), {})
        leaders.append(
            Leader(
                SCORES.get(one.name, one.name),
                own.score,
                interval["low"],
                interval["high"],
                loss=loss.get("value"),
                loss_low=loss.get("low"),
                loss_high=loss.get("high"),
                units=one.units,
                parameters=one.parameters,
                seconds=one.seconds,
            )
        )
    return sorted(leaders, key=lambda leader: -leader.score)


def size_curve(
    estimator: Estimator, X: pd.DataFrame, y: pd.Series, contestants: Iterable[Contestant]
) -> SizeCurve | None:
    """The curve of score against size on the validation rows, with other models on the same rows; None without one.

    If several networks are averaged, the curve is that of the first: the others were trained on these rows.
    """
    choice = estimator.history_.choice
    if choice is None or not len(X) or any(point.score is None for point in choice.curve):
        return None
    estimator, networks = estimator.first_network(), len(networks_of(estimator.model_))
    final = Contestant.of_network("adaptive", estimator, 0.0)
    rated = {one.name: _rated(one, estimator, X, y) for one in [final, *contestants]}
    kept = rated.pop("adaptive")
    # The errors of the kept network tell how uncertain a score is; those of smaller ones are alike.
    relative = (kept.high - kept.score) / max(1 - kept.score, 1e-9)
    points = []
    for point in choice.curve:
        score = float(point.score or 0.0)
        half = (1 - score) * relative
        ends = _accuracy_interval(score, len(X)) if _classifies(estimator) else (score - half, score + half)
        size: dict[str, Any] = {"units": point.total_units, "parameters": point.parameters}
        points.append(Leader(f"{point.total_units} units", score, *ends, **size))
    rows = f"the {len(X):,} validation rows" + (f" (the first of {networks} networks)" if networks > 1 else "")
    return SizeCurve(points, choice.chosen, rows, kept, list(rated.values()))


def _rated(one: Contestant, estimator: Estimator, X: pd.DataFrame, y: pd.Series) -> Leader:
    """A model's score with a 95 % interval: Wilson's for accuracies, otherwise 1.96 standard errors on either side."""
    outputs = one.outputs(X)
    if isinstance(estimator, AdaptiveClassifier):
        score = float(np.mean(estimator.classes_[outputs.argmax(1)] == y.to_numpy()))
        low, high = _accuracy_interval(score, len(y))
    else:
        actual = numbers(y)
        squares, spread = (actual - outputs) ** 2, max(float(actual.var()), 1e-300)
        score = 1 - float(squares.mean()) / spread
        half = _NORMAL * float(squares.std()) / math.sqrt(len(y)) / spread
        low, high = score - half, score + half
    name = SCORES.get(one.name, one.name)
    return Leader(name, score, low, high, units=one.units, parameters=one.parameters)


def _accuracy_interval(score: float, rows: int) -> tuple[float, float]:
    """Wilson's interval for a share of rows, which stays within 0 and 1.

    >>> [round(end, 3) for end in _accuracy_interval(1.0, 40)]
    [0.912, 1.0]
    """
    squares = _NORMAL**2
    middle = (rows * score + squares / 2) / (rows + squares)
    half = _NORMAL * math.sqrt(rows * max(score * (1 - score), 0.0) + squares / 4) / (rows + squares)
    return middle - half, min(1.0, middle + half)


def _classifies(estimator: Estimator) -> bool:
    return isinstance(estimator, AdaptiveClassifier)
