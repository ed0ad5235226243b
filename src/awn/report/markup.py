"""Pieces of HTML. Only this file escapes text that comes from data."""

from __future__ import annotations

import base64
import hashlib
import html
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Any


@dataclass(frozen=True)
class Section:
    """A section of the page: a heading, a sentence that explains it, and HTML."""

    key: str
    heading: str
    says: str
    body: str

    def __str__(self) -> str:
        says = f"<p>{escape(self.says)}</p>" if self.says else ""
        return (
            f'<section id="{self.key}" aria-labelledby="{self.key}-heading">'
            f'<h2 id="{self.key}-heading">{escape(self.heading)}</h2>{says}{self.body}</section>'
        )


def escape(words: Any) -> str:
    """Words as they are, where HTML would otherwise read tags in them.

    >>> escape("<script>")
    '&lt;script&gt;'
    """
    return html.escape(str(words))


def number(value: Any) -> str:
    """A value in readable form.

    >>> [number(value) for value in (12345, 0.98765, 12345.678, 1.5e-7, True, None, float("inf"), "text")]
    ['12,345', '0.9877', '12,346', '1.5e-07', 'yes', '–', 'inf', 'text']
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}"
    if not isinstance(value, numbers.Real):
        return str(value)
    value = float(value)
    if math.isfinite(value) and abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3e}"
    return f"{value:.4g}"


def seconds(value: float | None) -> str:
    """A duration in seconds.

    >>> seconds(12.34), seconds(0.567), seconds(0.0001), seconds(None)
    ('12 s', '0.57 s', '< 0.01 s', '–')
    """
    if value is None:
        return "–"
    return f"{value:.0f} s" if value >= 10 else f"{value:.2f} s" if value >= 0.01 else "< 0.01 s"


def milliseconds(value: float) -> str:
    """A measured duration, to three significant digits.

    >>> milliseconds(0.58123)
    '0.581 ms'
    """
    return f"{number(float(f'{value:.3g}'))} ms"


def packaged(name: str) -> str:
    """The content of a text file in this folder."""
    return resources.files("awn.report").joinpath(name).read_text(encoding="utf-8")


def fill(name: str, **pieces: Any) -> str:
    """A template in this folder, filled with pieces of HTML."""
    return Template(packaged(name)).substitute(pieces)


def policy_hash(content: str) -> str:
    """The source in a security policy that allows an element with this content alone.

    >>> policy_hash("")
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def cards(headline: Iterable[tuple[str, Any]]) -> str:
    """The key figures, each with its label."""
    pairs = (f"<div><dt>{escape(label)}</dt><dd>{escape(number(value))}</dd></div>" for label, value in headline)
    return f'<dl class="cards">{"".join(pairs)}</dl>'


def plot(key: str, says: str, caption: str = "") -> str:
    """The placeholder in which the page's script draws the figure of a key."""
    head = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure>{head}<div class="plot" data-figure="{escape(key)}" role="img" aria-label="{escape(says)}"></div>'
        "</figure>"
    )


def plots(items: Sequence[str]) -> str:
    """Plots side by side, as many as fit the width of the page."""
    return f'<div class="plots">{"".join(items)}</div>'


def chooser(label: str, says: str, options: Mapping[str, str]) -> str:
    """One plot with a list that selects its figure: for each key, the text in the list."""
    first = next(iter(options))
    entries = "".join(f'<option value="{escape(key)}">{escape(words)}</option>' for key, words in options.items())
    select = f"<select>{entries}</select>"
    return f'<label class="chooser">{escape(label)} {select}</label>{plot(first, says)}'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], label: str) -> str:
    """A table whose first column names its rows; it scrolls if it is too wide for the page."""
    return raw_table(head, [[escape(number(value)) for value in row] for row in rows], label)


def raw_table(head: Sequence[str], rows: Iterable[Sequence[str]], label: str) -> str:
    """A table like that of `table`, with cells of HTML."""
    top = "".join(f'<th scope="col">{escape(words)}</th>' for words in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">'
        f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def items(entries: Iterable[Any]) -> str:
    """A list of sentences."""
    return "<ul>" + "".join(f"<li>{escape(entry)}</li>" for entry in entries) + "</ul>"


def interval(low: float, high: float) -> str:
    """The ends of an interval.

    >>> interval(0.91234, 0.95), interval(math.nan, math.nan)
    ('0.912 to 0.950', '–')
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return "–"
    small = max(abs(low), abs(high)) < 10
    return f"{low:.3f} to {high:.3f}" if small else f"{number(low)} to {number(high)}"


def bar(share: float) -> str:
    """A bar of some share of its full length, as an SVG: styles in attributes are forbidden in the page.

    >>> bar(0.5)
    '<svg class="meter" ... aria-hidden="true"><rect width="50" height="8"/></svg>'
    """
    return (
        '<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{100 * share:.3g}" height="8"/></svg>'
    )


def histogram(counts: Sequence[int], label: str) -> str:
    """A small histogram as an SVG, with a text that says its range."""
    most, wide = max(counts) or 1, 100 / len(counts)
    bars = "".join(
        f'<rect x="{place * wide:.4g}" y="{30 - 30 * count / most:.3g}" width="{0.86 * wide:.4g}" '
        f'height="{30 * count / most:.3g}"/>'
        for place, count in enumerate(counts)
    )
    return (
        f'<svg class="histogram" viewBox="0 0 100 30" preserveAspectRatio="none" aria-hidden="true">{bars}</svg>'
        f"<small>{escape(label)}</small>"
    )
