"""Narrow: cut layers that are far too wide early in training, to a width from which ν learns on.

A wide layer spreads its work over all its units, and ν takes many steps to gather it in fewer. A cut with repair does
so at once. The units that contribute the most stay, and ν asks for exactly these afterwards.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from awn.core.groups import WidthGroup, require_groups
from awn.core.reorder import reorder_
from awn.core.resize import set_units_
from awn.parallel.unwrap import unwrapped
from awn.smaller.held_out import HeldOut
from awn.smaller.readers import find_readers
from awn.smaller.reference import Reference
from awn.smaller.repair import repair_to_

# Training goes on after the cut and makes up for it, so that more may be lost than in a last choice.
_SLACK = 3.0


def narrowed(model: nn.Module, data: Any, held_out: HeldOut, fewest: int) -> nn.Module | None:
    """A copy whose layers have `fewest` units, or twice, four times … as many; None if the loss rises with every cut.

    It is the narrowest copy whose held-out loss is within a standard error of the model's. Layers that are as narrow
    already stay as they are. `data` are inputs, to order the units by and to repair the cut with.

    >>> import awn
    >>> _ = torch.manual_seed(0)
    >>> model, x = awn.AdaptiveMLP(3, 1, importance=awn.Exponential.for_units(512)), torch.randn(500, 3)
    >>> held_out = HeldOut.of((x, x.sum(1, keepdim=True)), awn.likelihood.gaussian)
    >>> awn.widths(narrowed(model, x, held_out, fewest=32))
    {'hidden.0': 32}
    """
    repairable, _ = find_readers(model)
    widest = max(group.width.units for group in require_groups(model))
    if widest <= fewest or not repairable:
        return None
    reference = Reference.of(model, data, "data")
    energies = unit_energies(reference, model)
    whole = held_out.judge(model)
    units = fewest
    while units < widest:
        smaller = _cut(model, reference, _strongest(energies, units))
        if held_out.judge(smaller).mean <= whole.mean + _SLACK * whole.error:
            return smaller
        units *= 2
    return None


def unit_energies(reference: Reference, model: nn.Module) -> dict[str, Tensor]:
    """By layer, the mean squares of what its units contribute to the layers that read them.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 1, importance=awn.Exponential.for_units(4))
    >>> unit_energies(Reference.of(model, torch.randn(100, 2)), model)["hidden.0"].shape
    torch.Size([4])
    """
    moments = reference.collect(model)
    found: dict[str, Tensor] = {}
    for name, reader in reference.readers(model).items():
        if name in moments:
            columns, per_unit = reader.columns, reader.columns_per_unit
            squares = moments[name].gram.diagonal()[:columns] * reader.weights()[:columns].square().sum(1)
            own = squares.view(-1, per_unit).sum(1)
            found[reader.group.name] = own + found.get(reader.group.name, torch.zeros_like(own))
    return found


def _strongest(energies: Mapping[str, Tensor], units: int) -> dict[str, list[int]]:
    """The units that stay in every layer that is too wide, the strongest first."""
    orders = {name: energy.argsort(descending=True, stable=True) for name, energy in energies.items()}
    return {name: order[:units].tolist() for name, order in orders.items() if len(order) > units}


def _cut(model: nn.Module, reference: Reference, kept: Mapping[str, list[int]]) -> nn.Module:
    smaller = copy.deepcopy(unwrapped(model))
    groups = {group.name: group for group in require_groups(smaller)}
    for name, stay in kept.items():
        importance = groups[name].width.importance().detach().double()
        order = torch.tensor(stay, device=importance.device)
        reorder_(groups[name], order, importance[order] / importance[: len(order)])
    capacities = {name: groups[name].width.capacity_for(len(stay)) for name, stay in kept.items()}
    set_units_(smaller, {name: len(stay) for name, stay in kept.items()}, None, capacities=capacities)
    repair_to_(reference, smaller, kept=kept)
    for name in kept:
        move_to_present_(groups[name])
    return smaller


@torch.no_grad()
def move_to_present_(group: WidthGroup) -> None:
    """Set ν so that it asks for the present units, and scale the weights that read them: the function stays.

    >>> import awn
    >>> model, x = awn.AdaptiveMLP(2, 1, importance=awn.Exponential.for_units(64)), torch.randn(5, 2)
    >>> _ = set_units_(model, {"hidden.0": 16})
    >>> before, group = model(x), require_groups(model)[0]
    >>> move_to_present_(group)
    >>> torch.allclose(model(x), before, atol=1e-5), group.width.settle(group.width.log_nu.item())[0]
    (True, 16)
    """
    width = group.width
    before = width.importance().detach().double()[: width.units]
    width.move_to_(width.units)
    after = width.importance().detach().double()[: width.units]
    reorder_(group, torch.arange(width.units, device=before.device), before / after)
