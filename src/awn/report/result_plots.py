"""Plots of results: score against size, confusion matrix, residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from awn.basics.thin import thin
from awn.report.data import Confusion, ReportData, Residuals
from awn.report.figure import Figure, figure, finite, graph_objects, line, text
from awn.report.markup import milliseconds, number

_MOST_ROWS = 2000  # of a scatter plot
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
    """Predicted over actual values, with the diagonal of perfect predictions."""
    rows = drawn_pairs(residuals)
    ends = [value for row in rows for value in row]
    diagonal = [min(ends), max(ends)] if ends else []
    points = _dots([actual for actual, _ in rows], [predicted for _, predicted in rows])
    ideal = line("as it should be", diagonal, diagonal, "var(--soft)", mode="lines", line={"dash": "dash", "width": 1})
    return figure([points, ideal], "actual", "predicted", showlegend=False, hovermode="closest")


def residual_plot(residuals: Residuals) -> Figure:
    """Residuals (actual − predicted) over predicted values."""
    rows = drawn_pairs(residuals)
    points = _dots([predicted for _, predicted in rows], [actual - predicted for actual, predicted in rows])
    zero = {"zeroline": True, "zerolinecolor": "var(--soft)", "zerolinewidth": 1.5}
    return figure([points], "predicted", "actual − predicted", showlegend=False, hovermode="closest", yaxis=zero)


def drawn_pairs(residuals: Residuals) -> list[tuple[float, float]]:
    """The rows to draw, actual and predicted: all finite ones, or evenly spaced ones."""
    pairs = list(zip(map(finite, residuals.actual), map(finite, residuals.predicted), strict=True))
    whole = [(actual, predicted) for actual, predicted in pairs if actual is not None and predicted is not None]
    return [whole[place] for place in thin(len(whole), _MOST_ROWS)]


def _dots(x: Sequence[float], y: Sequence[float]) -> Any:
    marker = {"size": 5, "color": "var(--c0)", "opacity": 0.5}
    return graph_objects().Scatter(
        x=x,
        y=[finite(value) for value in y],
        mode="markers",
        marker=marker,
        hovertemplate="%{x:.4g}, %{y:.4g}<extra></extra>",
    )
