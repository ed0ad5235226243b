"""Costs: sums of products of widths, with a gradient for every ν."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import Tensor

from awn.core.count import axes_by_tensor, blocks_by_dim
from awn.core.groups import WidthGroup

#: Products, each with a factor and the numbers of the groups whose widths it multiplies.
Cost = Sequence[tuple[float, tuple[int, ...]]]


def entries_by_tensor(groups: Sequence[WidthGroup]) -> dict[Tensor, list[tuple[int, tuple[int, ...]]]]:
    """The number of active entries of every governed tensor, as a cost.

    There are several products if a dimension has several blocks.
    """
    numbers = {group.width: number for number, group in enumerate(groups)}
    entries = {}
    for tensor, axes in axes_by_tensor(groups).items():
        blocks = blocks_by_dim(axes)
        free = math.prod(size for dim, size in enumerate(tensor.shape) if dim not in blocks)
        products: dict[tuple[int, ...], int] = {}
        for chosen in itertools.product(*blocks.values()):
            used = tuple(numbers[width] for width, _ in chosen if width is not None)
            products[used] = products.get(used, 0) + free * math.prod(size for _, size in chosen)
        entries[tensor] = [(factor, used) for used, factor in products.items()]
    return entries


def differentiable(cost: Cost, groups: Sequence[WidthGroup]) -> Tensor:
    """A cost at the present widths, with the gradient of the soft widths.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2, hidden_layers=2)
    >>> differentiable([(1.0, (0,)), (0.5, (0, 1))], awn.advanced.find_groups(model)).item()   # 231 and 231 units
    26911.5
    """
    units = [group.width.units for group in groups]
    total = groups[0].width.nu.new_full((), at_units(cost, units))
    for number, group in enumerate(groups):
        soft = group.width.soft_units()
        total = total + slope(cost, number, units) * (soft - soft.detach())  # 0, with a gradient
    return total


def at_units(cost: Cost, units: Sequence[int]) -> float:
    """A cost at these widths.

    >>> at_units([(1.0, (0,)), (0.5, (0, 1))], [4, 10])
    24.0
    """
    return sum(factor * math.prod(units[i] for i in used) for factor, used in cost)


def slope(cost: Cost, number: int, units: Sequence[int]) -> float:
    """The derivative of a cost with respect to one width.

    >>> slope([(1.0, (0,)), (0.5, (0, 1))], 0, [4, 10])
    6.0
    """
    return sum(
        factor * used.count(number) * math.prod(units[i] for i in used) / units[number]
        for factor, used in cost
        if number in used
    )
