"""Shared parts of all figures: plotly, colours that follow the page, and axes.

Colours are names of CSS variables, such as var(--c0): the page puts in the ones of its light, dark or print scheme.
"""

from __future__ import annotations

import functools
import html
import math
import numbers
import re
from collections.abc import Iterable, Sequence
from typing import Any

from awn.basics.extra import needs_extra
from awn.basics.plain import short

Figure = dict[str, Any]
Figures = dict[str, Figure]  # by the key of their place in the page

MOST_POINTS = 1000  # of a curve over epochs
MOST_UNITS = 400  # of a curve over units, whose plots are small
MOST_LINES = 12  # in one plot, or small plots beside each other
_COLOURS = 7
_DASHES = ("solid", "dot", "dash", "dashdot", "longdash")


def graph_objects() -> Any:
    """Plotly's `graph_objects`, or an error that names the extra to install."""
    with needs_extra("a report needs plotly, which is not installed", "tabular", "plotly"):
        from plotly import graph_objects
    return graph_objects


def plotly_js() -> str:
    """The JavaScript that draws the figures in the browser."""
    graph_objects()
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@functools.cache
def plotly_style_ids() -> list[str]:
    """The ids of style elements that plotly.js adds for maps, unless elements with these ids are there already."""
    return re.findall(
        r'if\(!document\.getElementById\("(\w+)"\)\)\{var \w+=document\.createElement\("style"\)', plotly_js()
    )


def figure(traces: Sequence[Any], x: str = "", y: str = "", **layout: Any) -> Figure:
    """A figure for plotly.js, with axis titles and the colours of the page."""
    axis = {
        "gridcolor": "var(--grid)",
        "zerolinecolor": "var(--grid)",
        "linecolor": "var(--axis)",
        "tickcolor": "var(--axis)",
        "automargin": True,
    }
    common: dict[str, Any] = {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "var(--ink)"},
        "margin": {"l": 8, "r": 8, "t": 12, "b": 8},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hoverlabel": {"bgcolor": "var(--card)", "bordercolor": "var(--axis)", "font": {"color": "var(--ink)"}},
        "hovermode": "x unified",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "var(--axis)", "activecolor": "var(--ink)"},
    }
    own_x, own_y = layout.pop("xaxis", {}), layout.pop("yaxis", {})
    common["xaxis"] = {**axis, "title": {"text": x, "standoff": 8}, "showgrid": False, "ticks": "outside", **own_x}
    common["yaxis"] = {**axis, "title": {"text": text(y), "standoff": 8}, **own_y}
    made: Figure = graph_objects().Figure(data=traces, layout={**common, **layout}).to_plotly_json()
    return made


def line(name: str, x: Sequence[Any], y: Iterable[Any], colour: int | str = 0, **options: Any) -> Any:
    """A curve; after the last colour, the colours repeat with another dash."""
    style: dict[str, Any] = {"width": 2}
    if isinstance(colour, str):
        style["color"] = colour
    else:
        style |= {"color": f"var(--c{colour % _COLOURS})", "dash": _DASHES[colour // _COLOURS % len(_DASHES)]}
    style |= options.pop("line", {})
    few = {"mode": "lines+markers", "marker": {"size": 5}} if len(x) <= 30 else {"mode": "lines"}
    return graph_objects().Scatter(
        x=list(x), y=[finite(value) for value in y], name=text(name), line=style, **{**few, **options}
    )


def band(name: str, x: Sequence[Any], low: Iterable[Any], high: Iterable[Any]) -> list[Any]:
    """The area between two curves, in one legend entry."""
    edge: dict[str, Any] = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": "band"}
    return [
        line(name, x, low, "var(--band)", showlegend=False, **edge),
        line(name, x, high, "var(--band)", fill="tonexty", fillcolor="var(--band)", **edge),
    ]


def upright(x: float, label: str, *, on_left: bool, at: str = "top") -> dict[str, Any]:
    """Layout entries for a dashed vertical line with a label at its top or bottom."""
    mark = {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1}
    return {
        "shapes": [{**mark, "line": {"color": "var(--soft)", "width": 1.5, "dash": "dash"}}],
        "annotations": [
            {
                "xref": "x",
                "yref": "paper",
                "x": x,
                "y": 1 if at == "top" else 0,
                "xanchor": "right" if on_left else "left",
                "yanchor": at,
                "text": text(label),
                "showarrow": False,
                "font": {"color": "var(--soft)", "size": 11},
            }
        ],
    }


def text(words: str) -> str:
    """Words as they are, where plotly would otherwise read tags in them.

    >>> text("<b>bold</b>")
    '&lt;b&gt;bold&lt;/b&gt;'
    """
    return html.escape(str(words), quote=False)


def finite(value: Any) -> float | int | None:
    """A rounded number to embed; None, a gap in the curve, if it is not finite.

    >>> finite(0.123456789), finite(float("nan")), finite(None), finite(12)
    (0.123457, None, None, 12)
    """
    if value is None or not math.isfinite(value):
        return None
    return int(value) if isinstance(value, numbers.Integral) else short(float(value), 6)
