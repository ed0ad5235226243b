"""Plots over epochs: widths, score, loss."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from awn.basics.thin import thin
from awn.report.data import EpochRow, ReportData
from awn.report.figure import MOST_LINES, MOST_POINTS, Figure, band, figure, finite, line, upright

LOSS_TERMS = {
    "total": "total",
    "data": "data",
    "weights": "prior of the weights",
    "width": "prior of the widths",
    "budget": "budget",
}
DATA_LOSSES = {"data": "training", "validation_loss": "validation"}
_NEAR = 0.5  # of the limit of a layer


def best_row(history: Sequence[EpochRow]) -> int | None:
    """The place of the best epoch, if any is marked."""
    return max((place for place, row in enumerate(history) if row.get("best")), default=None)


def drawn_rows(history: Sequence[EpochRow]) -> list[EpochRow]:
    """The epochs that are drawn: all, or evenly spaced ones and the best."""
    best = best_row(history)
    return [history[place] for place in thin(len(history), MOST_POINTS, () if best is None else (best,))]


def layer_names(history: Sequence[EpochRow]) -> list[str]:
    """The layers of all epochs, in the order of their first appearance."""
    return list(dict.fromkeys(name for row in history for name in row.get("widths") or {}))


def widths_plot(history: Sequence[EpochRow], most: int | None = None) -> Figure:
    """The width of every layer over the epochs: a line each, or a band and its middle if they are many.

    The limit `most` is drawn if a layer came near it.
    """
    rows = drawn_rows(history)
    epochs = [row["epoch"] for row in rows]
    names = layer_names(rows)
    if len(names) <= MOST_LINES:
        traces = [
            line(name, epochs, [(row.get("widths") or {}).get(name) for row in rows], i) for i, name in enumerate(names)
        ]
    else:
        by_epoch = [list((row.get("widths") or {}).values()) or [float("nan")] for row in rows]
        edge: dict[str, Any] = {"line": {"width": 1}, "mode": "lines", "showlegend": False}
        traces = [
            *band("narrowest to widest layer", epochs, map(min, by_epoch), map(max, by_epoch)),
            line("widest", epochs, map(max, by_epoch), **edge),
            line("middle layer (median)", epochs, map(statistics.median, by_epoch)),
            line("narrowest", epochs, map(min, by_epoch), **edge),
        ]
    widest = max((units for row in rows for units in (row.get("widths") or {}).values()), default=0)
    if most is not None and widest > _NEAR * most:
        limit = {"mode": "lines", "line": {"dash": "dot", "width": 1.5}}
        traces.append(line(f"limit: {most:,} units", [epochs[0], epochs[-1]], [most, most], "var(--soft)", **limit))
    return figure(traces, "epoch", "units", yaxis={"rangemode": "tozero"}, **_best_mark(history))


def score_plot(data: ReportData) -> Figure:
    """The score over the epochs, on the validation and the training set."""
    rows = drawn_rows(data.history)
    epochs = [row["epoch"] for row in rows]
    traces = [
        line(label, epochs, [row.get(key) for row in rows], colour, line={"dash": dash})
        for key, label, colour, dash in (("train_score", "training", 1, "dot"), ("score", "validation", 0, "solid"))
        if any(row.get(key) is not None for row in rows)
    ]
    return figure(traces, "epoch", data.score_name, **_best_mark(data.history))


def data_loss_plot(history: Sequence[EpochRow]) -> Figure:
    """The loss of the data, without priors, on the training and the validation set."""
    rows = drawn_rows(history)
    epochs = [row["epoch"] for row in rows]
    traces = [
        line(label, epochs, [row.get(key) for row in rows], colour, line={"dash": dash})
        for (key, label), colour, dash in zip(DATA_LOSSES.items(), (1, 0), ("dot", "solid"), strict=True)
        if any(row.get(key) is not None for row in rows)
    ]
    return figure(traces, "epoch", "loss", **_best_mark(history))


def loss_plot(history: Sequence[EpochRow]) -> Figure:
    """The terms of the loss over the epochs; those that are always 0 are left out."""
    rows = drawn_rows(history)
    epochs = [row["epoch"] for row in rows]
    curves = {name: [finite(row.get(term)) for row in rows] for term, name in LOSS_TERMS.items()}
    curves = {name: curve for name, curve in curves.items() if any(curve)}
    sizes = [value for curve in curves.values() for value in curve if value is not None]
    # Terms differ by orders of magnitude; a logarithm shows all of them, if none is 0 or negative.
    wide = bool(sizes) and min(sizes) > 0 and max(sizes) > 30 * min(sizes)
    traces = [line(name, epochs, curve, i) for i, (name, curve) in enumerate(curves.items())]
    scale = {"type": "log"} if wide else {}
    return figure(traces, "epoch", "loss (log scale)" if wide else "loss", yaxis=scale, **_best_mark(history))


def _best_mark(history: Sequence[EpochRow]) -> dict[str, Any]:
    best = best_row(history)
    if best is None:
        return {}
    epoch = history[best]["epoch"]
    return upright(epoch, f" kept: {epoch:,} ", on_left=best > len(history) / 2, at="bottom")
