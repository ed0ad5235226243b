"""Finalize: an adaptive model as a plain one that does not need awn."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

from torch import nn

from awn.basics.checks import check_units
from awn.core.groups import disconnect_, find_groups, require_groups
from awn.core.resize import set_units_
from awn.core.state import ignore_state_dicts_
from awn.nn.mlp import AdaptiveMLP
from awn.parallel.unwrap import unwrapped


def finalize(model: nn.Module, *, round_to: int = 1) -> nn.Module:
    """A plain copy of exact shapes, with the importance multiplied into the weights, that does not need awn.

    An `AdaptiveMLP` becomes an `nn.Sequential`, also inside another module; any other module keeps its class.
    `round_to=8` rounds each width up to a multiple of 8, which suits hardware, by adding units of zero weight.

    >>> import awn
    >>> awn.finalize(awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(10)))
    Sequential(
      (0): Linear(in_features=2, out_features=10, bias=True)
      (1): ReLU()
      (2): Linear(in_features=10, out_features=2, bias=True)
    )
    """
    check_units("round_to", round_to)
    units = {group.name: group.width.units for group in require_groups(model)}
    sizes = {name: math.ceil(number / round_to) * round_to for name, number in units.items()}
    return _without_awn(plain_copy(model, sizes, fold=True))


def plain_copy(model: nn.Module, sizes: Mapping[str, int], *, fold: bool) -> nn.Module:
    """A copy without learned widths whose layers have these sizes, at least their units, filled up with zeros.

    `fold` multiplies the importance into the weights.
    """
    plain = copy.deepcopy(unwrapped(model))
    groups = find_groups(plain)
    set_units_(plain, {group.name: group.width.units for group in groups}, None, capacities=sizes)
    for group in groups:
        disconnect_(group.width, fold=fold)
    ignore_state_dicts_(plain)
    return plain


def _without_awn(module: nn.Module) -> nn.Module:
    """Replace every AdaptiveMLP in a module by a plain sequence, except subclasses, which have their own forward."""
    for name, child in module.named_children():
        setattr(module, name, _without_awn(child))
    return module.as_sequential() if type(module) is AdaptiveMLP else module
