"""Thinning: evenly spaced places of a long list, for curves that are drawn or kept."""

from __future__ import annotations

import math
from collections.abc import Iterable


def thin(count: int, most: int, also: Iterable[int] = ()) -> list[int]:
    """At most about `most` of the places 0 … count − 1, evenly spaced, the last and those in `also` among them.

    >>> thin(10, 4, also=[7])
    [0, 3, 6, 7, 9]
    """
    step = max(1, math.ceil(count / most))
    return sorted({*range(0, count, step), *also, *range(max(0, count - 1), count)})
