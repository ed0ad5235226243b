"""The truncation slider: the model at each fraction of its units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from awn.report.data import ReportData, TruncationPoint
from awn.report.figure import finite
from awn.report.markup import escape, fill, milliseconds, number, plot, table


def slider_steps(data: ReportData) -> list[dict[str, Any]]:
    """The content of the page at each position of the slider, from the smallest model to the whole."""
    points = _in_order(data)
    return [_step(point, points[-1].units, data.score_name) for point in points]


def slider(data: ReportData, says: str) -> str:
    """The slider, set to the whole model, with its key figures, and the same data as a table."""
    steps, points = slider_steps(data), _in_order(data)
    shown = ("keep", "score", "parameters", "latency", "says")
    layers = (
        f'<tr><th scope="row">{escape(name)}</th><td class="bar" aria-hidden="true"><i></i></td>'
        f"<td>{number(units)}</td></tr>"
        for name, units in points[-1].units.items()
    )
    head = ("keep", data.score_name, "parameters", "latency", "units")
    rows = [
        (step["keep"], point.score, point.parameters, step["latency"], sum(point.units.values()))
        for step, point in zip(reversed(steps), reversed(points), strict=True)
    ]
    return fill(
        "slider.html",
        last=len(points) - 1,
        lowest=steps[0]["keep"],
        highest=steps[-1]["keep"],
        score_name=escape(data.score_name),
        plot=plot("tradeoff", says),
        layers="".join(layers),
        table=table(head, rows, "Truncations"),
        **{name: escape(steps[-1][name]) for name in shown},
    )


def _in_order(data: ReportData) -> list[TruncationPoint]:
    return sorted(data.truncation, key=lambda point: point.keep)


def _step(point: TruncationPoint, whole: Mapping[str, int], score_name: str) -> dict[str, Any]:
    keep, latency = f"{point.keep:.0%}", milliseconds(point.latency_ms)
    score, parameters = number(point.score), number(point.parameters)
    return {
        "keep": keep,
        "score": score,
        "parameters": parameters,
        "latency": latency,
        "says": f"{keep} of the units: {score_name} {score}, {parameters} parameters, {latency}",
        "units": [[number(units), finite(units / max(1, whole[name]))] for name, units in point.units.items()],
        "x": point.parameters,
        "y": finite(point.score),
    }
