"""Places: where the entries of units lie along a dimension, for any number of units."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from awn.core.axis import Blocks
from awn.core.width import Width

#: A number for each width: its units, or the slots for them.
Count = Callable[[Width], int]


class Span(NamedTuple):
    """A block with the place of its first entry: `entries` for each unit of `width`, or in all if that is None."""

    width: Width | None
    entries: int
    start: int

    def length(self, count: Count) -> int:
        """The entries of the block."""
        return self.entries if self.width is None else self.entries * count(self.width)


class Part(NamedTuple):
    """A view of a part of a tensor, and for each governed dimension the width of its entries, None if fixed."""

    view: Tensor
    owners: Mapping[int, Width | None]


def capacity_of(width: Width) -> int:
    """The present capacity of a width."""
    return width.capacity


def units_of(width: Width) -> int:
    """The present number of units of a width."""
    return width.units


def spans(blocks: Blocks, count: Count = capacity_of) -> Iterator[Span]:
    """Where each block begins.

    >>> from awn import Exponential
    >>> width = Width(Exponential.for_units(4), block=1)
    >>> [(span.start, span.length(capacity_of)) for span in spans(((width, 2), (None, 3), (width, 1)))]
    [(0, 8), (8, 3), (11, 4)]
    """
    start = 0
    for width, entries in blocks:
        span = Span(width, entries, start)
        yield span
        start += span.length(count)


def extent(blocks: Blocks, count: Count = capacity_of) -> int:
    """The size of a dimension.

    >>> from awn import Exponential
    >>> extent(((Width(Exponential.for_units(4), block=1), 2), (None, 3)))
    11
    """
    return sum(entries if width is None else entries * count(width) for width, entries in blocks)


def active_entries(blocks: Blocks, active: Count = units_of, count: Count = capacity_of) -> Tensor:
    """The places of all entries but those of inert units, in order.

    >>> from awn import Exponential
    >>> width = Width(Exponential.for_units(2), block=4)
    >>> active_entries(((width, 1), (None, 2), (width, 1))).tolist()
    [0, 1, 4, 5, 6, 7]
    """
    return torch.cat([torch.arange(one.length(active)) + one.start for one in spans(blocks, count)])


def own_parts(tensor: Tensor, dim: int, blocks: Blocks, width: Width, count: Count = capacity_of) -> Iterator[Tensor]:
    """Views of the blocks of one width, each of `entries` per unit."""
    for span in spans(blocks, count):
        if span.width is width:
            yield tensor.narrow(dim, span.start, span.length(count))


def by_unit(entries: Tensor, blocks: Blocks, width: Width) -> Tensor:
    """The sum of a vector's entries for each slot of a width.

    >>> from awn import Exponential
    >>> width = Width(Exponential.for_units(2), block=1)
    >>> by_unit(torch.tensor([1.0, 2.0, 9.0, 3.0, 4.0]), ((width, 1), (None, 1), (width, 1)), width)
    tensor([4., 6.])
    """
    parts = [part.view(width.capacity, -1).sum(1) for part in own_parts(entries, 0, blocks, width)]
    return torch.stack(parts).sum(0)


def clear_units_(
    tensor: Tensor, dim: int, blocks: Blocks, width: Width, units: tuple[int, int], count: Count = capacity_of
) -> None:
    """Zero the slots of some units of a width, from the first to before the last, as far as the tensor has them."""
    first, last = units[0], min(units[1], count(width))
    if first < last:
        for span in spans(blocks, count):
            if span.width is width:
                tensor.narrow(dim, span.start + first * span.entries, (last - first) * span.entries).zero_()


def resized(tensor: Tensor, dim: int, blocks: Blocks, before: Count, after: Count) -> Tensor:
    """A tensor with room for another number of units along a dimension; new slots hold zeros.

    >>> from awn import Exponential
    >>> width = Width(Exponential.for_units(2), block=1)
    >>> resized(torch.arange(5.0), 0, ((width, 1), (None, 1), (width, 1)), lambda _: 2, lambda _: 3)
    tensor([0., 1., 0., 2., 3., 4., 0.])
    """
    pieces = []
    for span in spans(blocks, before):
        long = span.length(before), span.length(after)
        pieces.append(tensor.narrow(dim, span.start, min(long)))
        if long[1] > long[0]:
            shape = list(tensor.shape)
            shape[dim] = long[1] - long[0]
            pieces.append(tensor.new_zeros(shape))
    return torch.cat(pieces, dim)


def active_parts(
    tensor: Tensor, blocks: Mapping[int, Blocks], active: Count = units_of, count: Count = capacity_of
) -> Iterator[Part]:
    """Views that together are the active part of a tensor: one, unless a dimension has several blocks.

    >>> from awn import Exponential
    >>> width = Width(Exponential.for_units(2), block=4)
    >>> [part.view.tolist() for part in active_parts(torch.arange(9), {0: ((width, 1), (None, 1), (width, 1))})]
    [[0, 1], [4], [5, 6]]
    """
    for chosen in itertools.product(*(list(spans(found, count)) for found in blocks.values())):
        view = tensor
        for dim, span in zip(blocks, chosen, strict=True):
            view = view.narrow(dim, span.start, span.length(active))
        yield Part(view, {dim: span.width for dim, span in zip(blocks, chosen, strict=True)})
