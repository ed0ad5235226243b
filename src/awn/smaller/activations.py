"""The activations of a network's units on data."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from awn.basics.batches import evaluating
from awn.core.axes import layout_of
from awn.core.axis import Axis
from awn.core.groups import WidthGroup, require_groups


@dataclass(frozen=True)
class ActivationBand:
    """The smallest, mean and largest activation of each unit of a layer: three tensors of [units]."""

    low: Tensor
    mean: Tensor
    high: Tensor


def activation_bands(model: nn.Module, inputs: Tensor) -> dict[str, ActivationBand]:
    """The range of every unit's activation over `inputs`, scaled by the unit's importance.

    >>> import awn, torch
    >>> bands = activation_bands(awn.AdaptiveMLP(2, 2), torch.randn(10, 2))
    >>> bool((bands["hidden.0"].low <= bands["hidden.0"].high).all())
    True
    """
    activations = unit_activations(model, inputs)
    bands = {}
    for group in (group for group in require_groups(model) if group.name in activations):
        scaled = activations[group.name] * group.width.importance()[: group.width.units].detach()
        bands[group.name] = ActivationBand(scaled.amin(0), scaled.mean(0), scaled.amax(0))
    return bands


def activation_magnitudes(model: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """The mean absolute activation of every unit over `inputs`, before the importance scales it.

    >>> import awn, torch
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> magnitudes = activation_magnitudes(model, torch.randn(10, 2))
    >>> weakest = magnitudes["hidden.0"].argsort()[:100]
    >>> awn.widths(awn.advanced.remove_units(model, {"hidden.0": weakest}))
    {'hidden.0': 131}
    """
    return {name: activations.abs().mean(0) for name, activations in unit_activations(model, inputs).items()}


def unit_activations(model: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """The activations of every layer's units over `inputs`, [positions, units], before the importance scales them.

    Units that no layer with a known layout reads by itself are left out.

    >>> import awn, torch
    >>> unit_activations(awn.AdaptiveMLP(2, 2), torch.randn(10, 2))["hidden.0"].shape
    torch.Size([10, 231])
    """
    found: dict[str, Tensor] = {}
    readers = {group: _reader(group) for group in require_groups(model)}
    hooks = [_note_inputs(group, axis, found) for group, axis in readers.items() if axis is not None]
    try:
        with evaluating(model):
            model(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _reader(group: WidthGroup) -> Axis | None:
    """The first axis that reads a group's units, and nothing else, from the input of its layer."""
    for axis in group.consumers:
        layout = layout_of(axis.module)
        if layout is not None and axis.name == "weight" and axis.dim == layout.in_dim and axis.is_plain:
            return axis
    return None


def _note_inputs(group: WidthGroup, axis: Axis, found: dict[str, Tensor]) -> RemovableHandle:
    """Record the input of a consumer in every forward."""
    # The dimension of the units in a consumer's input: last for a linear layer, second for a convolution.
    dim = -1 if axis.tensor.dim() == 2 else 1

    def note(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        units_last = args[0].detach().movedim(dim, -1)
        by_unit = units_last.unflatten(-1, (-1, axis.per_unit)).movedim(-1, 0)
        found[group.name] = by_unit.flatten(0, -2)[:, : group.width.units]

    return axis.module.register_forward_pre_hook(note)
