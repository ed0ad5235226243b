"""Moves: where units lie after an operation that sums up, orders or picks dimensions beside theirs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from torch import fx

from awn.adapt.shapes import after_index, after_reduction, from_end
from awn.adapt.spaces import Units


def reduced(node: fx.Node, name: str, value: Units) -> Units | None:
    """After a mean, a sum or the like over other dimensions; None if it may go over the units."""
    dims = _dims(node, value)
    # Of a variance, the third argument says something about the divisor, and not whether the dimension is kept.
    if not dims or value.flat or (len(node.args) > 2 and name == "var"):
        return None
    keepdim = bool(argument(node, 2, "keepdim", False))
    dim = after_reduction(value.dim, dims, keepdim)
    if dim is None:
        return None
    rank = value.rank if keepdim or value.rank is None else value.rank - len(dims)
    after = replace(value, dim=dim, rank=rank)
    return replace(after, rest=0.0) if name == "var" else after.stirred if name == "sum" else after


def goes_over_units(node: fx.Node, value: Units) -> bool:
    """Whether it is known that a reduction goes over the units."""
    dims = _dims(node, value)
    return dims is not None and (not dims or value.dim in dims)


def _dims(node: fx.Node, value: Units) -> list[int] | None:
    """The dimensions that a reduction goes over; of a variance, True or False in their place is about the divisor."""
    dims = argument(node, 1, "dim", ())
    return from_end(() if isinstance(dims, bool) or dims is None else dims, value.rank)


def reordered(node: fx.Node, name: str, value: Units) -> Units | None:
    """After a permutation or a transposition; None if it is not known where to."""
    dims = from_end(numbers_given(node), value.rank)
    if dims is not None and name == "permute":
        return replace(value, dim=dims.index(value.dim) - len(dims), rank=len(dims))
    if dims is not None and len(dims) == 2:
        swap = {dims[0]: dims[1], dims[1]: dims[0]}
        return replace(value, dim=swap.get(value.dim, value.dim))
    return None


def indexed(node: fx.Node, value: Units) -> Units | None:
    """After `x[:, -1]`, `x[:, :, None]` and their like; None if they do not take the units' own dimension whole."""
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    dim = None if value.rank is None else after_index(value.dim, value.rank, index)
    if dim is None or value.rank is None:
        return None
    gone, added = sum(isinstance(one, int) for one in index), sum(one is None for one in index)
    return replace(value, dim=dim, rank=value.rank - gone + added)


def argument(node: fx.Node, place: int, name: str, default: Any) -> Any:
    """What an operation is given, by place or by name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def numbers_given(node: fx.Node) -> list[Any]:
    """The numbers that a view, a reshape or a permute is given, in a list or one by one."""
    given = (*node.args[1:], *node.kwargs.values())
    return list(itertools.chain.from_iterable(size if isinstance(size, tuple | list) else [size] for size in given))
