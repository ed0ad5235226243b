"""Plots of results: score against size, confusion matrix, residuals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from awn.report.data import Confusion, ReportData, Residuals
from awn.report.figure import Figure, figure, finite, graph_objects, line, text
from awn.report.markup import milliseconds, number

_MOST_DOTS = 2000  # more rows are drawn as a density
_CELLS = 60  # of a density, in either direction
_MOST_NUMBERED_CLASSES = 12  # above it, numbers no longer fit into the cells of a confusion matrix
_MOST_NAMED_CLASSES = 20  # above it, names no longer fit beside them


def tradeoff_plot(data: ReportData) -> Figure:
    """The score over the parameters of a truncation, with a marker that the slider moves: the last trace."""
    points = sorted(data.truncation, key=lambda point: point.keep)
    chosen = graph_objects().Scatter(
        x=[points[-1].parameters],
        y=[finite(points[-1].score)],
        name="chosen",
        mode="markers",
        hoverinfo="skip",
        marker={"size": 15, "color": "var(--c1)", "line": {"color": "var(--card)", "width": 2}},
    )
    curve = line(
        "truncated",
        [point.parameters for point in points],
        [point.score for point in points],
        0,
        customdata=[[f"{point.keep:.0%}", milliseconds(point.latency_ms)] for point in points],
        hovertemplate="keep %{customdata[0]}: %{y:.4g}<br>%{x:,} parameters, %{customdata[1]}<extra></extra>",
    )
    return figure(
        [curve, chosen],
        "parameters",
        data.score_name,
        showlegend=False,
        hovermode="closest",
        xaxis={"rangemode": "tozero"},
    )


def confusion_plot(confusion: Confusion) -> Figure:
    """Counts by actual and predicted class, each row coloured by its shares."""
    places = list(range(len(confusion.labels)))
    ticks = [text(label if len(label) <= 14 else label[:13] + "…") for label in confusion.labels]
    few = len(places) <= _MOST_NUMBERED_CLASSES
    shares = [[count / (sum(row) or 1) for count in row] for row in confusion.counts]
    names = [text(label) for label in confusion.labels]
    heat = graph_objects().Heatmap(
        z=[[finite(share) for share in row] for row in shares],
        zmin=0,
        zmax=1,
        text=[[number(count) for count in row] for row in confusion.counts],
        texttemplate="%{text}" if few else None,
        customdata=[[[actual, predicted] for predicted in names] for actual in names],
        hovertemplate="actual %{customdata[0]}, predicted %{customdata[1]}<br>%{text} rows, %{z:.1%}<extra></extra>",
        colorscale=[[0, "var(--heat-low)"], [1, "var(--heat-high)"]],
        colorbar={"tickformat": ".0%", "thickness": 12, "outlinewidth": 0, "title": {"text": ""}},
        xgap=2 if few else 0,
        ygap=2 if few else 0,
    )
    named: dict[str, Any] = {"tickvals": places, "ticktext": ticks}
    if len(places) > _MOST_NAMED_CLASSES:
        named = {"showticklabels": False, "ticks": ""}
    still = {"showgrid": False, "zeroline": False, **named}
    down = {"autorange": "reversed", **still}
    return figure([heat], "predicted", "actual", xaxis=still, yaxis=down, hovermode="closest")


def predicted_plot(residuals: Residuals) -> Figure:
    """Predicted over actual values of all rows, with the diagonal of perfect predictions."""
    rows = finite_pairs(residuals)
    ends = [value for row in rows for value in row]
    diagonal = [min(ends), max(ends)] if ends else []
    points = _cloud([actual for actual, _ in rows], [predicted for _, predicted in rows])
    ideal = line("perfect", diagonal, diagonal, "var(--soft)", mode="lines", line={"dash": "dash", "width": 1})
    return figure([points, ideal], "actual", "predicted", showlegend=False, hovermode="closest")


def residual_plot(residuals: Residuals) -> Figure:
    """Residuals (actual − predicted) over predicted values of all rows."""
    rows = finite_pairs(residuals)
    points = _cloud([predicted for _, predicted in rows], [actual - predicted for actual, predicted in rows])
    zero = {"zeroline": True, "zerolinecolor": "var(--soft)", "zerolinewidth": 1.5}
    return figure([points], "predicted", "actual − predicted", showlegend=False, hovermode="closest", yaxis=zero)


def is_dense(residuals: Residuals) -> bool:
    """Whether there are so many rows that they are drawn as a density."""
    return len(residuals.actual) > _MOST_DOTS


def finite_pairs(residuals: Residuals) -> list[tuple[float, float]]:
    """Actual and predicted values where both are finite."""
    pairs = zip(map(finite, residuals.actual), map(finite, residuals.predicted), strict=True)
    return [(actual, predicted) for actual, predicted in pairs if actual is not None and predicted is not None]


def _cloud(x: Sequence[float], y: Sequence[float]) -> Any:
    """A dot for each row, or the number of rows in each cell of a grid if they are many."""
    if len(x) > _MOST_DOTS:
        return _density(x, y)
    marker = {"size": 5, "color": "var(--c0)", "opacity": 0.5}
    return graph_objects().Scatter(
        x=x,
        y=[finite(value) for value in y],
        mode="markers",
        marker=marker,
        hovertemplate="%{x:.4g}, %{y:.4g}<extra></extra>",
    )


def _density(x: Sequence[float], y: Sequence[float]) -> Any:
    counts = [[0] * _CELLS for _ in range(_CELLS)]
    places = zip(_cell_places(x), _cell_places(y), strict=True)
    for across, up in places:
        counts[up][across] += 1
    return graph_objects().Heatmap(
        x=_cell_middles(x),
        y=_cell_middles(y),
        # The logarithm, since most cells hold few rows; a cell without rows stays empty.
        z=[[finite(math.log10(count)) if count else None for count in row] for row in counts],
        text=[[f"{count:,}" for count in row] for row in counts],
        colorscale=[[0, "var(--heat-low)"], [1, "var(--heat-high)"]],
        showscale=False,
        hovertemplate="%{x:.4g}, %{y:.4g}: %{text} rows<extra></extra>",
    )


def _cell_places(values: Sequence[float]) -> list[int]:
    low, high = min(values), max(values)
    size = (high - low) / _CELLS or 1.0
    return [min(int((value - low) / size), _CELLS - 1) for value in values]


def _cell_middles(values: Sequence[float]) -> list[float | int | None]:
    low, high = min(values), max(values)
    size = (high - low) / _CELLS or 1.0
    return [finite(low + (place + 0.5) * size) for place in range(_CELLS)]
