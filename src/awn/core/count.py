"""Shapes and parameter counts at given widths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from awn.core.axis import Axis
from awn.core.groups import WidthGroup, check_layers, find_groups


def active_shape(
    tensor: Tensor, axes: Sequence[tuple[WidthGroup, Axis]], units: Mapping[str, int] | None = None
) -> list[int]:
    """The shape of the active part of a tensor, at the present or at other widths."""
    shape = list(tensor.shape)
    for group, axis in axes:
        shape[axis.dim] = (units or {}).get(group.name, group.width.units) * axis.repeat
    return shape


def axes_by_tensor(groups: Sequence[WidthGroup]) -> dict[Tensor, list[tuple[WidthGroup, Axis]]]:
    """Every tensor that a width governs, with all its governed axes: a hidden weight has two."""
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
    return sum(math.prod(active_shape(p, table.get(p, []), units)) for p in model.parameters() if p not in own)
