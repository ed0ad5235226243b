"""Weights divided by the importance: a trained model keeps its outputs, a fresh model keeps their variance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from awn.core.axis import Axis
from awn.core.groups import WidthGroup
from awn.core.reorder import reorder_
from awn.core.width import Width

_Norm = nn.modules.batchnorm._BatchNorm


def preserve_(groups: Sequence[WidthGroup]) -> None:
    """Sort every layer's units by how much they count, and divide the weights that read them by their importance.

    The model then computes what it computed before, and its last units are those that are missed the least.
    """
    # All orders come first: dividing the weights that read one layer changes those that make the next one.
    orders = [unit_strength(group).argsort(descending=True, stable=True) for group in groups]
    for group, order in zip(groups, orders, strict=True):
        # In double precision: an importance of single precision would cost a float64 model half its digits.
        reorder_(group, order, group.width.importance().detach().double().reciprocal())


@torch.no_grad()
def keep_variance_(width: Width, units: int, shapes: Mapping[Axis, Sequence[int]]) -> None:
    """Divide the weights that read a width by the importance's root mean square: sums over units keep their variance.

    `units` and `shapes` are those of the model before it got the width. Entries that were added since are initialised
    for the importance already. A weight that reads two widths, along two dimensions, is divided for each of them.
    `adapt_` refuses tied weights, so none is divided twice for one width.

    >>> from awn import Exponential
    >>> from awn.core.axes import consumed_by, produced_by
    >>> from awn.core.groups import connect_
    >>> first, second = nn.Linear(2, 3), nn.Linear(3, 1)
    >>> before = second.weight.norm()
    >>> width, axes = Width(Exponential.for_units(3), block=1), [*produced_by(first), *consumed_by(second)]
    >>> connect_(width, axes)
    >>> keep_variance_(width, 3, {axis: axis.tensor.shape for axis in axes})
    >>> ratio = before / second._parameters["weight"].norm()
    >>> torch.allclose(ratio, width.importance().square().mean().sqrt())
    True
    """
    # Over all units of the model: those that were dropped count with an importance of 0.
    mean_square = width.importance()[:units].double().square().sum() / units
    for axis in width.axes:
        if axis.role == "consumer":
            own = axis.tensor[tuple(slice(size) for size in shapes[axis])]
            own.mul_(mean_square.rsqrt().to(own.dtype))


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
