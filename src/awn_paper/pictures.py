"""Pictures: the plots of the experiments as SVG or PNG files, and as figures of the HTML page."""

from __future__ import annotations

import io
from typing import Any, Literal

from awn.basics.extra import needs_extra
from awn.report.figure import Figure, band, figure, line
from awn_paper.show import Plot

Format = Literal["svg", "png"]


def picture(plot: Plot, format: Format = "svg") -> bytes:
    """A plot as the content of a picture file; the same plot gives the same bytes."""
    with needs_extra("drawing pictures needs matplotlib", "paper", "matplotlib"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "awn", "svg.fonttype": "none", "font.size": 9}):
        canvas = Canvas(figsize=(5.2, 3.2))
        FigureCanvasAgg(canvas)
        axes: Any = canvas.add_subplot()
        for series in plot.series:
            (drawn,) = axes.plot(series.x, series.y, label=series.name, linewidth=1.4)
            if series.low is not None and series.high is not None:
                axes.fill_between(series.x, series.low, series.high, color=drawn.get_color(), alpha=0.18, linewidth=0)
        axes.set(xlabel=plot.x, ylabel=plot.y, title=plot.title, yscale="log" if plot.log else "linear")
        axes.spines[["top", "right"]].set_visible(False)
        if len(plot.series) > 1:
            axes.legend(frameon=False, fontsize=8)
        file = io.BytesIO()
        canvas.savefig(
            file, format=format, dpi=150, bbox_inches="tight", metadata={"Date": None} if format == "svg" else None
        )
    return file.getvalue()


def interactive(plot: Plot) -> Figure:
    """A plot for the HTML page."""
    traces = []
    for place, series in enumerate(plot.series):
        if series.low is not None and series.high is not None:
            edges = band(series.name, series.x, series.low, series.high)
            traces += [edge.update(showlegend=False) for edge in edges]
        traces.append(line(series.name, series.x, series.y, place))
    several = len(plot.series) > 1
    scale = {"type": "log"} if plot.log else {}
    return figure(traces, plot.x, plot.y, showlegend=several, yaxis=scale)
