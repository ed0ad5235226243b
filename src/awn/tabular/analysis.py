"""Analysis: the data of a report on a trained estimator, computed on the test set."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from sklearn.metrics import confusion_matrix
from torch import nn

from awn.basics.plain import to_plain
from awn.basics.timing import in_turns
from awn.core.count import count_parameters
from awn.core.groups import find_groups
from awn.files.provenance import provenance
from awn.report.data import Confusion, LayerCurve, ReportData, Residuals, TruncationPoint
from awn.smaller.activations import ActivationBand, activation_bands
from awn.tabular.calibration import CalibrationCurve
from awn.tabular.estimators import AdaptiveClassifier
from awn.tabular.folder import Estimator

_KEPT = [round(keep / 100, 2) for keep in range(100, 0, -5)]
_ACTIVATION_ROWS = 2000
_LATENCY_ROWS = 256


def analyse(
    estimator: Estimator,
    X: pd.DataFrame,
    y: ArrayLike,
    *,
    title: str,
    headline: Sequence[tuple[str, Any]],
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
    measures: Mapping[str, Any] | None = None,
) -> ReportData:
    """The data of the report: importance curves, truncation trade-off, activations and prediction errors."""
    classifies = isinstance(estimator, AdaptiveClassifier)
    rows, actual = X.iloc[:_ACTIVATION_ROWS], np.asarray(y)
    predicted = estimator.predict(X)
    return ReportData(
        title=title,
        task="classification" if classifies else "regression",
        score_name="accuracy" if classifies else "R²",
        headline=list(headline),
        history=estimator.history_.rows,
        layers=layer_curves(estimator.model_),
        truncation=truncation_curve(estimator, X, y),
        activations=to_plain(_activation_bands(estimator, rows)),
        confusion=_confusion(estimator, actual, predicted) if isinstance(estimator, AdaptiveClassifier) else None,
        residuals=None if classifies or predicted.ndim > 1 else Residuals(actual.tolist(), predicted.tolist()),
        settings=dict(settings),
        environment=provenance(),
        notes=list(notes),
        measures=dict(measures or {}),
        calibration=_calibration(estimator, X, actual) if isinstance(estimator, AdaptiveClassifier) else None,
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


def truncation_curve(estimator: Estimator, X: pd.DataFrame, y: ArrayLike) -> list[TruncationPoint]:
    """Score, size and measured latency of the network truncated to 100 %, 95 %, …, 5 % of its units."""
    encoded = torch.from_numpy(estimator.encode(X))  # once, since it takes longer than the networks for a wide table
    first, rows = encoded[:_LATENCY_ROWS].clone(), encoded.double()
    del encoded
    points, networks = [], []
    for keep in _KEPT:  # one at a time, to keep only the small copy of each network
        smaller = estimator.truncate(keep=keep)
        score = estimator.network_score(smaller.network_, rows, y)
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


def _confusion(estimator: AdaptiveClassifier, actual: Any, predicted: Any) -> Confusion:
    counts = confusion_matrix(actual, predicted, labels=estimator.classes_)
    return Confusion([str(label) for label in estimator.classes_], counts.tolist())


def _calibration(estimator: AdaptiveClassifier, X: pd.DataFrame, actual: Any) -> dict[str, Any]:
    """The calibration curve on rows of known classes, and the temperature behind it."""
    known = np.isin(actual, estimator.classes_)
    if not known.any():
        return {"temperature": estimator.temperature_}
    places = np.searchsorted(estimator.classes_, actual[known])
    curve = CalibrationCurve.of(estimator.predict_proba(X[known]), places)
    return {**asdict(curve), "temperature": estimator.temperature_}
