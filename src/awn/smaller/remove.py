"""Removal of arbitrary units from a trained network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from awn.core.groups import check_layers, require_groups
from awn.core.reorder import reorder_
from awn.errors import ArgumentError
from awn.smaller.reference import Reference
from awn.smaller.repair import repair_to_
from awn.smaller.truncate import ModelT, _copy, _cut_


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
    smaller = _copy(model)
    groups = {group.name: group for group in require_groups(smaller)}
    check_layers(list(groups.values()), units)
    kept = {name: _others(name, indices, groups[name].width.units) for name, indices in units.items()}
    reference = None if repair is None else Reference.of(model, repair)
    for name, stay in kept.items():
        importance = groups[name].width.importance().detach().double()
        order = torch.tensor(stay, device=importance.device)
        reorder_(groups[name], order, importance[order] / importance[: len(order)])
    _cut_(smaller, {name: len(stay) for name, stay in kept.items()}, calibrate)
    if reference is not None:
        repair_to_(reference, smaller, kept=kept)
    return smaller


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
