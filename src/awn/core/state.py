"""State dicts across widths: a model takes the widths of the state dict that it loads.

`model.load_state_dict(state)` works at any widths, if the optimizer is built afterwards. `load_state_dict_` also
updates an optimizer that was built before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from awn.core.axis import Axis
from awn.core.count import axes_by_tensor
from awn.core.groups import WIDTH_NAME, WidthGroup, find_groups, tensor_names
from awn.core.initialise import generator_apart
from awn.core.optimizers import Optimizers, list_optimizers
from awn.core.resize import set_units_
from awn.core.width import Width
from awn.errors import CheckpointError
from awn.parallel.unwrap import unwrapped


def load_state_dict_(model: nn.Module, state: Mapping[str, Any], optimizer: Optimizers = None) -> None:
    """Load a state dict of any widths into a model, and update an optimizer that exists already.

    Load the optimizer's own state dict afterwards, with `optimizer.load_state_dict`.

    >>> import awn, torch
    >>> wide, narrow = awn.AdaptiveMLP(2, 2), awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(8))
    >>> optimizer = torch.optim.Adam(narrow.parameters())
    >>> load_state_dict_(narrow, wide.state_dict(), optimizer)
    >>> awn.widths(narrow)
    {'hidden.0': 231}
    """
    governed = {
        tensor.data_ptr(): [axis.dim for _, axis in axes] for tensor, axes in axes_by_tensor(find_groups(model)).items()
    }
    own = {name: value for name, value in unwrapped(model).state_dict().items() if isinstance(value, Tensor)}
    # An extra state has one entry more if the model is ordered; `_units` looks at them.
    free = {name: [0] if name.endswith("_extra_state") else governed.get(t.data_ptr(), []) for name, t in own.items()}
    check_shapes(own, state, free)
    _take_widths_(model, state, "", list_optimizers(optimizer))
    try:
        unwrapped(model).load_state_dict(state)
    except RuntimeError as error:
        raise CheckpointError(f"the state dict does not belong to this {type(model).__name__}: {error}") from None


def take_widths_(model: nn.Module, state: Mapping[str, Any], optimizer: Optimizers = None) -> None:
    """Bring a model and its optimizer to the widths of a state dict, which other code loads afterwards.

    >>> import awn
    >>> wide, narrow = awn.AdaptiveMLP(2, 2), awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(8))
    >>> take_widths_(narrow, wide.state_dict())
    >>> awn.widths(narrow)
    {'hidden.0': 231}
    """
    _take_widths_(model, state, "", list_optimizers(optimizer))


def follow_state_dicts_(model: nn.Module) -> None:
    """Have `model.load_state_dict` bring the model to the widths of the state dict that it loads.

    >>> import awn
    >>> model = nn.Sequential(awn.AdaptiveMLP(2, 2), nn.ReLU())
    >>> follow_state_dicts_(model)
    >>> model.load_state_dict(model.state_dict())
    <All keys matched successfully>
    """
    model.register_load_state_dict_pre_hook(_take_widths_on_load)


def ignore_state_dicts_(model: nn.Module) -> None:
    """Undo `follow_state_dicts_` in a model and all its submodules."""
    for module in model.modules():
        for key, hook in list(module._load_state_dict_pre_hooks.items()):
            if getattr(hook, "hook", None) is _take_widths_on_load:  # torch keeps it in a wrapper
                del module._load_state_dict_pre_hooks[key]


def check_shapes(own: Mapping[str, Tensor], state: Mapping[str, Tensor], governed: Mapping[str, Sequence[int]]) -> None:
    """Raise, before anything is loaded, unless names and shapes agree, except in `governed` dimensions."""
    strange = [*sorted(own.keys() - state.keys()), *sorted(set(_tensors(state)) - own.keys())]
    if strange:
        where = "missing from" if strange[0] in own else "unknown to the model but in"
        raise CheckpointError(
            f"the state dict belongs to another model: {strange[0]!r} is {where} the state dict, "
            f"one of {len(strange)} such entries. Nothing was loaded."
        )
    for name, tensor in own.items():
        free, other = governed.get(name, []), state[name]
        if not isinstance(other, Tensor):
            raise CheckpointError(f"{name!r} is not a tensor in the state dict, which is damaged. Nothing was loaded.")
        here, there = ([size for dim, size in enumerate(t.shape) if dim not in free] for t in (tensor, other))
        if here != there or tensor.dim() != other.dim():
            raise CheckpointError(
                f"{name!r} has shape {tuple(other.shape)} in the state dict, "
                f"{tuple(tensor.shape)} in the model, which no change of width explains. Nothing was loaded."
            )


def _tensors(state: Mapping[str, Any]) -> Iterator[str]:
    return (name for name, value in state.items() if isinstance(value, Tensor))


def _take_widths_on_load(model: nn.Module, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    _take_widths_(model, state, prefix, None)


def _take_widths_(model: nn.Module, state: Mapping[str, Any], prefix: str, optimizers: Optimizers) -> None:
    units: dict[str, int] = {}
    capacities: dict[str, int] = {}
    groups = find_groups(model)
    keys = {group.name: f"{prefix}{group.name}{'.' if group.name else ''}{WIDTH_NAME}._extra_state" for group in groups}
    if not all(key in state for key in keys.values()):
        return  # not a state dict of this model: torch says which keys are missing
    found = _capacities(model, groups, state, prefix)
    for group in groups:
        capacities[group.name] = found[group.width]
        units[group.name] = _units(group.name, state[keys[group.name]], capacities[group.name])
    apart = generator_apart(model)
    if units:
        set_units_(model, units, optimizers, capacities=capacities, generator=apart)


def _units(layer: str, extra_state: Any, capacity: int) -> int:
    """The number of units in a width's extra state, which must fit the tensors."""
    entries = extra_state.tolist() if isinstance(extra_state, Tensor) and extra_state.dim() == 1 else []
    if len(entries) in (3, 4):  # the fourth is a draw of ordered training
        units, quantile, amplitude, draw = (*entries, 0.0)[:4]
        whole = float(units).is_integer() and 1 <= units <= capacity and float(draw).is_integer() and draw >= 0
        if whole and 0 < quantile < 1 and 0 < amplitude < math.inf:
            return int(units)
    found = f"{entries[0]:g} units at quantile {entries[1]:g}" if len(entries) in (3, 4) else repr(extra_state)
    raise CheckpointError(
        f"the state dict is damaged: it gives layer {layer!r} {found}. Expected: a number of units from 1 to "
        f"{capacity} (the capacity of its tensors), a quantile and an amplitude. Nothing was loaded."
    )


def _capacities(
    model: nn.Module, groups: Sequence[WidthGroup], state: Mapping[str, Any], prefix: str
) -> dict[Width, int]:
    """The capacities of groups in a state dict, on which all their tensors must agree."""
    names = tensor_names(model)
    found: dict[Width, int] = {}
    waiting = [(group, axis) for group in groups for axis in group.axes]
    while waiting:
        # A dimension of several widths says what one of them is once the others are known.
        known = [(group, axis) for group, axis in waiting if all(b.of is None or b.of in found for b in axis.blocks)]
        for group, axis in known:
            name = names[axis.tensor]
            tensor = state.get(prefix + name)
            if not isinstance(tensor, Tensor) or tensor.dim() != axis.tensor.dim():
                raise CheckpointError(
                    f"the state dict has no matching tensor for {name!r}; it belongs to another model. "
                    "Nothing was loaded."
                )
            capacity = _capacity(axis, tensor.shape[axis.dim], found)
            if capacity is not None and found.setdefault(group.width, capacity) != capacity:
                raise _disagreement(group, f"{found[group.width]}, {name}: {capacity}")
        if not known:
            raise _disagreement(waiting[0][0], "none of them says it alone")
        waiting = [one for one in waiting if one not in known]
    for group in groups:
        if group.width not in found:
            raise _disagreement(group, "none of them is a multiple of its entries per unit")
    return found


def _capacity(axis: Axis, size: int, found: Mapping[Width, int]) -> int | None:
    """The capacity of an axis's width where the dimension has this size; None if that does not fit."""
    others = [
        b.entries if b.of is None else b.entries * found[b.of] for b in axis.blocks if b.fixed or b.of is not None
    ]
    own = size - sum(others)
    return own // axis.per_unit if own > 0 and own % axis.per_unit == 0 else None


def _disagreement(group: WidthGroup, sizes: str) -> CheckpointError:
    return CheckpointError(
        f"the tensors of layer {group.name!r} disagree on its size in the state dict ({sizes}); it belongs to another "
        "model, or is damaged. Nothing was loaded."
    )
