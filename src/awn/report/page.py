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
from awn.report.figure import Figures, plotly_js, plotly_style_ids
from awn.report.markup import Section, cards, escape, fill, packaged, policy_hash
from awn.report.sections import run_sections
from awn.report.slider import slider_steps

# The only style that plotly sets as an attribute: that of a heat map.
_RENDERING = ("optimizeSpeed", "-moz-crisp-edges", "-o-crisp-edges", "-webkit-optimize-contrast", "optimize-contrast")
_PIXELATED = "".join(f"image-rendering: {way}; " for way in (*_RENDERING, "crisp-edges", "pixelated"))


def write_report(path: Path | str, data: ReportData) -> None:
    """Write the report of a run: one HTML file of about 2 MB that opens anywhere, without a network.

    >>> import tempfile
    >>> from awn.report import ReportData
    >>> path = Path(tempfile.mkdtemp()) / "report.html"
    >>> write_report(path, ReportData("adult.csv", "classification", "accuracy", headline=[("accuracy", 0.86)]))
    >>> path.read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    write_files({Path(path): report_content(data)})


def report_content(data: ReportData) -> bytes:
    """The content of the report of a run."""
    figures: Figures = {}
    sections = run_sections(data, figures)
    steps = slider_steps(data) if "tradeoff" in figures else []
    answer = f'<p class="answer">{escape(data.answer)}</p>' if data.answer else ""
    headline = answer + (cards(data.headline) if data.headline else "")
    return page_content(data.title, headline, sections, figures, steps)


def write_comparison(path: Path | str, runs: Sequence[ReportData], folders: Sequence[str] = ()) -> None:
    """Write a comparison of runs: a table of results, overlaid curves, and differing settings.

    `folders` are those of the runs, to be listed at the end.
    """
    write_files({Path(path): comparison_content(runs, folders)})


def comparison_content(runs: Sequence[ReportData], folders: Sequence[str] = ()) -> bytes:
    """The content of a comparison of runs."""
    if not runs:
        raise ArgumentError("there is no run to compare: give at least one.")
    figures: Figures = {}
    sections = comparison_sections(runs, figures, folders)
    return page_content(f"Comparison of {len(runs)} runs" if len(runs) > 1 else runs[0].title, "", sections, figures)


def write_page(path: Path | str, title: str, headline: str, sections: Sequence[Section], figures: Figures) -> None:
    """Write sections and their figures as one file."""
    write_files({Path(path): page_content(title, headline, sections, figures)})


def page_content(
    title: str,
    headline: str,
    sections: Sequence[Section],
    figures: Figures,
    steps: Sequence[dict[str, Any]] = (),
) -> bytes:
    """The content of a page. Its security policy allows this style and these two programs, by their hashes."""
    links = "".join(f'<li><a href="#{part.key}">{escape(part.heading)}</a></li>' for part in sections)
    style, program = f"\n{packaged('page.css')}\n", f"\n{packaged('page.js')}\n"
    page = fill(
        "page.html",
        title=escape(title),
        headline=headline,
        links=links,
        sections="\n".join(map(str, sections)),
        styles=f"{policy_hash(style)} {policy_hash('')}",  # plotly fills an empty style element, rule by rule
        attributes=f"'unsafe-hashes' {policy_hash('')} {policy_hash(_PIXELATED)}",
        scripts=f"{policy_hash(program)} {_plotly_hash()}",
        style=style,
        program=program,
        content=_embedded({"figures": figures, "steps": list(steps)}),
        plotly=_packed_plotly(),
        # In place of styles for maps, which are not drawn: the policy would refuse them.
        unstyled="".join(f'<template id="{name}"></template>' for name in plotly_style_ids()),
    )
    return page.encode("utf-8", "replace")


@functools.cache
def _plotly_hash() -> str:
    return policy_hash(plotly_js())


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
