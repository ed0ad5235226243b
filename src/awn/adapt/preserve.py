"""A trained model's weights, sorted and divided by the importance, so that it computes what it computed before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from awn.basics.batches import evaluating, read_batches
from awn.core.attention import bind_heads_, free_heads_
from awn.core.axes import layout_of
from awn.core.axis import Axis
from awn.core.groups import WidthGroup
from awn.core.places import by_unit
from awn.core.reorder import reorder_
from awn.core.width import Width

_Norm = nn.modules.batchnorm._BatchNorm


def preserve_(groups: Sequence[WidthGroup], energies: Mapping[Width, Tensor] | None = None) -> None:
    """Sort every layer's units by how much they count, and divide the weights that read them by their importance.

    The model then computes what it computed before, and its last units are those that are missed the least. Units count
    by their energies on data, where these are given, and otherwise by the norms of their weights.
    """
    # All orders come first: dividing the weights that read one layer changes those that make the next one.
    orders = [_order(group, (energies or {}).get(group.width)) for group in groups]
    for group, order in zip(groups, orders, strict=True):
        # In double precision: an importance of single precision would cost a float64 model half its digits.
        reorder_(group, order, group.width.importance().detach().double().reciprocal())


def _order(group: WidthGroup, energy: Tensor | None) -> Tensor:
    if energy is None:
        return unit_strength(group).argsort(descending=True, stable=True)
    inert = torch.arange(len(energy), group.width.capacity, device=energy.device)
    return torch.cat([energy.argsort(descending=True, stable=True), inert])


def unit_energies(model: nn.Module, axes: Mapping[Width, Sequence[Axis]], data: Any) -> dict[Width, Tensor]:
    """The energy of every unit's contribution on data: its mean square times the squares of the weights that read it.

    `axes` are those of widths that are not connected yet. A width has no energies if a layer that reads its units is
    not called, or computes something else than weighted sums.

    >>> from awn import Exponential
    >>> from awn.core.axes import consumed_by
    >>> model, width = nn.Sequential(nn.ReLU(), nn.Linear(2, 1)), Width(Exponential.for_units(2), block=1)
    >>> _ = nn.init.ones_(model[1].weight)
    >>> unit_energies(model, {width: consumed_by(model[1])}, torch.tensor([[3.0, 1.0], [3.0, -1.0]]))[width]
    tensor([9.0000, 0.5000], dtype=torch.float64)
    """
    readers = {width: [axis for axis in own if axis.role == "consumer"] for width, own in axes.items()}
    readers = {width: own for width, own in readers.items() if all(_is_weighted_sum(axis) for axis in own)}
    squares: dict[Axis, Tensor] = {}
    rows: dict[Axis, int] = {}

    def note(axis: Axis) -> Callable[..., None]:
        layout = layout_of(axis.module)
        assert layout is not None

        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            inputs = (args[0] if args else next(iter(kwargs.values()))).movedim(layout.unit_dim, -1).flatten(0, -2)
            squares[axis] = squares.get(axis, 0.0) + inputs.double().square().sum(0)
            rows[axis] = rows.get(axis, 0) + len(inputs)

        return hook

    every = [axis for own in readers.values() for axis in own]
    attention = [module for module in model.modules() if type(module) is nn.MultiheadAttention]
    for module in attention:  # torch's class does not call its last layer, so that no hook would run
        free_heads_(module)
    hooks = [axis.module.register_forward_pre_hook(note(axis), with_kwargs=True) for axis in every]
    try:
        with evaluating(model):
            for batch in read_batches(data, "data"):
                with batch.naming_errors("data"):
                    batch.run(model)
    finally:
        for handle in hooks:
            handle.remove()
        for module in attention:
            bind_heads_(module)
    energies = {}
    for width, own in readers.items():
        if all(axis in squares for axis in own):
            parts = [
                by_unit(squares[axis] / rows[axis] * _entry_squares(axis), axis.blocks_of(width), width) for axis in own
            ]
            energies[width] = torch.stack(parts).sum(0)
    return energies


def _is_weighted_sum(axis: Axis) -> bool:
    layout = layout_of(axis.module)
    return layout is not None and axis.name == "weight" and axis.dim == layout.in_dim


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
    made = sum(_squares(axis, group.width) for axis in scales or makers)
    read = sum(_squares(axis, group.width) for axis in group.consumers)
    return torch.as_tensor(made * read).sqrt()


def _squares(axis: Axis, width: Width) -> Tensor:
    """The sum of squares of each unit's entries."""
    return by_unit(_entry_squares(axis), axis.blocks_of(width), width)


def _entry_squares(axis: Axis) -> Tensor:
    """The sum of squares of each entry of an axis."""
    squares = axis.tensor.detach().double().movedim(axis.dim, 0).square()
    return squares.flatten(1).sum(1) if squares.dim() > 1 else squares
