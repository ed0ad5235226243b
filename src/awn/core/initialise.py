"""Initialisation: Kaiming+ for fresh layers, and three kinds of new units.

Kaiming+ keeps the variance of activations constant from layer to layer although the importance scales units:
Var[w] = gain² / Σ f², summed over the units that a weight reads; a weight that reads plain inputs has f = 1. The gain
is √2 for the ReLU family, 1 for the tanh family. Biases of hidden layers start as in torch, U(±1/√inputs).

New units: `"rescaled"` draws them as in a fresh network. `"zero"` does the same but sets the outgoing weights to zero,
so that growing does not change the outputs. `"normal"` draws every weight from N(0, 1), as the paper does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from awn.core.axis import Axis
from awn.core.count import GovernedAxes, active_shape, axes_by_tensor, blocks_by_dim
from awn.core.groups import WidthGroup
from awn.core.places import active_parts
from awn.errors import ArgumentError

# Activations with a slope of about 1 on both sides of 0; the others pass the positive half only.
_TANH_FAMILY = (nn.Tanh, nn.Sigmoid, nn.Softsign, nn.Hardtanh, nn.Hardsigmoid, nn.Identity, nn.SELU)


def gain_of(activation: nn.Module) -> float:
    """The gain of Kaiming+ after an activation: √2 for the ReLU family, 1 for the tanh family.

    >>> round(gain_of(nn.ReLU6()), 4), gain_of(nn.Tanh())
    (1.4142, 1.0)
    """
    if isinstance(activation, nn.LeakyReLU):
        return nn.init.calculate_gain("leaky_relu", activation.negative_slope)
    # To torch, ReLU6 is a kind of Hardtanh.
    like_tanh = isinstance(activation, _TANH_FAMILY) and not isinstance(activation, nn.ReLU6)
    return 1.0 if like_tanh else math.sqrt(2)


def kaiming_plus_(groups: Sequence[WidthGroup], generator: torch.Generator | None = None) -> None:
    """Initialise all active units by Kaiming+; inert slots are zero.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2, hidden_layers=2)
    >>> kaiming_plus_(awn.advanced.find_groups(model), generator=torch.Generator().manual_seed(0))
    """
    inputs = active_inputs(groups)
    for tensor, axes in axes_by_tensor(groups).items():
        if tensor.is_meta:  # a shape without values
            continue
        with torch.no_grad():
            for part in active_parts(tensor.zero_(), blocks_by_dim(axes)):
                part.view.copy_(_as_fresh(part.view, tensor, axes, inputs, generator))


def kaiming_plus_deviation(weight: Tensor, axes: GovernedAxes) -> float:
    """The standard deviation of a weight with the governed axes `axes`."""
    for group, axis in axes:
        if axis.role == "consumer":
            return group.width.gain / math.sqrt(_fan_in(weight, axis) * _sum_of_squares(group))
    group, axis = axes[0]
    return group.width.gain / math.sqrt(_fan_in(weight, axis))


def draw_new_units(
    tensor: Tensor,
    axes: GovernedAxes,
    first_new: Sequence[int],
    inputs: Mapping[nn.Module, int],
    generator: torch.Generator | None,
) -> list[tuple[Tensor, Tensor]]:
    """Initial values of the new units of `tensor`: along each governed axis, those from `first_new` on.

    Returns views of the tensor with the values to write there, in order. The widths and `inputs` must already be the
    new ones. Only active units are drawn, so that the random numbers do not depend on the capacity.
    """
    drawn = []
    old = {group.width: first for (group, _), first in zip(axes, first_new, strict=True)}
    for part, (group, axis) in itertools.product(active_parts(tensor, blocks_by_dim(axes)), axes):
        first, units = old[group.width], group.width.units
        if part.owners[axis.dim] is not group.width or first >= units:
            continue
        entries = part.view.shape[axis.dim] // units
        new = part.view.narrow(axis.dim, first * entries, (units - first) * entries)
        if group.width.new_units == "zero" and axis.role == "consumer":
            values = torch.zeros_like(new)
        elif group.width.new_units == "normal" and axis.fill is None:
            values = _normal(new, generator)
        elif new.dim() > 1 and axis.fill is None and not _has_inputs(tensor, [axis for _, axis in axes]):
            values = _normal(new, generator) * _spread(tensor)
        else:
            values = _as_fresh(new, tensor, axes, inputs, generator)
        drawn.append((new, values))
    return drawn


def _has_inputs(weight: Tensor, axes: Sequence[Axis]) -> bool:
    """Whether the outputs and the inputs of a weight can be told apart: they cannot in weights that are stacked."""
    return weight.dim() > 1 and all(axis.dim <= 1 for axis in axes)


def _spread(weight: Tensor) -> float:
    """The root mean square of the entries that are there."""
    entries = weight.detach()[weight.detach() != 0].double()
    return entries.square().mean().sqrt().nan_to_num().item()


def generator_apart(model: nn.Module) -> torch.Generator | None:
    """A separate generator, for values that are overwritten: they must not advance the run's random state.

    >>> generator_apart(nn.Linear(2, 2)).device
    device(type='cpu')
    """
    device = next(model.parameters()).device
    return None if device.type == "meta" else torch.Generator(device)


def active_inputs(groups: Sequence[WidthGroup]) -> dict[nn.Module, int]:
    """The number of active inputs of each layer's units."""
    inputs = {}
    for tensor, axes in axes_by_tensor(groups).items():
        shape = active_shape(tensor, axes)
        for _, axis in axes:
            if axis.role == "producer" and tensor.dim() > 1:
                inputs[axis.module] = math.prod(shape) // shape[axis.dim]
    return inputs


def _as_fresh(
    part: Tensor,
    tensor: Tensor,
    axes: GovernedAxes,
    inputs: Mapping[nn.Module, int],
    generator: torch.Generator | None,
) -> Tensor:
    """Values for a part of a tensor as in a fresh network."""
    axis = axes[0][1]
    if axis.fill is not None:
        return torch.full_like(part, axis.fill)
    if tensor.dim() > 1:
        return _normal(part, generator) * kaiming_plus_deviation(tensor, axes)
    uniform = torch.rand(part.shape, dtype=part.dtype, device=part.device, generator=generator)
    return (2 * uniform - 1) / math.sqrt(inputs[axis.module])


def _fan_in(weight: Tensor, axis: Axis) -> float:
    """The number of entries that an output reads; for a consumer, per unit: those of the layout times the kernel."""
    if not _has_inputs(weight, [axis]):
        raise ArgumentError(f"a weight of shape {tuple(weight.shape)} has no inputs and outputs to tell apart.")
    kernel = weight[0, 0].numel()
    return kernel * axis.per_unit if axis.role == "consumer" else weight.shape[1 - axis.dim] * kernel


def _sum_of_squares(group: WidthGroup) -> float:
    importance = group.width.importance().detach()
    # There are no values on the meta device, and torch 2.6 raises for them.
    return 1.0 if importance.is_meta else importance.double().square().sum().item()


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)
