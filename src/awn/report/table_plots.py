"""Plots of a report on a table: score against size, models with intervals, dependence on a column, calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from awn.report.figure import Figure, band, figure, finite, graph_objects, line, text, upright
from awn.report.markup import interval, number
from awn.report.table_data import Dependence, Leader, SizeCurve

_BESIDE = 1.07  # by which a point that would hide another is moved to the right
_TICKS = [step * 10**power for power in range(6) for step in (1, 2, 5)]


def size_plot(curve: SizeCurve, score_name: str) -> Figure:
    """Score against size: the curve with its interval, the kept model, and other models as points or lines."""
    points = [point for point in curve.points if point.units]
    units, final = [point.units for point in points], curve.final
    traces = [
        *band("95 % interval", units, [point.low for point in points], [point.high for point in points]),
        line(
            "cut to a size",
            units,
            [point.score for point in points],
            0,
            customdata=[number(point.parameters) for point in points],
            hovertemplate="%{x} units: %{y:.4f}<br>%{customdata} parameters<extra></extra>",
        ),
    ]
    across = [min(unit for unit in units if unit), max(unit for unit in units if unit)]
    for place, other in enumerate(curve.others, start=2):
        if other.units is None:  # boosting, for example
            traces += [_level(other, across, place), _point(other, across[1] * _BESIDE**place, place, "circle")]
        else:
            traces.append(_point(other, other.units * _BESIDE, place, "diamond"))
    if final is not None and final.units:
        kept_point = Leader("kept", final.score, final.low, final.high)
        traces.append(_point(kept_point, final.units, 1, "star"))
    kept = curve.points[curve.chosen].units or 1
    late = kept * kept > across[0] * across[1]  # in the right half of a logarithmic axis
    mark = upright(kept, f" {kept:,} units ", on_left=late, at="bottom")
    mark["annotations"][0]["x"] = math.log10(kept)  # annotations on a logarithmic axis have the logarithm
    return figure(
        traces,
        "units (log scale)",
        score_name,
        hovermode="closest",
        xaxis={"type": "log", "tickvals": _TICKS, "ticktext": [f"{tick:,}" for tick in _TICKS]},
        **mark,
    )


def _point(one: Leader, units: float, colour: int, symbol: str) -> Any:
    return graph_objects().Scatter(
        x=[finite(units)],
        y=[finite(one.score)],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [finite(one.high - one.score)],
            "arrayminus": [finite(one.score - one.low)],
            "thickness": 1.5,
            "color": f"var(--c{colour})",
        },
        name=text(one.name),
        mode="markers",
        marker={"size": 7 if symbol == "circle" else 12, "symbol": symbol, "color": f"var(--c{colour})"},
        showlegend=symbol != "circle",
        hovertemplate=f"{text(one.name)}: {number(one.score)}, {interval(one.low, one.high)}<extra></extra>",
    )


def _level(one: Leader, across: Sequence[Any], colour: int) -> Any:
    return line(
        one.name,
        across,
        [one.score, one.score],
        colour,
        mode="lines",
        line={"dash": "dash", "width": 1.5},
        hovertemplate=f"{text(one.name)}: {number(one.score)}<extra></extra>",
    )


def leader_plot(leaders: Sequence[Leader], score_name: str) -> Figure:
    """The models from the best down, each with its interval."""
    shown = list(reversed(leaders))
    dots = graph_objects().Scatter(
        x=[finite(one.score) for one in shown],
        y=[text(one.name) for one in shown],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [finite(one.high - one.score) for one in shown],
            "arrayminus": [finite(one.score - one.low) for one in shown],
            "color": "var(--soft)",
            "thickness": 1.5,
        },
        mode="markers",
        marker={"size": 11, "color": ["var(--c1)" if one.name == "adaptive" else "var(--c0)" for one in shown]},
        hovertemplate="%{y}: %{x:.4f}<extra></extra>",
    )
    return figure([dots], score_name, "", hovermode="closest", showlegend=False, yaxis={"ticks": "", "showgrid": False})


def dependence_plot(one: Dependence, y: str) -> Figure:
    """The mean prediction by the value of a column: a curve for numbers and dates, points for categories."""
    curves = list(one.curves.items())
    traces = [
        line(name, [text(str(value)) if isinstance(value, str) else value for value in one.values], curve, place)
        for place, (name, curve) in enumerate(curves)
    ]
    if any(isinstance(value, str) for value in one.values):
        for trace in traces:
            trace.update(mode="markers", marker={"size": 10})
    return figure(traces, one.column, y, showlegend=len(curves) > 1, xaxis={"title": {"text": ""}})


def calibration_plot(calibration: Mapping[str, Any]) -> Figure:
    """How often predictions were right, by the probability that they had."""
    sizes = calibration["rows"]
    points = graph_objects().Scatter(
        x=[finite(value) for value in calibration["confidence"]],
        y=[finite(value) for value in calibration["accuracy"]],
        customdata=sizes,
        mode="lines+markers",
        marker={"size": 8, "color": "var(--c0)"},
        line={"color": "var(--c0)", "width": 2},
        hovertemplate="probability %{x:.3f}, right %{y:.3f}<br>%{customdata:,} rows<extra></extra>",
    )
    low = min([0.5, *calibration["confidence"], *calibration["accuracy"]])
    ideal = line("perfect", [low, 1], [low, 1], "var(--soft)", mode="lines", line={"dash": "dash", "width": 1})
    return figure(
        [points, ideal],
        "probability of the predicted class",
        "share that was right",
        showlegend=False,
        hovermode="closest",
    )
