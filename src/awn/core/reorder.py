"""Reorder: put the units of a layer in another order, or keep some of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from awn.core.axis import Axis
from awn.core.groups import WidthGroup
from awn.core.places import own_parts


@torch.no_grad()
def reorder_(group: WidthGroup, order: Tensor, scale: Tensor) -> None:
    """Put the units `order` first, in that order, and multiply the weights that read them by `scale`.

    `order` may leave units out: the slots after the last are then zero.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(3), block=1)
    >>> first = model.hidden[0].weight[0].clone()
    >>> reorder_(awn.advanced.find_groups(model)[0], order=torch.tensor([2, 1, 0]), scale=torch.ones(3))
    >>> torch.equal(model.hidden[0].weight[2], first)
    True
    """
    for axis in group.axes:
        _reorder_(axis.tensor, axis, group, order, scale if axis.role == "consumer" else None)


@torch.no_grad()
def reorder_state_(group: WidthGroup, order: Tensor, optimizers: Sequence[Optimizer]) -> None:
    """Put an optimizer's state of the units `order` first, as `reorder_` does with their weights.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 1, importance=awn.Exponential.for_units(3), block=1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    >>> bias = model.hidden[0].bias
    >>> optimizer.state[bias]["momentum_buffer"] = torch.tensor([1.0, 2.0, 3.0])
    >>> reorder_state_(awn.advanced.find_groups(model)[0], torch.tensor([2, 0]), [optimizer])
    >>> optimizer.state[bias]["momentum_buffer"]
    tensor([3., 1., 0.])
    """
    for axis in group.axes:
        for optimizer in optimizers:
            for value in optimizer.state.get(axis.tensor, {}).values():
                if isinstance(value, Tensor) and value.shape == axis.tensor.shape and value.dim():
                    _reorder_(value, axis, group, order)


def _reorder_(tensor: Tensor, axis: Axis, group: WidthGroup, order: Tensor, scale: Tensor | None = None) -> None:
    """Put the entries of the units `order` first in every block, multiplied by `scale`."""
    for part in own_parts(tensor, axis.dim, axis.blocks_of(group.width), group.width):
        entries = part.shape[axis.dim] // group.width.capacity
        places = (order[:, None] * entries + torch.arange(entries, device=order.device)).flatten()
        moved = part.index_select(axis.dim, places.to(tensor.device))
        if scale is not None:
            shape = [-1 if dim == axis.dim else 1 for dim in range(tensor.dim())]
            moved *= scale.repeat_interleave(entries).to(moved.dtype).view(shape)
        part.zero_().narrow(axis.dim, 0, moved.shape[axis.dim]).copy_(moved)
