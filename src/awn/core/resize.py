"""Surgery: change the number of units of a model between two steps, with its optimizers in tow.

The only file that replaces Parameters. Everything is checked, and every new tensor made, before anything changes.
A Parameter that changes its shape is replaced, never given other `.data`: autograd remembers the shape of a
Parameter for as long as an earlier loss is alive. Slots of inert units hold zeros, in the state of an optimizer too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from awn.basics.checks import check_units
from awn.core.count import axes_by_tensor
from awn.core.groups import WidthGroup, check_layers, non_finite_tensors, require_groups
from awn.core.initialise import GovernedAxes, active_inputs, draw_new_units
from awn.core.optimizers import Optimizers, check_optimizers, list_optimizers, warn_of_decay
from awn.errors import ArgumentError, AwnError, NonFiniteError, ResizeError
from awn.parallel.collectives import check_in_step, share_
from awn.parallel.ddp import check_parallel, rewrap_, spare_
from awn.parallel.torchrun import several_ranks
from awn.parallel.unwrap import uncompiled, unwrapped
from awn.parallel.watch import refuse_inside, watch_

State: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Resize:
    """How one layer's width changed."""

    before: int
    after: int


@dataclass(frozen=True)
class _Move:
    """Where a layer goes: to which width, in which capacity."""

    before: int
    after: int
    capacity: int


def resize_(model: nn.Module, optimizer: Optimizers, *, generator: torch.Generator | None = None) -> dict[str, Resize]:
    """Bring every layer to the width that its ν asks for; returns the layers that changed.

    Call it between an optimizer's step and the next forward. Units are added or dropped at the end of the list.
    The optimizer stays in use, or all of several: units that are kept keep their state and their gradients,
    new ones start with none. Pass None only where no optimizer has been built yet. A model that several processes
    train is passed in its DistributedDataParallel, on all ranks; new units are those that rank 0 draws.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(100))
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> model.hidden[0].width.move_to_(64)      # in a real run the optimizer's steps move it
    >>> awn.resize_(model, optimizer)
    {'hidden.0': Resize(before=100, after=64)}
    """
    _check_generator(generator)
    model, optimizers = uncompiled(model), list_optimizers(optimizer)
    groups = require_groups(model)
    stored = _read([group.width.log_nu for group in groups])
    settled = []
    for group, log_nu in zip(groups, stored, strict=True):
        try:
            settled.append(group.width.settle(log_nu))
        except NonFiniteError as error:
            raise NonFiniteError(_lost_number(model, group, optimizers, error)) from None
    if optimizers and any(group.width.optimizer_may_be_stale for group in groups):
        _catch_up_(model, groups, optimizers)
    changed = settled != [(group.width.units, log_nu) for group, log_nu in zip(groups, stored, strict=True)]
    targets = {group.name: units for group, (units, _) in zip(groups, settled, strict=True)}
    moves = _plan(groups, targets, {}) if changed else {}
    _keep_in_step(model, groups, moves)
    if not changed:
        return {}
    drifted = [(group, was, now) for group, was, (_, now) in zip(groups, stored, settled, strict=True) if was != now]
    for group, _, now in drifted:  # past a bound: back to it, before new units are drawn by their importance
        group.width.move_(now)
    try:
        return _move_(model, groups, moves, optimizers, generator)
    except Exception:
        for group, was, _ in drifted:
            group.width.move_(was)
        raise


def set_units_(
    model: nn.Module,
    units: Mapping[str, int],
    optimizer: Optimizers,
    *,
    capacities: Mapping[str, int] | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, Resize]:
    """Give the named layers a number of units, whatever their ν says; returns those that changed.

    >>> import awn
    >>> awn.set_units_(awn.AdaptiveMLP(2, 2), {"hidden.0": 10}, optimizer=None)
    {'hidden.0': Resize(before=231, after=10)}
    """
    _check_generator(generator)
    model, optimizers = uncompiled(model), list_optimizers(optimizer)
    groups = require_groups(model)
    check_layers(groups, [*units, *(capacities or {})])
    for name, number in units.items():
        check_units(f"units[{name!r}]", number)
    moves = _plan(groups, units, capacities or {})
    if moves or unwrapped(model) is not model:
        _keep_in_step(model, groups, moves)
    return _move_(model, groups, moves, optimizers, generator)


def _move_(
    model: nn.Module,
    groups: Sequence[WidthGroup],
    moves: Mapping[str, _Move],
    optimizers: Sequence[Optimizer],
    generator: torch.Generator | None,
) -> dict[str, Resize]:
    """Bring layers to where they go; returns those whose width changed."""
    if not moves:
        return {}
    tensors = {
        tensor: axes for tensor, axes in axes_by_tensor(groups).items() if any(group.name in moves for group, _ in axes)
    }
    check_parallel(model, tensors, optimizers)
    check_optimizers(model, list(tensors), optimizers)
    with torch.no_grad():
        prepared = _prepare(model, groups, tensors, optimizers, moves, generator)
        _commit_(tensors, optimizers, moves, prepared)
    if prepared.new:
        rewrap_(model)
        if unwrapped(model) is model and several_ranks():
            watch_(_gates([group for group in groups if group.name in moves]))
    if not optimizers:
        for group in groups:
            group.width.optimizer_may_be_stale = True
    return {name: Resize(move.before, move.after) for name, move in moves.items() if move.before != move.after}


def _check_generator(generator: torch.Generator | None) -> None:
    if not isinstance(generator, torch.Generator | None):
        raise ArgumentError(f"generator must be a torch.Generator or None, got {generator!r}.")


@dataclass(frozen=True)
class _Prepared:
    """All that a change needs: the tensors that replace others, their optimizer states, and the new units' values."""

    new: dict[Tensor, Tensor]
    states: list[dict[Tensor, State]]
    drawn: list[tuple[Tensor, Tensor]]


def _prepare(
    model: nn.Module,
    groups: Sequence[WidthGroup],
    tensors: Mapping[Tensor, GovernedAxes],
    optimizers: Sequence[Optimizer],
    moves: Mapping[str, _Move],
    generator: torch.Generator | None,
) -> _Prepared:
    """Make all that can fail, and set the widths; after a failure all is as it was."""
    before = [(group.width, group.width.snapshot()) for group in groups if group.name in moves]
    try:
        new = {
            tensor: _fresh(tensor, axes, moves) for tensor, axes in tensors.items() if _reshapes(tensor, axes, moves)
        }
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
        return _Prepared(new, states, drawn)
    except BaseException as error:
        for width, snapshot in before:
            width.restore(snapshot)
        # TypeError: a size past what a long holds
        if isinstance(error, AwnError) or not isinstance(error, RuntimeError | MemoryError | TypeError):
            raise
        widest = max(moves, key=lambda name: moves[name].after)
        raise ResizeError(
            f"layer {widest!r} cannot be resized to {moves[widest].after:,} units; it stays at {moves[widest].before}. "
            "If memory is short, set max_units or a lower learning rate for ν (width_lr). Torch says: "
            + str(error).splitlines()[0]
        ) from error


def _commit_(
    tensors: Mapping[Tensor, GovernedAxes],
    optimizers: Sequence[Optimizer],
    moves: Mapping[str, _Move],
    prepared: _Prepared,
) -> None:
    """Put everything in its place; nothing here can fail."""
    _clear_dropped_in_place_(tensors, prepared.new, optimizers, moves)
    for part, values in prepared.drawn:
        part.copy_(values)
    for tensor, axes in tensors.items():
        for _, axis in axes:
            if tensor in prepared.new:
                setattr(axis.holder, axis.stored_name, prepared.new[tensor])
            for name in axis.size_names:
                setattr(axis.module, name, axis.tensor.shape[axis.dim])
    for optimizer, states in zip(optimizers, prepared.states, strict=True):
        _rewire_(optimizer, prepared.new, states)
    for replaced in prepared.new:
        if replaced.requires_grad:
            replaced.register_post_accumulate_grad_hook(_refuse_late_gradient)


def _refuse_late_gradient(replaced: Tensor) -> None:
    """Autograd would leave the gradient of an earlier loss on a Parameter that nothing trains any more."""
    raise ResizeError(
        f"a gradient arrives at a Parameter of shape {tuple(replaced.shape)} that a resize has replaced since the loss "
        "was computed. Call resize_ between an optimizer's step and the next forward, not between a forward and its "
        "backward."
    )


def _read(numbers: Sequence[Tensor]) -> list[float]:
    """Tensors of one number each as numbers: one by one where they are at hand, all at once from an accelerator."""
    if all(number.is_cpu for number in numbers):
        return [number.item() for number in numbers]
    return torch.stack([number.detach() for number in numbers]).tolist()


def _keep_in_step(model: nn.Module, groups: Sequence[WidthGroup], moves: Mapping[str, _Move]) -> None:
    """Where several processes train the model, all must be about to do the same."""
    if unwrapped(model) is not model:
        staying = {group.name: _Move(group.width.units, group.width.units, group.width.capacity) for group in groups}
        every = {**staying, **moves}
        check_in_step(model, {name: (move.before, move.after, move.capacity) for name, move in every.items()})
    elif several_ranks():
        refuse_inside(_gates(groups)[0])


def _gates(groups: Sequence[WidthGroup]) -> list[nn.Module]:
    return [gate for group in groups for axis in group.consumers for gate in axis.holder.children()]


def _catch_up_(model: nn.Module, groups: Sequence[WidthGroup], optimizers: Sequence[Optimizer]) -> None:
    """After changes without an optimizer at hand: it must hold the tensors, and have no state of units that went."""
    tensors = axes_by_tensor(groups)
    check_parallel(model, tensors, optimizers)
    check_optimizers(model, [*tensors, *(group.width.log_nu for group in groups)], optimizers)
    beyond = {group.name: _Move(group.width.capacity, group.width.units, group.width.capacity) for group in groups}
    with torch.no_grad():
        _clear_dropped_in_place_(tensors, {}, optimizers, beyond)
    spare_(model, [buffer for group in groups for buffer in group.width.buffers()])
    warn_of_decay(groups, optimizers)
    for group in groups:
        group.width.optimizer_may_be_stale = False


def _plan(groups: Sequence[WidthGroup], units: Mapping[str, int], capacities: Mapping[str, int]) -> dict[str, _Move]:
    moves = {}
    for group in groups:
        width = group.width
        after = units.get(group.name, width.units)
        kept_capacity = width.capacity if width.fits(after) else width.capacity_for(after)
        capacity = capacities.get(group.name, kept_capacity)
        if capacity < after:
            raise ArgumentError(f"a capacity of {capacity} has no room for the {after} units of layer {group.name!r}.")
        if (after, capacity) != (width.units, width.capacity):
            moves[group.name] = _Move(width.units, after, capacity)
    return moves


def _reshapes(tensor: Tensor, axes: GovernedAxes, moves: Mapping[str, _Move]) -> bool:
    return _new_shape(tensor, axes, moves) != list(tensor.shape)


def _new_shape(tensor: Tensor, axes: GovernedAxes, moves: Mapping[str, _Move]) -> list[int]:
    shape = list(tensor.shape)
    for group, axis in axes:
        if group.name in moves:
            shape[axis.dim] = moves[group.name].capacity * axis.repeat
    return shape


def _fresh(tensor: Tensor, axes: GovernedAxes, moves: Mapping[str, _Move]) -> Tensor:
    """A tensor of the new shape with the kept units in it; a Parameter brings its gradient along."""
    fresh = tensor.new_zeros(_new_shape(tensor, axes, moves))
    overlap = tuple(slice(min(old, new)) for old, new in zip(tensor.shape, fresh.shape, strict=True))
    fresh[overlap] = tensor[overlap]
    _clear_dropped_(fresh, axes, moves)
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


def _fresh_state(parameter: Tensor, state: State, axes: GovernedAxes, moves: Mapping[str, _Move]) -> State:
    return {
        key: _fresh(value, axes, moves) if isinstance(value, Tensor) and value.shape == parameter.shape else value
        for key, value in state.items()
    }


def _clear_dropped_(tensor: Tensor, axes: GovernedAxes, moves: Mapping[str, _Move]) -> None:
    """Zero the slots of the units that are dropped, as far as the tensor still has them."""
    for group, axis in axes:
        if group.name in moves:
            end = min(moves[group.name].before * axis.repeat, tensor.shape[axis.dim])
            start = moves[group.name].after * axis.repeat
            if start < end:
                tensor.narrow(axis.dim, start, end - start).zero_()


def _clear_dropped_in_place_(
    tensors: Mapping[Tensor, GovernedAxes],
    new: Mapping[Tensor, Tensor],
    optimizers: Sequence[Optimizer],
    moves: Mapping[str, _Move],
) -> None:
    for tensor, axes in tensors.items():
        if tensor in new:
            continue
        states = [optimizer.state[tensor] for optimizer in optimizers if tensor in optimizer.state]
        like_it = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        for part in (tensor, tensor.grad if tensor.is_leaf else None, *like_it):
            if part is not None and part.shape == tensor.shape:
                _clear_dropped_(part, axes, moves)


def _rewire_(optimizer: Optimizer, new: Mapping[Tensor, Tensor], states: Mapping[Tensor, State]) -> None:
    """Put the new Parameters in the places of the old ones; groups, options and schedulers stay as they are."""
    for group in optimizer.param_groups:
        group["params"] = [new.get(parameter, parameter) for parameter in group["params"]]
    for old, state in states.items():
        del optimizer.state[old]
        optimizer.state[new[old]] = state


def _lost_number(model: nn.Module, group: WidthGroup, optimizers: Sequence[Optimizer], error: NonFiniteError) -> str:
    """Say which layer, at which step, and where else numbers were lost."""
    steps = [one.state[group.width.log_nu].get("step") for one in optimizers if group.width.log_nu in one.state]
    when = f" at step {int(steps[0])}" if steps and steps[0] is not None else ""
    others = non_finite_tensors(model)
    also = f" Not finite either: {', '.join(others)}." if others else ""
    return (
        f"{error}, in layer {group.name!r}{when}; its width stays at {group.width.units}.{also} "
        "The loss was probably not finite: lower the learning rate, clip gradients, or look at the data."
    )
