"""Plots over a layer's units: importance and activations."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from awn.basics.thin import thin
from awn.report.data import LayerCurve
from awn.report.figure import MOST_UNITS, Figure, band, figure, line, upright


def importance_plot(layer: LayerCurve) -> Figure:
    """A layer's importance by unit: units within the width in colour, the tail beyond it in grey."""
    units = thin(len(layer.importance), MOST_UNITS, [place for place in (layer.units - 1, layer.units) if place >= 0])
    units = [unit for unit in units if unit < len(layer.importance)]
    kept = [unit for unit in units if unit < layer.units]
    tail = [unit for unit in units if unit >= layer.units]
    filled = {"fill": "tozeroy", "line": {"shape": "hvh"}, "showlegend": False}
    shown = "unit %{x}: %{y:.4g}<extra></extra>"
    traces = [
        line(name, part, [layer.importance[unit] for unit in part], ink, fillcolor=area, hovertemplate=shown, **filled)
        for name, part, ink, area in (
            ("kept", kept, "var(--c0)", "var(--band)"),
            ("cut", tail, "var(--soft)", "var(--tail)"),
        )
        if part
    ]
    late = layer.units > len(layer.importance) / 2
    cut = upright(layer.units - 0.5, f" {layer.units:,} units: {100 * layer.quantile:.3g}% ", on_left=late)
    return figure(traces, "unit", "importance", yaxis={"rangemode": "tozero"}, hovermode="closest", **cut)


def activation_plot(low: Sequence[float], mean: Sequence[float], high: Sequence[float]) -> Figure:
    """A layer's activations by unit: the range as a band, the mean as a line. In wide layers, units share a point."""
    step = max(1, -(-len(mean) // MOST_UNITS))
    starts = list(range(0, len(mean), step))
    lows = [min(low[i : i + step]) for i in starts]
    means = [statistics.fmean(mean[i : i + step]) for i in starts]
    highs = [max(high[i : i + step]) for i in starts]
    traces = [*band("range", starts, lows, highs), line("mean", starts, means, 0, mode="lines")]
    return figure(traces, "unit", "activation", showlegend=False)
