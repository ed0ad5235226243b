"""Prefixes of a layer's units, drawn at random for ordered training.

A draw is a function of its number alone. A width keeps that number with its state, so all layers of a model, all ranks
and a resumed run draw the same sizes, and nobody else's random numbers change.
"""

from __future__ import annotations

import random
from functools import lru_cache


def prefix_units(units: int, share: float, draw: int) -> int:
    """The units of the prefix that a draw gives a layer of `units` units; all of them in 1 − `share` of the draws.

    Sizes are log-uniform, units^u with u between 0 and 1, so that small prefixes are trained as often as large ones.
    Layers are cut by the same u.

    >>> [prefix_units(128, 1.0, draw) for draw in range(8)]
    [40, 61, 99, 14, 2, 37, 54, 2]
    >>> [prefix_units(128, 0.0, draw) for draw in range(3)]
    [128, 128, 128]
    """
    chance, exponent = _numbers(draw)
    return max(1, round(units**exponent)) if chance < share else units


@lru_cache(maxsize=8)
def _numbers(draw: int) -> tuple[float, float]:
    """Two uniform numbers."""
    generator = random.Random(draw)
    return generator.random(), generator.random()
