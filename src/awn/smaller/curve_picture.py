"""The curve of loss against size as an SVG picture, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 44
_BLUE, _RED, _GREY = "#3f51b5", "#c2452d", "#6b7280"


class Point(Protocol):
    """What the picture shows of a size: its units, its loss and the standard error of the loss."""

    @property
    def total_units(self) -> int:
        """The units of all layers together."""

    @property
    def loss(self) -> float:
        """The held-out loss."""

    @property
    def error(self) -> float:
        """The standard error of the loss."""


def draw_curve(curve: Sequence[Point], chosen: int) -> str:
    """An SVG of the held-out loss over the units, on a logarithmic axis, with a band of one standard error.

    Very small networks can be arbitrarily bad. The picture ends a few standard errors above the best loss, and starts
    with the largest network that is worse than that.
    """
    ordered = sorted(curve, key=lambda point: point.total_units)
    place = _Axes(ordered, curve[0])
    points = [point for point in ordered if point.total_units >= place.fewest]
    line = " ".join(f"{place.x(p.total_units):.1f},{place.y(p.loss):.1f}" for p in points)
    edge = [(p.total_units, p.loss + p.error) for p in points]
    edge += [(p.total_units, p.loss - p.error) for p in reversed(points)]
    band = " ".join(f"{place.x(units):.1f},{place.y(loss):.1f}" for units, loss in edge)
    best = curve[chosen]
    x, y = place.x(best.total_units), place.y(best.loss)
    above = place.y(best.loss + best.error) - 10
    anchor = "end" if x > 0.8 * WIDTH else "middle"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="18" font-weight="bold">Held-out loss against size</text>',
            *place.ticks(),
            f'<clipPath id="plot"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" '
            f'height="{HEIGHT - TOP - BOTTOM}"/></clipPath>',
            f'<g clip-path="url(#plot)"><polygon points="{band}" fill="{_BLUE}" fill-opacity="0.15"/>',
            f'<polyline points="{line}" fill="none" stroke="{_BLUE}" stroke-width="2"/></g>',
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_RED}"/>',
            f'<text x="{x:.1f}" y="{max(above, TOP + 12):.1f}" fill="{_RED}" text-anchor="{anchor}">'
            f"chosen: {best.total_units:,} units</text>",
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle" fill="{_GREY}">'
            "units of all layers, logarithmic; the band is one standard error</text>",
            "</svg>",
        ]
    )


class _Axes:
    """Where sizes and losses are in the picture."""

    def __init__(self, points: Sequence[Point], whole: Point) -> None:
        lowest = min(points, key=lambda point: point.loss)
        reach = max(5 * (whole.loss - lowest.loss), 3 * max(lowest.error, whole.error)) or abs(lowest.loss) or 1.0
        worst = max(point.loss + point.error for point in points)
        self.bottom = lowest.loss - max(lowest.error, 0.1 * reach)
        self.top = min(max(worst, lowest.loss + 0.1 * reach), lowest.loss + 2 * reach)
        outside = [point.total_units for point in points if point.loss > self.top]
        self.fewest = max(outside, default=points[0].total_units)
        self.most = max(points[-1].total_units, self.fewest + 1)

    def x(self, units: int) -> float:
        """The place of a number of units, on a logarithmic scale."""
        share = math.log(units / self.fewest) / math.log(self.most / self.fewest)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, loss: float) -> float:
        """The place of a loss, at most a picture's height outside."""
        share = (loss - self.bottom) / (self.top - self.bottom)
        return HEIGHT - BOTTOM - min(max(share, -1.0), 2.0) * (HEIGHT - TOP - BOTTOM)

    def ticks(self) -> list[str]:
        """Grid lines with their numbers."""
        drawn = []
        for step in range(5):
            loss = self.bottom + (self.top - self.bottom) * step / 4
            y = self.y(loss)
            drawn.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e7eb"/>')
            drawn.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{_GREY}">{loss:.3g}</text>')
        for units in _round_numbers(self.fewest, self.most):
            x = self.x(units)
            drawn.append(
                f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" fill="{_GREY}">{units:,}</text>'
            )
        return drawn


def _round_numbers(fewest: int, most: int) -> list[int]:
    """Round numbers from `fewest` to `most`, at least three if there are as many, and about even on a logarithmic axis.

    >>> _round_numbers(2, 300), _round_numbers(26, 98)
    ([2, 5, 10, 20, 50, 100, 200], [30, 40, 50, 60, 80])
    """
    powers = range(int(math.log10(fewest)), int(math.log10(most)) + 1)
    inside: list[int] = []
    for digits in ((1, 2, 5), (1, 2, 3, 4, 5, 6, 8)):
        inside = [digit * 10**power for power in powers for digit in digits if fewest <= digit * 10**power <= most]
        if len(inside) >= 3:
            break
    return inside if len(inside) < 9 else inside[:: math.ceil(len(inside) / 8)]
