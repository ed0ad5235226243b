"""Removal of arbitrary units from a trained network: given ones, or the weakest on data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, cast

import torch
from torch import Tensor, nn

from awn.basics.checks import check_units
from awn.core.groups import check_layers, require_groups
from awn.core.optimizers import Optimizers, list_optimizers
from awn.core.reorder import reorder_, reorder_state_
from awn.core.state import load_state_dict_
from awn.errors import ArgumentError
from awn.smaller.reference import Reference
from awn.smaller.repair import repair_to_
from awn.smaller.truncate import ModelT, _copy, _cut_
from awn.smaller.weakest import weakest_units


def remove_units(
    model: ModelT,
    units: Mapping[str, Sequence[int] | Tensor],
    *,
    calibrate: Iterable[Any] | None = None,
    repair: Any = None,
) -> ModelT:
    """A copy without the given units, numbered from 0 in each layer; the others keep their importance.

    The remaining units move up, and the weights that read them are scaled to preserve their importance. The copy
    computes what the model would with the removed units silent. `calibrate` and `repair` are those of `awn.truncate`.

    >>> import awn
    >>> awn.widths(remove_units(awn.AdaptiveMLP(2, 2), {"hidden.0": range(31)}))    # the most important first
    {'hidden.0': 200}
    """
    groups = {group.name: group for group in require_groups(model)}
    check_layers(list(groups.values()), units)
    kept = {name: _others(name, indices, groups[name].width.units) for name, indices in units.items()}
    return _without(model, kept, calibrate, None if repair is None else Reference.of(model, repair))


def prune(
    model: ModelT, data: Any, *, keep: float | None = None, units: int | Mapping[str, int] | None = None
) -> ModelT:
    """A copy without the units whose loss the other units can make up for best, repaired on data.

    Choose the size in one way: a fraction `keep` of all units, a total number of `units`, or the units of each named
    layer. `data` are inputs, as in `awn.advanced.repair_`. Unlike `awn.truncate`, this does not need the units to be
    ordered: it removes them one by one, each time the one that adds the least error to what the next layers compute,
    with their weights refitted. The others keep their order and their importance.

    >>> import awn, torch
    >>> model = awn.AdaptiveMLP(2, 2, hidden_layers=2)
    >>> sum(awn.widths(prune(model, torch.randn(500, 2), keep=0.5)).values())
    231
    """
    present = {group.name: group.width.units for group in require_groups(model)}
    remove = _number_to_remove(present, keep, units)
    reference = Reference.of(model, data, "data")
    return _without(model, _strongest(model, reference, remove), None, reference)


def prune_(model: nn.Module, data: Any, optimizer: Optimizers = None, *, remove: int) -> None:
    """Do what `prune` does in place, to a total of `remove` units fewer; the optimizer stays in use.

    Kept units keep their state in the optimizer.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> prune_(model, torch.randn(500, 2), optimizer, remove=31)
    >>> awn.widths(model)
    {'hidden.0': 200}
    """
    reference = Reference.of(model, data, "data")
    kept = _strongest(model, reference, remove)
    smaller = _without(model, kept, None, reference)
    for group in require_groups(model):
        if group.name in kept:
            reorder_state_(group, torch.tensor(kept[group.name]), list_optimizers(optimizer))
    load_state_dict_(model, smaller.state_dict(), optimizer)
    for group in require_groups(model):  # not part of a state dict
        group.width.min_units = min(group.width.min_units, group.width.units)


def _strongest(model: nn.Module, reference: Reference, remove: int | Mapping[str, int]) -> dict[str, list[int]]:
    """The units that stay, for each layer that loses some."""
    present = {group.name: group.width.units for group in require_groups(model)}
    weakest = weakest_units(model, reference, remove)
    return {name: _others(name, found, present[name]) for name, found in weakest.items()}


def _without(
    model: ModelT, kept: Mapping[str, list[int]], calibrate: Iterable[Any] | None, reference: Reference | None
) -> ModelT:
    """A copy with the units that are kept."""
    smaller = _copy(model)
    groups = {group.name: group for group in require_groups(smaller)}
    for name, stay in kept.items():
        importance = groups[name].width.importance().detach().double()
        order = torch.tensor(stay, device=importance.device)
        reorder_(groups[name], order, importance[order] / importance[: len(order)])
    _cut_(smaller, {name: len(stay) for name, stay in kept.items()}, calibrate)
    if reference is not None:
        repair_to_(reference, smaller, kept=kept)
    return smaller


def _number_to_remove(
    present: Mapping[str, int], keep: float | None, units: int | Mapping[str, int] | None
) -> int | dict[str, int]:
    if (keep is None) == (units is None):
        raise ArgumentError("choose the size in exactly one way: keep= or units=.")
    total = sum(present.values())
    if keep is not None:
        if not (isinstance(keep, Real) and 0 < keep <= 1):
            raise ArgumentError(f"keep must be a fraction above 0 and at most 1, got {keep}.", argument="keep")
        return total - max(len(present), round(keep * total))
    if not isinstance(units, Mapping):
        check_units("units", cast("int", units))
        if not len(present) <= cast("int", units) <= total:
            raise ArgumentError(
                f"units must be from {len(present)}, one per layer, to {total}, those of the model; got {units}.",
                argument="units",
            )
        return total - cast("int", units)
    for name, number in units.items():
        if name not in present:
            raise ArgumentError(f"no adaptive layer is called {name!r}. There are: {', '.join(present)}.")
        check_units(f"units[{name!r}]", number)
        if number > present[name]:
            raise ArgumentError(f"layer {name!r} has {present[name]} units, so it cannot keep {number}.")
    return {name: present[name] - number for name, number in units.items()}


def _others(name: str, indices: Sequence[int] | Tensor, units: int) -> list[int]:
    """The remaining units."""
    if not isinstance(indices, Iterable):
        raise ArgumentError(f"the units to remove from {name!r} must be a list of unit numbers, got {indices!r}.")
    removed = indices.tolist() if isinstance(indices, Tensor) else list(indices)
    for index in removed:
        if isinstance(index, bool) or not isinstance(index, Integral):
            raise ArgumentError(f"the units to remove from {name!r} must be whole numbers, got {index!r}.")
    if len(set(removed)) != len(removed):
        raise ArgumentError(f"the units to remove from {name!r} contain duplicates.")
    wrong = [index for index in removed if not 0 <= index < units]
    if wrong:
        raise ArgumentError(f"layer {name!r} has units 0 to {units - 1}; there is no unit {wrong[0]} to remove.")
    if len(removed) == units:
        raise ArgumentError(f"all {units} units of {name!r} would be removed, but a layer needs at least one.")
    return sorted(set(range(units)) - set(removed))
