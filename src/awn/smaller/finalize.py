"""Finalize: an adaptive model as a plain one that does not need awn."""

from __future__ import annotations

import copy
import math

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
    require_groups(model)
    plain = copy.deepcopy(unwrapped(model))
    groups = find_groups(plain)
    present = {group.name: group.width.units for group in groups}
    sizes = {name: math.ceil(units / round_to) * round_to for name, units in present.items()}
    set_units_(plain, present, None, capacities=sizes)
    for group in groups:
        disconnect_(group.width, fold=True)
    ignore_state_dicts_(plain)
    return _without_awn(plain)


def _without_awn(module: nn.Module) -> nn.Module:
    """Replace every AdaptiveMLP in a module by a plain sequence, except subclasses, which have their own forward."""
    for name, child in module.named_children():
        setattr(module, name, _without_awn(child))
    return module.as_sequential() if type(module) is AdaptiveMLP else module
