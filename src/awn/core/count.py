"""Shapes and parameter counts at given widths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from awn.core.axis import Axis, Blocks
from awn.core.groups import WidthGroup, check_layers, find_groups
from awn.core.places import extent
from awn.core.width import Width

#: The governed axes of a tensor: a hidden weight has two.
GovernedAxes = Sequence[tuple[WidthGroup, Axis]]


def blocks_by_dim(axes: GovernedAxes) -> dict[int, Blocks]:
    """The blocks of every governed dimension of a tensor; axes of one dimension list the same blocks."""
    return {axis.dim: axis.blocks_of(group.width) for group, axis in axes}


def active_shape(tensor: Tensor, axes: GovernedAxes, units: Mapping[Width, int] | None = None) -> list[int]:
    """The shape of the active part of a tensor, at the present or at other widths."""
    shape = list(tensor.shape)
    for dim, blocks in blocks_by_dim(axes).items():
        shape[dim] = extent(blocks, lambda width: (units or {}).get(width, width.units))
    return shape


def axes_by_tensor(groups: Sequence[WidthGroup]) -> dict[Tensor, list[tuple[WidthGroup, Axis]]]:
    """Every tensor that a width governs, with all its governed axes."""
    table: dict[Tensor, list[tuple[WidthGroup, Axis]]] = {}
    for group in groups:
        for axis in group.axes:
            table.setdefault(axis.tensor, []).append((group, axis))
    return table


def count_parameters(model: nn.Module, units: Mapping[str, int] | None = None) -> int:
    """The number of parameters of a model, without inert units and without ν.

    `units` gives other widths than the present ones, by layer name.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(10))
    >>> count_parameters(model), count_parameters(model, units={"hidden.0": 20})
    (52, 102)
    """
    groups = find_groups(model)
    check_layers(groups, units or {})
    table = axes_by_tensor(groups)
    own = {group.width.log_nu for group in groups}
    numbers = {group.width: units[group.name] for group in groups if group.name in units} if units else {}
    return sum(math.prod(active_shape(p, table.get(p, []), numbers)) for p in model.parameters() if p not in own)
