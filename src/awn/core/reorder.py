"""Reorder: put the units of a layer in another order, or keep some of them."""

from __future__ import annotations

import torch
from torch import Tensor

from awn.core.groups import WidthGroup


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
        tensor = axis.tensor
        entries = (order[:, None] * axis.repeat + torch.arange(axis.repeat, device=order.device)).flatten()
        moved = tensor.index_select(axis.dim, entries)
        if axis.role == "consumer":
            shape = [-1 if dim == axis.dim else 1 for dim in range(tensor.dim())]
            moved *= scale.repeat_interleave(axis.repeat).to(moved.dtype).view(shape)
        tensor.zero_().narrow(axis.dim, 0, len(entries)).copy_(moved)
