"""Between a model with its torch optimizer and the flat buffers: copies, both ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from awn.core.initialise import generator_apart
from awn.core.resize import set_units_
from awn.training.by_hand.layout import FIRST, GRADIENT, WEIGHT, Buffers
from awn.training.by_hand.optimizers import options_by_parameter, updates_so_far
from awn.training.by_hand.structure import Structure


@dataclass
class Nu:
    """A learned ν as numbers: its logarithm, its gradient and what the optimizer keeps for it."""

    log: float
    slope: float
    moments: list[float]
    count: int
    options: dict[str, Any]


def read_nu(log_nu: Tensor, optimizer: Optimizer, names: Sequence[str]) -> Nu:
    """A learned ν, as the model and the optimizer have it."""
    state = optimizer.state.get(log_nu, {})
    moments = [state[name].item() if state.get(name) is not None else 0.0 for name in names]
    options = options_by_parameter(optimizer)[log_nu]
    return Nu(log_nu.item(), 0.0, moments, updates_so_far(optimizer, log_nu), options)


def take_(
    structure: Structure, optimizer: Optimizer, buffers: Buffers, names: Sequence[str], units: Sequence[int]
) -> None:
    """Copy the active units' weights and moments into the buffers."""
    for parameter, active, parts in _places(structure, buffers, units):
        parts[WEIGHT].copy_(parameter[active])
        state = optimizer.state.get(parameter, {})
        for row, name in enumerate(names, start=FIRST):
            if state.get(name) is not None:
                parts[row].copy_(state[name][active])


@torch.no_grad()
def give_back_(
    structure: Structure,
    optimizer: Optimizer,
    buffers: Buffers,
    names: Sequence[str],
    count: int,
    nus: Sequence[Nu],
    units: Sequence[int],
    capacities: Sequence[int],
) -> None:
    """Copy weights, gradients and moments to the model and its optimizer, at their present widths."""
    layers = [group.name for group in structure.groups]
    set_units_(
        structure.model,
        dict(zip(layers, units, strict=True)),
        optimizer,
        capacities=dict(zip(layers, capacities, strict=True)),
        generator=generator_apart(structure.model),  # what is drawn is overwritten
    )
    options = options_by_parameter(optimizer)
    for parameter, active, parts in _places(structure, buffers, units):
        parameter[active].copy_(parts[WEIGHT])
        _gradient(parameter)[active].copy_(parts[GRADIENT])
        if count:
            _set_state(optimizer, parameter, active, options[parameter], names, list(parts[FIRST:]), count)
    for group, nu in zip(structure.groups, nus, strict=True):
        log_nu = group.width.log_nu
        log_nu.fill_(nu.log)
        _gradient(log_nu).fill_(nu.slope)
        if nu.count:
            moments = [torch.tensor(moment, dtype=torch.float64) for moment in nu.moments]
            _set_state(optimizer, log_nu, ..., options[log_nu], names, moments, nu.count)


def _places(
    structure: Structure, buffers: Buffers, units: Sequence[int]
) -> Iterator[tuple[Tensor, tuple[slice, ...], Tensor]]:
    """Every weight and bias, the index of its active units, and their part of the buffers, [4, …]."""
    sizes = structure.sizes(units)
    for layer, block, (outputs, inputs) in zip(structure.layers, buffers.blocks, sizes, strict=True):
        weight, bias = layer.parameters()
        rows, columns = slice(outputs), slice(inputs)
        yield weight, (rows, columns), block[:, rows, structure.lead : structure.lead + inputs]
        if bias is not None:
            yield bias, (rows,), block[:, rows, 0]


def _gradient(parameter: Tensor) -> Tensor:
    """Where the gradient of a parameter is kept; that of inert units is zero."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _set_state(
    optimizer: Optimizer,
    parameter: Tensor,
    active: Any,
    options: Any,
    names: Sequence[str],
    moments: Sequence[Tensor],
    count: int,
) -> None:
    """Write what torch's optimizer would hold after `count` updates."""
    if options.get("momentum") == 0:  # SGD without momentum keeps nothing
        return
    state = optimizer.state[parameter]
    if not state and "betas" in options:
        # In double precision if that is the default, except where the update is fused, as torch makes it.
        double = torch.get_default_dtype() == torch.float64 and not options.get("fused")
        state["step"] = torch.zeros((), dtype=torch.float64 if double else torch.float32)
    if "step" in state:
        state["step"].fill_(count)
    for name, moment in zip(names, moments, strict=False):
        if state.get(name) is None:
            state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state[name][active].copy_(moment)
