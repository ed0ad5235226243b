"""Thinning: evenly spaced positions of a long list, for curves that are drawn or saved."""

from __future__ import annotations

import math
from collections.abc import Iterable


def thin(count: int, most: int, also: Iterable[int] = ()) -> list[int]:
    """About `most` evenly spaced positions of 0 … count − 1, including the last and those in `also`.

    >>> thin(10, 4, also=[7])
    [0, 3, 6, 7, 9]
    """
    step = max(1, math.ceil(count / most))
    return sorted({*range(0, count, step), *also, *range(max(0, count - 1), count)})
