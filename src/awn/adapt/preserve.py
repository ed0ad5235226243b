"""A trained model's weights, sorted and divided by the importance, so that it computes what it computed before."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from awn.core.axis import Axis
from awn.core.groups import WidthGroup

_Norm = nn.modules.batchnorm._BatchNorm


def preserve_(groups: Sequence[WidthGroup]) -> None:
    """Sort every layer's units by how much they count, and divide the weights that read them by their importance.

    The model then computes what it computed before, and its last units are those that are missed the least.
    """
    with torch.no_grad():
        # All orders come first: dividing the weights that read one layer changes those that make the next one.
        orders = [unit_strength(group).argsort(descending=True, stable=True) for group in groups]
        for group, order in zip(groups, orders, strict=True):
            importance = group.width.importance().detach()
            for axis in group.axes:
                entries = _entries(order, axis.repeat)
                axis.tensor.copy_(axis.tensor.index_select(axis.dim, entries))
                if axis.role == "consumer":
                    axis.tensor.div_(_along(importance.repeat_interleave(axis.repeat), axis).to(axis.tensor.dtype))


def unit_strength(group: WidthGroup) -> Tensor:
    """How much each unit counts: the norm of the weights that make it, times the norm of those that read it.

    After a batch norm the size of what makes a unit no longer matters: its own scale stands in for it.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(3), block=1)
    >>> unit_strength(awn.advanced.find_groups(model)[0]).shape
    torch.Size([3])
    """
    scales = [axis for axis in group.axes if isinstance(axis.module, _Norm) and axis.name == "weight"]
    makers = [axis for axis in group.axes if axis.role == "producer" and axis.fill is None and axis.tensor.dim() > 1]
    made = sum(_squares(axis) for axis in scales or makers)
    read = sum(_squares(axis) for axis in group.consumers)
    return torch.as_tensor(made * read).sqrt()


def _squares(axis: Axis) -> Tensor:
    """The sum of squares of each unit's entries."""
    by_entry = axis.tensor.detach().double().movedim(axis.dim, 0).flatten(1 if axis.tensor.dim() > 1 else 0)
    squares = by_entry.square()
    summed = squares.sum(1) if squares.dim() > 1 else squares
    return summed.view(-1, axis.repeat).sum(1)


def _entries(order: Tensor, repeat: int) -> Tensor:
    """The entries of units in a new order, `repeat` side by side for each."""
    return (order[:, None] * repeat + torch.arange(repeat, device=order.device)).flatten()


def _along(values: Tensor, axis: Axis) -> Tensor:
    return values.view([-1 if dim == axis.dim else 1 for dim in range(axis.tensor.dim())])
