"""Budget: a soft cap on the size or cost of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from awn.basics.checks import check_number, check_units
from awn.core.groups import WidthGroup
from awn.errors import ArgumentError
from awn.loss.cost import Cost, differentiable, entries_by_tensor
from awn.parallel.unwrap import unwrapped


@dataclass(frozen=True)
class Budget:
    """A soft cap on a network's units, parameters or FLOPs; set exactly one of the three.

    While the network costs more than the cap, the loss grows by `strength` times the relative excess, cost / cap − 1.
    FLOPs are those of the adaptive layers for one sample: two per weight and position. `positions` is the number of
    positions at which a layer's weight is used, such as `{"conv1": 28 * 28}`; `awn.advanced.positions` counts them.
    Every convolution must be named; any other layer that is not named counts as using its weight once.

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
            if type(number) is not int or number != 0:  # a layer that only training calls
                check_units(f"positions[{layer!r}]", number)

    def penalty(self, model: nn.Module, groups: Sequence[WidthGroup]) -> Tensor:
        """Strength · max(0, cost / cap − 1), with a gradient for every ν."""
        cost = differentiable(self.cost(model, groups), groups)
        return self.strength * torch.relu(cost / self.cap - 1)  # no gradient at the cap itself

    @property
    def cap(self) -> float:
        """The one cap that is set."""
        return next(cap for cap in (self.max_units, self.max_params, self.max_flops) if cap is not None)

    def cost(self, model: nn.Module, groups: Sequence[WidthGroup]) -> Cost:
        """What a network costs, as a sum of products: a factor, and the numbers of the groups whose widths it takes.

        >>> import awn
        >>> model = awn.AdaptiveMLP(2, 3)
        >>> Budget(max_params=500).cost(model, awn.advanced.find_groups(model))
        [(3, ()), (2, (0,)), (1, (0,)), (3, (0,))]
        """
        model = unwrapped(model)
        if self.max_units is not None:
            self._check_above(sum(group.width.min_units for group in groups), "units, the layers' min_units together")
            return [(1, (number,)) for number in range(len(groups))]
        return self._parameters(model, groups) if self.max_params is not None else self._flops(model, groups)

    def _check_above(self, least: int, what: str) -> None:
        """Raise for a cap that no width can meet."""
        cap = self.max_units if self.max_units is not None else self.max_params
        assert cap is not None
        if cap < least:
            raise ArgumentError(
                f"a budget of {cap} cannot be met: the network always has {least} {what}. Raise the cap."
            )

    def _parameters(self, model: nn.Module, groups: Sequence[WidthGroup]) -> Cost:
        sizes = entries_by_tensor(groups)
        own = {group.width.log_nu for group in groups}
        fixed = sum(weight.numel() for weight in model.parameters() if weight not in sizes and weight not in own)
        self._check_above(fixed, "parameters that no learned width governs")
        return [(fixed, ()), *(size for tensor in sizes if isinstance(tensor, nn.Parameter) for size in sizes[tensor])]

    def _flops(self, model: nn.Module, groups: Sequence[WidthGroup]) -> Cost:
        paths = {module: path for path, module in model.named_modules()}
        unknown = set(self.positions) - set(paths.values())
        if unknown:
            raise ArgumentError(f"positions names {sorted(unknown)[0]!r}, but the model has no such layer.")
        owners = {axis.tensor: paths[axis.module] for group in groups for axis in group.axes}
        for axis in (axis for group in groups for axis in group.axes):
            owner = paths[axis.module]
            if isinstance(axis.module, _ConvNd) and owner not in self.positions:
                raise ArgumentError(
                    f"a budget on FLOPs does not know at how many positions convolution {owner!r} uses its weight. "
                    "Pass positions=awn.advanced.positions(model, example_input).",
                    argument="positions",
                )
        return [
            (2 * self.positions.get(owners[tensor], 1) * free, used)
            for tensor, products in entries_by_tensor(groups).items()
            if tensor.dim() > 1
            for free, used in products
        ]
