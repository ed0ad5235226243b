"""Layers that users name, in `groups=` and in rules: their units and their inputs."""

from __future__ import annotations

from torch import nn

from awn.core.axes import Norm, consumed_by, is_depthwise, layout_of
from awn.core.axis import Axis
from awn.errors import ArgumentError


def acts_by_unit(layer: nn.Module) -> bool:
    """Whether a layer acts on each unit alone, with tensors that have an entry for each.

    >>> acts_by_unit(nn.BatchNorm1d(8)), acts_by_unit(nn.PReLU(8)), acts_by_unit(nn.Linear(8, 8))
    (True, True, False)
    """
    if isinstance(layer, Norm):  # without any tensor, there would be nothing to resize its record of the size by
        return any(tensor is not None for tensor in (layer.weight, layer.running_mean))
    return isinstance(layer, nn.PReLU) or is_depthwise(layer)


def units_made_by(layer: nn.Module) -> int:
    """The number of units that a layer makes, or passes on one by one.

    >>> units_made_by(nn.Linear(2, 16)), units_made_by(nn.BatchNorm1d(16))
    (16, 16)
    """
    layout = layout_of(layer)
    name = layout.out_name if layout else "num_parameters" if isinstance(layer, nn.PReLU) else "num_features"
    units = getattr(layer, name, None)
    if not isinstance(units, int):
        raise ArgumentError(f"{type(layer).__name__} is not a layer whose outputs awn knows as units.")
    return units


def input_axes(layer: nn.Module, units: int) -> list[Axis]:
    """The axis of a layer's inputs, which are an equal number of entries for each of `units` units.

    >>> input_axes(nn.Linear(8 * 49, 10), units=8)[0].layout
    49
    """
    (axis,) = consumed_by(layer)
    size = axis.tensor.shape[axis.dim]
    if size % units:
        raise ArgumentError(
            f"a {type(layer).__name__} of {size} inputs cannot read {units} units, the same number of entries of each."
        )
    return consumed_by(layer, size // units)
