"""State dicts across widths: a model takes the widths of the state dict that it loads.

`model.load_state_dict(state)` works whatever the widths of the two; an optimizer must then be built after loading.
With one built before, `load_state_dict_` rewires it.
"""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from awn.errors import CheckpointError
from awn.groups import WIDTH_NAME, WidthGroup, axes_by_tensor, find_groups, plain_name, tensor_names
from awn.surgery import Optimizers, list_optimizers, set_units_

# The optimizers to rewire while a state dict is loaded: torch's hook has no place for them.
_optimizers: contextvars.ContextVar[Optimizers] = contextvars.ContextVar("optimizers", default=None)


def load_state_dict_(model: nn.Module, state: Mapping[str, Any], optimizer: Optimizers = None) -> None:
    """Load a state dict of any widths into a model whose optimizer exists already, and rewire that.

    Load the optimizer's own state dict afterwards, with `optimizer.load_state_dict`, as usual.

    >>> import awn, torch
    >>> wide, narrow = awn.AdaptiveMLP(2, 2), awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(8))
    >>> optimizer = torch.optim.Adam(narrow.parameters())
    >>> awn.load_state_dict_(narrow, wide.state_dict(), optimizer)
    >>> awn.widths(narrow)
    {'hidden.0': 231}
    """
    _check_fits(model, state)
    token = _optimizers.set(list_optimizers(optimizer))
    try:
        model.load_state_dict(state)
    finally:
        _optimizers.reset(token)


def follow_state_dicts_(model: nn.Module) -> None:
    """Have `model.load_state_dict` bring the model to the widths of what it loads."""
    model.register_load_state_dict_pre_hook(_take_widths)


def ignore_state_dicts_(model: nn.Module) -> None:
    """Undo `follow_state_dicts_`, in every part of a model."""
    for module in model.modules():
        for key, hook in list(module._load_state_dict_pre_hooks.items()):
            if getattr(hook, "hook", None) is _take_widths:  # torch keeps it in a wrapper
                del module._load_state_dict_pre_hooks[key]


def _check_fits(model: nn.Module, state: Mapping[str, Any]) -> None:
    """The same tensors, of the same shapes but for the learned widths; found out before anything is loaded."""
    own = model.state_dict()
    strange = [*sorted(own.keys() - state.keys()), *sorted(state.keys() - own.keys())]
    if strange:
        where = "missing from" if strange[0] in own else "unknown to the model but in"
        raise CheckpointError(
            f"the state dict belongs to another model than this {type(model).__name__}: {plain_name(strange[0])!r} is "
            f"{where} the state dict, and so on for {len(strange)} entries. Nothing was loaded."
        )
    governed = {
        tensor.data_ptr(): [axis.dim for _, axis in axes] for tensor, axes in axes_by_tensor(find_groups(model)).items()
    }
    for name, tensor in own.items():
        free = governed.get(tensor.data_ptr(), [])
        here, there = ([size for dim, size in enumerate(t.shape) if dim not in free] for t in (tensor, state[name]))
        if here != there:
            raise CheckpointError(
                f"{plain_name(name)!r} has shape {tuple(state[name].shape)} in the state dict, "
                f"{tuple(tensor.shape)} in the model, which no change of width explains. Nothing was loaded."
            )


def _take_widths(model: nn.Module, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    units: dict[str, int] = {}
    capacities: dict[str, int] = {}
    for group in find_groups(model):
        key = f"{prefix}{group.name}.{WIDTH_NAME}._extra_state" if group.name else f"{prefix}{WIDTH_NAME}._extra_state"
        if key not in state:
            return  # not a state dict of this model: torch says which keys are missing
        units[group.name] = int(state[key][0])
        capacities[group.name] = _capacity(model, group, state, prefix)
        if not 1 <= units[group.name] <= capacities[group.name]:
            raise CheckpointError(
                f"the state dict gives layer {group.name!r} {units[group.name]} units, "
                f"but its tensors have room for {capacities[group.name]}: it is damaged."
            )
    # A generator apart: what is drawn here is about to be overwritten, and must not use up the run's random numbers.
    apart = torch.Generator(next(model.parameters()).device)
    set_units_(model, units, _optimizers.get(), capacities=capacities, generator=apart)


def _capacity(model: nn.Module, group: WidthGroup, state: Mapping[str, Any], prefix: str) -> int:
    """The capacity of a group in a state dict, which all its tensors must agree on."""
    names = {tensor: name for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    found: dict[int, str] = {}
    for axis in group.axes:
        tensor = state.get(prefix + names[axis.tensor])
        if not isinstance(tensor, Tensor) or tensor.dim() != axis.tensor.dim():
            raise CheckpointError(
                f"the state dict has no fitting tensor for {tensor_names(model)[axis.tensor]!r}; "
                "it belongs to another model. Nothing was loaded."
            )
        size = tensor.shape[axis.dim]
        if size % axis.repeat == 0:
            found.setdefault(size // axis.repeat, tensor_names(model)[axis.tensor])
    if len(found) != 1:
        raise CheckpointError(
            f"the tensors of layer {group.name!r} disagree on its size in the state dict "
            f"({', '.join(f'{name}: {size}' for size, name in found.items())}); it belongs to another model, or is "
            "damaged. Nothing was loaded."
        )
    return next(iter(found))
