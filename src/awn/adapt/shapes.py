"""Where units lie after an operation that only moves or merges dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def after_reshape(before: Sequence[int], dim: int, after: Sequence[int]) -> tuple[int, bool] | None:
    """Where units along `dim` lie after a reshape: the dimension from the end, and whether others were merged into it.

    None where they no longer lie together, each with its entries side by side.

    >>> after_reshape((4, 8, 7, 7), 1, (4, 392))     # a flatten: 49 entries a unit
    (-1, True)
    >>> after_reshape((4, 10, 8), 2, (40, 8))        # tokens merged, units left alone
    (-1, False)
    >>> after_reshape((4, 10, 8), 2, (4, 80)) is None
    True
    """
    units, ahead = before[dim], math.prod(before[:dim])
    places = [place for place in range(len(after)) if math.prod(after[:place]) == ahead]
    fitting = [place for place in places if after[place] % units == 0 and (after[place] > 1 or units == 1)]
    if not fitting or units == 1:
        return None
    return fitting[0] - len(after), after[fitting[0]] != units


def after_reduction(dim: int, reduced: Sequence[int], keepdim: bool) -> int | None:
    """Where units lie once other dimensions are summed away; all are counted from the end. None if they are summed too.

    >>> after_reduction(-3, [-2, -1], keepdim=False)
    -1
    """
    if dim in reduced:
        return None
    return dim if keepdim else dim + sum(1 for other in reduced if other > dim)


def after_index(dim: int, rank: int, index: Sequence[Any]) -> int | None:
    """Where units lie after an index of numbers, slices, None and an ellipsis; None if it does not take all of them.

    >>> after_index(-1, 3, [slice(None), 0]), after_index(-2, 3, [slice(None), slice(None), -1])
    (-1, -1)
    >>> after_index(-1, 2, [slice(None), slice(None), None, None]), after_index(-1, 2, [..., 0])
    (-3, None)
    """
    if not all(isinstance(one, int | slice) or one is None or one is ... for one in index):
        return None
    named = sum(one is not None and one is not ... for one in index)
    rest = [slice(None)] * (rank - named)
    place = next((number for number, one in enumerate(index) if one is ...), len(index))
    listed = [*index[:place], *rest, *index[place + 1 :]]
    sources = [number for number, one in enumerate(listed) if one is not None]
    at = sources[rank + dim]
    if listed[at] != slice(None):
        return None
    return -1 - sum(not isinstance(one, int) for one in listed[at + 1 :])


def after_stack(dim: int, rank: int | None, new: int) -> int | None:
    """Where units lie once activations are stacked along a new dimension; None if that is not known.

    >>> after_stack(-1, 2, 1), after_stack(-1, 2, -1), after_stack(-1, None, 0), after_stack(-1, None, 1) is None
    (-1, -2, -1, True)
    """
    if new < 0:
        return dim - 1 if new > dim - 1 else dim
    if new == 0:
        return dim
    return None if rank is None else after_stack(dim, rank, new - rank - 1)


def from_end(dims: int | Sequence[int], rank: int | None) -> list[int] | None:
    """Dimensions counted from the end; None if that takes a number of dimensions which is not known.

    >>> from_end((2, 3), rank=4), from_end(-1, rank=None), from_end(1, rank=None)
    ([-2, -1], [-1], None)
    """
    listed = [dims] if isinstance(dims, int) else list(dims)
    if rank is None and any(dim >= 0 for dim in listed):
        return None
    return [dim if dim < 0 or rank is None else dim - rank for dim in listed]
