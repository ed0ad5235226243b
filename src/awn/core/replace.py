"""Replace: new tensors for resized layers, and for the optimizer state that belongs to them.

Only this file replaces Parameters. `prepare` makes every new tensor and may fail. `commit_` puts them in place and
cannot fail. A Parameter that changes shape is replaced, never given other `.data`: autograd remembers the shape of a
Parameter as long as an earlier loss is alive. Slots of inert units hold zeros, also in the state of an optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from awn.basics.memory import available_memory
from awn.core.count import GovernedAxes, blocks_by_dim
from awn.core.groups import WidthGroup
from awn.core.initialise import active_inputs, draw_new_units
from awn.core.places import Count, capacity_of, clear_units_, extent, resized
from awn.core.width import Width
from awn.errors import AwnError, ResizeError
from awn.parallel.collectives import share_

State: TypeAlias = dict[str, Any]
#: In one resize, a layer without `max_units` may grow to this multiple of its units, or to `ALWAYS_ALLOWED` units.
LARGEST_GROWTH, ALWAYS_ALLOWED = 8, 4096
# Smaller changes are made without asking the system how much memory is left.
_UNCHECKED_BYTES = 2**28


@dataclass(frozen=True)
class Move:
    """A layer's change of width, and its new capacity."""

    before: int
    after: int
    capacity: int


@dataclass(frozen=True)
class Prepared:
    """A prepared change: the replacement tensors, their optimizer states, and the values of new units."""

    new: dict[Tensor, Tensor]
    states: list[dict[Tensor, State]]
    drawn: list[tuple[Tensor, Tensor]]


def prepare(
    model: nn.Module,
    groups: Sequence[WidthGroup],
    tensors: Mapping[Tensor, GovernedAxes],
    optimizers: Sequence[Optimizer],
    moves: Mapping[str, Move],
    generator: torch.Generator | None,
) -> Prepared:
    """Make the new tensors and set the widths; a failure leaves everything as it was."""
    before = [(group.width, group.width.snapshot()) for group in groups if group.name in moves]
    check_memory(moves, _needed(tensors, optimizers, moves))
    try:
        new = {tensor: _fresh(tensor, axes, moves) for tensor, axes in tensors.items() if _reshapes(axes, moves)}
        states = [
            {p: _fresh_state(p, optimizer.state[p], tensors[p], moves) for p in new if p in optimizer.state}
            for optimizer in optimizers
        ]
        for group in groups:
            if group.name in moves:
                group.width.set_units(moves[group.name].after, moves[group.name].capacity)
        drawn = []
        if any(move.after > move.before for move in moves.values()):
            inputs = active_inputs(groups)
            for tensor, axes in tensors.items():
                first = [moves[group.name].before if group.name in moves else group.width.units for group, _ in axes]
                drawn += draw_new_units(new.get(tensor, tensor), axes, first, inputs, generator)
        share_(model, [values for _, values in drawn])
        return Prepared(new, states, drawn)
    except BaseException as error:
        for width, snapshot in before:
            width.restore(snapshot)
        # TypeError: a size that does not fit in a long
        if isinstance(error, AwnError) or not isinstance(error, RuntimeError | MemoryError | TypeError):
            raise
        raise too_wide(moves, error) from error


def check_growth(moves: Mapping[str, Move], bounds: Mapping[str, int | None]) -> None:
    """Refuse to let a layer without `max_units` grow many times over in one resize.

    A step that multiplies a width is no longer learning: ν has diverged, and the next steps would take all memory.
    """
    for name, move in moves.items():
        most = max(LARGEST_GROWTH * move.before, ALWAYS_ALLOWED)
        if bounds[name] is None and move.after > most:
            raise ResizeError(
                f"layer {name!r} would grow from {move.before:,} to {move.after:,} units in one resize; without "
                f"max_units, at most {most:,} are allowed. ν has probably diverged. Lower the learning rate of ν "
                "(width_lr), clip gradients, or set max_units. An interrupted run can be resumed with max_units set."
            )


def check_memory(moves: Mapping[str, Move], needed: int) -> None:
    """Refuse a change that needs more memory than is left, before the system ends the process for it."""
    left = available_memory() if needed > _UNCHECKED_BYTES else None
    if left is not None and needed > left:
        raise too_wide(moves, MemoryError(f"{needed:,} bytes are needed, and {left:,} are left"))


def too_wide(moves: Mapping[str, Move], error: BaseException) -> ResizeError:
    """The error that says which layer torch could not make tensors for."""
    widest = max(moves, key=lambda name: moves[name].after)
    return ResizeError(
        f"layer {widest!r} cannot be resized to {moves[widest].after:,} units; it stays at {moves[widest].before}. "
        "If memory is short, set max_units or lower the learning rate of ν (width_lr). An interrupted run can be "
        f"resumed with max_units set. Reason: {str(error).splitlines()[0]}"
    )


def commit_(
    tensors: Mapping[Tensor, GovernedAxes],
    optimizers: Sequence[Optimizer],
    moves: Mapping[str, Move],
    prepared: Prepared,
) -> None:
    """Put the prepared tensors in place; nothing here can fail."""
    kept = {tensor: axes for tensor, axes in tensors.items() if tensor not in prepared.new}
    dropped = {name: (move.after, move.before) for name, move in moves.items()}
    clear_slots_(kept, optimizers, dropped)
    for part, values in prepared.drawn:
        part.copy_(values)
    for tensor, axes in tensors.items():
        for _, axis in axes:
            if tensor in prepared.new:
                setattr(axis.module, axis.name, prepared.new[tensor])
            for name in axis.size_names:
                setattr(axis.module, name, axis.tensor.shape[axis.dim])
    for width in {group.width: None for axes in tensors.values() for group, _ in axes}:
        for attribute in width.attributes:
            attribute.update_()
    for optimizer, states in zip(optimizers, prepared.states, strict=True):
        _rewire_(optimizer, prepared.new, states)
    for replaced in prepared.new:
        if replaced.requires_grad:
            replaced.register_post_accumulate_grad_hook(_refuse_late_gradient)


def _refuse_late_gradient(replaced: Tensor) -> None:
    """Otherwise the gradient of an earlier loss would be lost on a Parameter that is no longer trained."""
    raise ResizeError(
        f"a gradient arrives at a Parameter of shape {tuple(replaced.shape)} that a resize has replaced since the loss "
        "was computed. Call resize_ between an optimizer's step and the next forward, not between a forward and its "
        "backward."
    )


def _needed(tensors: Mapping[Tensor, GovernedAxes], optimizers: Sequence[Optimizer], moves: Mapping[str, Move]) -> int:
    """The bytes of the new tensors on the CPU, with their gradients and the optimizers' states."""
    copies = 2 + 2 * len(optimizers)
    return copies * sum(
        math.prod(_new_shape(tensor, axes, moves)) * tensor.element_size()
        for tensor, axes in tensors.items()
        if tensor.is_cpu and _reshapes(axes, moves)
    )


def _reshapes(axes: GovernedAxes, moves: Mapping[str, Move]) -> bool:
    return any(group.name in moves and moves[group.name].capacity != group.width.capacity for group, _ in axes)


def _capacities(axes: GovernedAxes, moves: Mapping[str, Move]) -> Count:
    """The capacity of every width after the moves."""
    after = {group.width: moves[group.name].capacity for group, _ in axes if group.name in moves}

    def capacity(width: Width) -> int:
        return after.get(width, width.capacity)

    return capacity


def _new_shape(tensor: Tensor, axes: GovernedAxes, moves: Mapping[str, Move]) -> list[int]:
    shape, after = list(tensor.shape), _capacities(axes, moves)
    for dim, blocks in blocks_by_dim(axes).items():
        shape[dim] = extent(blocks, after)
    return shape


def _fresh(tensor: Tensor, axes: GovernedAxes, moves: Mapping[str, Move]) -> Tensor:
    """A tensor of the new shape with the kept units; a Parameter keeps its gradient."""
    after = _capacities(axes, moves)
    if all(axis.is_plain for _, axis in axes):
        fresh = tensor.new_zeros(_new_shape(tensor, axes, moves))
        overlap = tuple(slice(min(old, new)) for old, new in zip(tensor.shape, fresh.shape, strict=True))
        fresh[overlap] = tensor[overlap]
    else:
        fresh = tensor.detach()
        for dim, blocks in blocks_by_dim(axes).items():
            fresh = resized(fresh, dim, blocks, capacity_of, after)
    _clear_(fresh, axes, {name: (move.after, move.before) for name, move in moves.items()}, after)
    if not isinstance(tensor, nn.Parameter):
        return fresh
    parameter = nn.Parameter(fresh, requires_grad=tensor.requires_grad)
    parameter.__dict__.update(tensor.__dict__)  # what users have noted on it, and the hooks that they have set
    for hook in (tensor._backward_hooks or {}).values():
        parameter.register_hook(hook)
    for hook in (tensor._post_accumulate_grad_hooks or {}).values():
        parameter.register_post_accumulate_grad_hook(hook)
    if tensor.grad is not None:
        parameter.grad = _fresh(tensor.grad, axes, moves)
    return parameter


def _fresh_state(parameter: Tensor, state: State, axes: GovernedAxes, moves: Mapping[str, Move]) -> State:
    return {
        key: _fresh(value, axes, moves) if isinstance(value, Tensor) and value.shape == parameter.shape else value
        for key, value in state.items()
    }


def clear_slots_(
    tensors: Mapping[Tensor, GovernedAxes], optimizers: Sequence[Optimizer], slots: Mapping[str, tuple[int, int]]
) -> None:
    """Zero a range of slots per layer in tensors, in their gradients, and in the state of optimizers."""
    for tensor, axes in tensors.items():
        states = [optimizer.state[tensor] for optimizer in optimizers if tensor in optimizer.state]
        like_it = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        for part in (tensor, tensor.grad if tensor.is_leaf else None, *like_it):
            if part is not None and part.shape == tensor.shape:
                _clear_(part, axes, slots)


def _clear_(
    tensor: Tensor, axes: GovernedAxes, slots: Mapping[str, tuple[int, int]], count: Count = capacity_of
) -> None:
    """Zero a range of slots, as far as the tensor has them."""
    for group, axis in axes:
        if group.name in slots:
            clear_units_(tensor, axis.dim, axis.blocks_of(group.width), group.width, slots[group.name], count)


def _rewire_(optimizer: Optimizer, new: Mapping[Tensor, Tensor], states: Mapping[Tensor, State]) -> None:
    """Replace old Parameters by new ones in an optimizer; groups, options and schedulers stay as they are."""
    for group in optimizer.param_groups:
        group["params"] = [new.get(parameter, parameter) for parameter in group["params"]]
    for old, state in states.items():
        del optimizer.state[old]
        optimizer.state[new[old]] = state
