"""The page: one HTML file that includes its style, script, figures and plotly.js."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from awn.errors import ArgumentError
from awn.files.write import write_files
from awn.report.comparison import comparison_sections
from awn.report.data import ReportData
from awn.report.figure import Figures, plotly_js
from awn.report.markup import Section, cards, escape, fill, packaged
from awn.report.sections import run_sections
from awn.report.slider import slider_steps


def write_report(path: Path | str, data: ReportData) -> None:
    """Write the report of a run: one HTML file of about 2 MB that opens anywhere, without a network.

    >>> import tempfile
    >>> from awn.report import ReportData
    >>> path = Path(tempfile.mkdtemp()) / "report.html"
    >>> write_report(path, ReportData("adult.csv", "classification", "accuracy", headline=[("accuracy", 0.86)]))
    >>> path.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    figures: Figures = {}
    sections = run_sections(data, figures)
    steps = slider_steps(data) if "tradeoff" in figures else []
    write_page(path, data.title, cards(data.headline) if data.headline else "", sections, figures, steps)


def write_comparison(path: Path | str, runs: Sequence[ReportData]) -> None:
    """Write a comparison of runs: a table of results, overlaid curves, and differing settings."""
    if not runs:
        raise ArgumentError("there is no run to compare: give at least one.")
    figures: Figures = {}
    sections = comparison_sections(runs, figures)
    write_page(path, f"Comparison of {len(runs)} runs" if len(runs) > 1 else runs[0].title, "", sections, figures)


def write_page(
    path: Path | str,
    title: str,
    headline: str,
    sections: Sequence[Section],
    figures: Figures,
    steps: Sequence[dict[str, Any]] = (),
) -> None:
    """Write sections and their figures as one file. `steps` are those of a slider."""
    links = "".join(f'<li><a href="#{part.key}">{escape(part.heading)}</a></li>' for part in sections)
    page = fill(
        "page.html",
        title=escape(title),
        headline=headline,
        links=links,
        sections="\n".join(map(str, sections)),
        style=packaged("page.css"),
        program=packaged("page.js"),
        content=_embedded({"figures": figures, "steps": list(steps)}),
        plotly=_packed_plotly(),
    )
    write_files({Path(path): page.encode("utf-8", "replace")})


def _embedded(content: Any) -> str:
    r"""JSON that may stand in a script element: nothing in it can end the element.

    >>> _embedded(["</script>"])
    '["\\u003c/script\\u003e"]'
    """
    plain = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@functools.cache
def _packed_plotly() -> str:
    """Compressed plotly.js, less than half its size; the page decompresses it before drawing."""
    return base64.b64encode(gzip.compress(plotly_js().encode(), 9, mtime=0)).decode()
