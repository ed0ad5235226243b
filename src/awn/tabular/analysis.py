"""Analysis: the data of a report on a trained estimator. The test rows are read for the last figures alone."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix
from torch import nn

from awn.basics.plain import to_plain
from awn.basics.timing import in_turns
from awn.core.count import count_parameters
from awn.core.groups import find_groups
from awn.report.data import Confusion, LayerCurve, ReportData, Residuals, TruncationPoint
from awn.report.table_data import Dependence, HardRows
from awn.smaller.activations import ActivationBand, activation_bands
from awn.smaller.choose import SLACK
from awn.tabular.calibration import CalibrationCurve
from awn.tabular.column_facts import column_facts
from awn.tabular.encode.columns import Column
from awn.tabular.estimators import AdaptiveClassifier
from awn.tabular.explain import Explainer, Shuffled
from awn.tabular.folder import Estimator
from awn.tabular.read.values import row_name

Array = NDArray[Any]
_KEPT = [round(keep / 100, 2) for keep in range(100, 0, -5)]
_ACTIVATION_ROWS = 2000
_REPAIR_ROWS = 2048  # least squares over a few inputs per unit need no more
_LATENCY_ROWS = 256
_DEPENDENCES = 4
_MOST_COLUMNS = 200  # in the table of columns
_HARD_ROWS, _HARD_COLUMNS = 10, 6
_COVERAGE = 0.9


@dataclass(frozen=True)
class TableRows:
    """The rows of a table by their role: to train on, to decide by, and for the last figures."""

    X: pd.DataFrame
    y: pd.Series
    X_held: pd.DataFrame
    y_held: pd.Series
    X_test: pd.DataFrame
    y_test: pd.Series

    @property
    def held_name(self) -> str:
        """What the rows to decide by are called."""
        return f"the {len(self.X_held):,} {'validation' if self.are_apart else 'training'} rows"

    @property
    def are_apart(self) -> bool:
        """Whether there are validation rows. A small table has none, so that its training rows decide."""
        return not self.X_held.index.equals(self.X.index)


def analyse(estimator: Estimator, rows: TableRows, report: ReportData, *, explain: bool = True) -> ReportData:
    """Complete a report: importance of columns and units, truncations, activations and prediction errors."""
    actual, predicted = np.asarray(rows.y_test), estimator.predict(rows.X_test)
    explainer = Explainer(estimator, rows.X_held, rows.y_held) if explain else None
    importances = {} if explainer is None else explainer.importances()
    top = sorted(importances, key=lambda name: -importances[name].importance)
    classifies = isinstance(estimator, AdaptiveClassifier)
    single = not classifies and predicted.ndim == 1
    return replace(
        report,
        history=estimator.history_.rows,
        layers=layer_curves(estimator.model_),
        truncation=truncation_curve(estimator, rows),
        truncation_rows=rows.held_name,
        activations=to_plain(_activation_bands(estimator, rows.X_held.iloc[:_ACTIVATION_ROWS])),
        confusion=_confusion(estimator, actual, predicted) if isinstance(estimator, AdaptiveClassifier) else None,
        residuals=Residuals(actual.tolist(), predicted.tolist()) if single else None,
        calibration=_calibration(estimator, rows.X_test, actual),
        columns=column_facts(rows.X, _some_columns(estimator, top), importances),
        column_count=len(estimator.preprocessor_.columns),
        importance_name="" if explainer is None else f"{explainer.measure} on {explainer.rows:,} held-out rows",
        dependences=[] if explainer is None else _dependences(explainer, top, importances),
        hard_rows=_hard_rows(estimator, rows, predicted, top or list(estimator.preprocessor_.inputs_of)),
        kept_because=_kept_because(estimator),
        max_units=max((group.width.max_units or 0 for group in find_groups(estimator.model_)), default=0) or None,
    )


def layer_curves(model: nn.Module) -> list[LayerCurve]:
    """The importance of every layer's units and of half as many beyond the width, relative to the first unit."""
    curves = []
    for group in find_groups(model):
        width = group.width
        index = torch.arange(width.units + max(8, width.units // 2), dtype=torch.float64)
        mass = width.family.mass(index, torch.tensor(width.value, dtype=torch.float64))
        curves.append(LayerCurve(group.name, (mass / mass[0]).tolist(), width.units, width.quantile, width.value))
    return curves


def truncation_curve(estimator: Estimator, rows: TableRows) -> list[TruncationPoint]:
    """Score, size and measured latency of the network truncated to 100 %, 95 %, …, 5 % of its units.

    Each truncation is repaired on training rows and scored on the rows to decide by.
    """
    repair = rows.X.sample(min(len(rows.X), _REPAIR_ROWS), random_state=0)
    encoded = torch.from_numpy(estimator.encode(rows.X_held))  # once: it takes longer than the networks do
    first, held = encoded[:_LATENCY_ROWS].clone(), encoded.double()
    del encoded
    points, networks = [], []
    for keep in _KEPT:  # one at a time, to keep only the small copy of each network
        smaller = estimator.truncate(keep=keep, repair=repair if keep < 1 and len(repair) > 1 else None)
        score = estimator.network_score(smaller.network_, held, rows.y_held)
        points.append(TruncationPoint(keep, smaller.widths_, count_parameters(smaller.model_), score, latency_ms=0.0))
        networks.append(smaller.to_torch())
    latencies = _latencies(networks, first)
    return [replace(point, latency_ms=latency) for point, latency in zip(points, latencies, strict=True)]


def _activation_bands(estimator: Estimator, X: pd.DataFrame) -> dict[str, ActivationBand]:
    device = next(estimator.model_.parameters()).device
    return activation_bands(estimator.model_, torch.from_numpy(estimator.encode(X)).to(device))


def _latencies(networks: Sequence[nn.Module], rows: torch.Tensor) -> list[float]:
    """The median time of a forward in milliseconds."""
    forwards = {str(place): functools.partial(network, rows) for place, network in enumerate(networks)}
    with torch.no_grad():
        seconds = in_turns(forwards, repetitions=15, burst=0.0)
    return [1000 * statistics.median(own) for own in seconds.values()]


def _confusion(estimator: AdaptiveClassifier, actual: Array, predicted: Array) -> Confusion:
    counts = confusion_matrix(actual, predicted, labels=estimator.classes_)
    return Confusion([str(label) for label in estimator.classes_], counts.tolist())


def _calibration(estimator: Estimator, X: pd.DataFrame, actual: Array) -> dict[str, Any] | None:
    """The calibration curve on rows of known classes and its temperature; for numbers, the coverage of intervals."""
    if not isinstance(estimator, AdaptiveClassifier):
        errors = estimator.validation_errors_
        if errors is None or errors.rows < 2 / (1 - _COVERAGE):
            return None
        low, high = estimator.predict_interval(X, _COVERAGE)
        covered = (low <= actual) & (actual <= high)
        return {"wanted": _COVERAGE, "covered": float(covered.mean()), "width": float(np.mean(high - low))}
    known = np.isin(actual, estimator.classes_)
    if not known.any():
        return {"temperature": estimator.temperature_}
    places = np.searchsorted(estimator.classes_, actual[known])
    curve = CalibrationCurve.of(estimator.predict_proba(X[known]), places)
    return {**asdict(curve), "temperature": estimator.temperature_}


def _dependences(explainer: Explainer, top: Sequence[str], importances: dict[str, Shuffled]) -> list[Dependence]:
    used = [name for name in top[:_DEPENDENCES] if importances[name].importance > 0]
    return [explainer.dependence(name) for name in used]


def _some_columns(estimator: Estimator, top: Sequence[str]) -> list[Column]:
    """All columns, or the most important ones and some others if they are many."""
    columns, first = estimator.preprocessor_.columns, set(top)
    ordered = sorted(columns, key=lambda column: (column.name not in first, not column.used))  # stable
    return ordered[:_MOST_COLUMNS] if len(columns) > _MOST_COLUMNS else list(columns)


def _hard_rows(estimator: Estimator, rows: TableRows, predicted: Array, columns: Sequence[str]) -> HardRows | None:
    """The test rows with the largest errors, with the values of some columns."""
    actual, shown = np.asarray(rows.y_test), list(columns[:_HARD_COLUMNS])
    if isinstance(estimator, AdaptiveClassifier):
        chances = estimator.predict_proba(rows.X_test)
        known = np.isin(actual, estimator.classes_)
        places = np.where(known, np.searchsorted(estimator.classes_, actual), 0) % len(estimator.classes_)
        right = np.where(known, chances[np.arange(len(actual)), places], 0.0)
        order, says, amount = np.argsort(right, kind="stable"), "probability of the actual class", right
    elif predicted.ndim == 1:
        errors = predicted - actual
        order, says, amount = np.argsort(-np.abs(errors), kind="stable"), "predicted − actual", errors
    else:
        return None
    found = []
    for place in order[:_HARD_ROWS].tolist():
        cells = [_cell(rows.X_test[name].iloc[place]) for name in shown]
        found.append(
            [row_name(rows.y_test, place), _cell(actual[place]), _cell(predicted[place]), float(amount[place]), *cells]
        )
    return HardRows(["row", "actual", "predicted", says, *shown], found)


def _cell(value: Any) -> str | int | float | None:
    """A cell of a table in plain types; long text is shortened."""
    if pd.isna(value):
        return None
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool | int | float):
        return plain
    return text if len(text := str(plain)) <= 60 else text[:59] + "…"


def _kept_because(estimator: Estimator) -> str:
    """Which epoch was kept, and why."""
    history = estimator.history_
    losses = {int(row["epoch"]): row["validation_loss"] for row in history if row.get("validation_loss") is not None}
    if not losses:
        return f"Without validation rows, the last epoch is kept, {len(history):,}."
    kept, best = history.kept_epoch, min(losses, key=lambda epoch: losses[epoch])
    if losses[kept] <= losses[best]:
        return f"Epoch {kept:,} of {len(history):,} is kept: its validation loss is the lowest."
    return (
        f"Epoch {kept:,} of {len(history):,} is kept: its validation loss is within {SLACK:g} standard errors of the "
        f"lowest, that of epoch {best:,}, and its network is smaller."
    )
