"""Budget: a soft cap on the size or cost of a network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from awn.basics.checks import check_number, check_units
from awn.core.count import axes_by_tensor
from awn.core.groups import WidthGroup
from awn.errors import ArgumentError
from awn.parallel.unwrap import unwrapped


@dataclass(frozen=True)
class Budget:
    """A soft cap on a network's units, parameters or FLOPs; set exactly one of the three.

    While the network costs more than the cap, the loss grows by `strength` times the relative excess, cost / cap − 1.
    FLOPs are those of the adaptive layers for one sample: two per weight and position. `positions` is the number of
    positions at which a layer's weight is used, e.g. `{"conv1": 28 * 28}`.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2, hidden_layers=2)
    >>> Budget(max_units=300).penalty(model, awn.advanced.find_groups(model)).item()   # 462 units: 54 % too many
    0.539...
    """

    max_units: int | None = None
    max_params: int | None = None
    max_flops: float | None = None
    strength: float = 1.0
    positions: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        caps = [cap for cap in (self.max_units, self.max_params, self.max_flops) if cap is not None]
        if len(caps) != 1:
            raise ArgumentError("a budget has exactly one cap: set max_units, max_params or max_flops.")
        check_number("a budget's cap", caps[0])
        check_number("strength", self.strength)
        for layer, number in self.positions.items():
            check_units(f"positions[{layer!r}]", number)

    def penalty(self, model: nn.Module, groups: Sequence[WidthGroup]) -> Tensor:
        """The penalty, strength · max(0, cost / cap − 1), with a gradient for every ν."""
        model = unwrapped(model)
        if self.max_units is not None:
            self._check_above(sum(group.width.min_units for group in groups), "units, the layers' min_units together")
            over = torch.stack([_width(group) for group in groups]).sum() / self.max_units - 1
        elif self.max_params is not None:
            over = self._parameters(model, groups) / self.max_params - 1
        else:
            assert self.max_flops is not None
            over = self._flops(model, groups) / self.max_flops - 1
        return self.strength * torch.relu(over)  # no gradient at the cap itself

    def _check_above(self, least: int, what: str) -> None:
        """Raise for a cap that no width can meet."""
        cap = self.max_units if self.max_units is not None else self.max_params
        assert cap is not None
        if cap < least:
            raise ArgumentError(
                f"a budget of {cap} cannot be met: the network always has {least} {what}. Raise the cap."
            )

    def _parameters(self, model: nn.Module, groups: Sequence[WidthGroup]) -> Tensor:
        sizes = _sizes(groups)
        own = {group.width.log_nu for group in groups}
        fixed = sum(weight.numel() for weight in model.parameters() if weight not in sizes and weight not in own)
        self._check_above(fixed, "parameters that no learned width governs")
        return fixed + torch.stack([size for tensor, size in sizes.items() if isinstance(tensor, nn.Parameter)]).sum()

    def _flops(self, model: nn.Module, groups: Sequence[WidthGroup]) -> Tensor:
        paths = {module: path for path, module in model.named_modules()}
        unknown = set(self.positions) - set(paths.values())
        if unknown:
            raise ArgumentError(f"positions names {sorted(unknown)[0]!r}, but the model has no such layer.")
        owners = {axis.tensor: paths[axis.module] for group in groups for axis in group.axes}
        return torch.stack(
            [
                2 * self.positions.get(owners[tensor], 1) * size
                for tensor, size in _sizes(groups).items()
                if tensor.dim() > 1
            ]
        ).sum()


def _sizes(groups: Sequence[WidthGroup]) -> dict[Tensor, Tensor]:
    """The number of active entries of every governed tensor, as a function of ν."""
    sizes = {}
    for tensor, axes in axes_by_tensor(groups).items():
        free = math.prod(size for dim, size in enumerate(tensor.shape) if dim not in [axis.dim for _, axis in axes])
        size = torch.tensor(float(free), device=tensor.device)
        for group, axis in axes:
            size = size * _width(group) * axis.repeat
        sizes[tensor] = size
    return sizes


def _width(group: WidthGroup) -> Tensor:
    """The present width, with the gradient of the soft width: the cap applies to the actual width."""
    soft = group.width.soft_units()
    return soft + (group.width.units - soft).detach()
