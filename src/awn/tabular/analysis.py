"""Analysis: the data of a report on a trained estimator, computed on the test set."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from sklearn.metrics import confusion_matrix
from torch import nn

from awn.core.count import count_parameters
from awn.core.groups import find_groups
from awn.files.provenance import provenance
from awn.report.data import Confusion, LayerCurve, ReportData, Residuals, TruncationPoint
from awn.smaller.activations import unit_activations
from awn.tabular.estimators import AdaptiveClassifier
from awn.tabular.folder import Estimator

_KEPT = [round(keep / 100, 2) for keep in range(100, 0, -5)]
_ROWS_SHOWN = 2000
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
) -> ReportData:
    """The data of the report: importance curves, truncation trade-off, activations and prediction errors."""
    classifies = isinstance(estimator, AdaptiveClassifier)
    rows = X.iloc[:_ROWS_SHOWN]
    shown = np.asarray(y)[:_ROWS_SHOWN]
    predicted = estimator.predict(rows)
    return ReportData(
        title=title,
        task="classification" if classifies else "regression",
        score_name="accuracy" if classifies else "R²",
        headline=list(headline),
        history=mark_best(estimator.history_.rows),
        layers=layer_curves(estimator.model_),
        truncation=truncation_curve(estimator, X, y),
        activations=activation_bands(estimator, rows),
        confusion=_confusion(estimator, shown, predicted) if isinstance(estimator, AdaptiveClassifier) else None,
        residuals=None if classifies or predicted.ndim > 1 else Residuals(shown.tolist(), predicted.tolist()),
        settings=dict(settings),
        environment=provenance(),
        notes=list(notes),
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
    cut = [(keep, estimator.truncate(keep=keep)) for keep in _KEPT]
    rows = torch.from_numpy(estimator.encode(X))  # once, since it takes longer than the networks for a wide table
    latencies = _latencies([smaller.to_torch() for _, smaller in cut], rows[:_LATENCY_ROWS])
    return [
        TruncationPoint(
            keep,
            smaller.widths_,
            count_parameters(smaller.model_),
            estimator.network_score(smaller.network_, rows.double(), y),
            latency,
        )
        for (keep, smaller), latency in zip(cut, latencies, strict=True)
    ]


def activation_bands(estimator: Estimator, X: pd.DataFrame) -> dict[str, dict[str, list[float]]]:
    """The smallest, mean and largest activation of every unit over some rows, scaled by its importance."""
    bands = {}
    device = next(estimator.model_.parameters()).device
    activations = unit_activations(estimator.model_, torch.from_numpy(estimator.encode(X)).to(device))
    for group in find_groups(estimator.model_):
        units = group.width.units
        scaled = activations[group.name] * group.width.importance()[:units].detach()
        low, mean, high = scaled.amin(0), scaled.mean(0), scaled.amax(0)
        bands[group.name] = {"low": low.tolist(), "mean": mean.tolist(), "high": high.tolist()}
    return bands


def mark_best(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a history, with those marked that were the best so far, by what the estimators keep an epoch by.

    That is the validation loss, or the score where a row has none.

    >>> [row["best"] for row in mark_best([{"score": 0.5}, {"score": 0.4}, {"score": 0.9}, {"score": None}])]
    [True, False, True, False]
    >>> by_loss = [{"score": 0.5, "validation_loss": 1.0}, {"score": 0.9, "validation_loss": 2.0}]
    >>> [row["best"] for row in mark_best(by_loss)]
    [True, False]
    """
    best, marked = -np.inf, []
    for row in rows:
        loss = row.get("validation_loss")
        merit = row["score"] if loss is None else -loss
        better = merit is not None and merit > best
        best = merit if better else best
        marked.append({**row, "best": better})
    return marked


def _latencies(networks: Sequence[nn.Module], rows: torch.Tensor, repeats: int = 15) -> list[float]:
    """The median time of a forward in milliseconds, measured in turns, so that noise falls on all alike."""
    times: list[list[float]] = [[] for _ in networks]
    with torch.no_grad():
        for repeat in range(repeats + 2):
            for network, own in zip(networks, times, strict=True):
                started = time.perf_counter()
                network(rows)
                if repeat >= 2:  # the first calls warm up
                    own.append(1000 * (time.perf_counter() - started))
    return [statistics.median(own) for own in times]


def _confusion(estimator: AdaptiveClassifier, actual: Any, predicted: Any) -> Confusion:
    counts = confusion_matrix(actual, predicted, labels=estimator.classes_)
    return Confusion([str(label) for label in estimator.classes_], counts.tolist())
