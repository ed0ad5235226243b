"""Resize: change the widths of a model between two steps, together with its optimizers.

All checks are made, and all new tensors (`replace.py`), before anything changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from awn.basics.checks import check_units
from awn.core.count import axes_by_tensor
from awn.core.gate import Gate, gates_of
from awn.core.groups import WidthGroup, check_layers, non_finite_tensors, require_groups
from awn.core.optimizers import Optimizers, check_optimizers, check_prior_decay, list_optimizers, warn_of_decay
from awn.core.ordered import draw_prefix_
from awn.core.replace import Move, check_growth, clear_slots_, commit_, prepare
from awn.errors import ArgumentError, NonFiniteError
from awn.parallel.collectives import check_in_step
from awn.parallel.ddp import check_parallel, rewrap_, spare_
from awn.parallel.torchrun import several_ranks
from awn.parallel.unwrap import uncompiled, unwrapped
from awn.parallel.watch import Watch


@dataclass(frozen=True)
class Resize:
    """How one layer's width changed."""

    before: int
    after: int


def resize_(
    model: nn.Module, optimizer: Optimizers = None, *, generator: torch.Generator | None = None
) -> dict[str, Resize]:
    """Bring every layer to the width that its ν asks for; returns the layers that changed.

    Call it between an optimizer's step and the next forward. Units are added or dropped at the end of a layer. The
    optimizer, or each of several, stays in use: kept units keep their state and gradients, and new units start with
    none. Omit it only if no optimizer has been built yet. With several processes, pass the DistributedDataParallel on
    all ranks. Rank 0 draws the new units and broadcasts them. If the model was made with `ordered=…`, this also draws
    the prefix of the next step.

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
    settled = _settle(model, groups, stored, optimizers)
    catch_up_(model, groups, optimizers)
    targets = {group.name: units for group, (units, _) in zip(groups, settled or (), strict=False)}
    moves = _plan(groups, targets, {}) if targets else {}
    check_growth(moves, {group.name: group.width.max_units for group in groups})
    _keep_in_step(model, groups, moves)
    if settled is None:
        draw_prefix_(groups)
        return {}
    drifted = [(group, was, now) for group, was, (_, now) in zip(groups, stored, settled, strict=True) if was != now]
    for group, _, now in drifted:  # move ν back to its bound before new units are drawn by their importance
        group.width.move_(now)
    try:
        resized = _move_(model, groups, moves, optimizers, generator)
    except Exception:
        for group, was, _ in drifted:
            group.width.move_(was)
        raise
    draw_prefix_(groups)
    return resized


def set_units_(
    model: nn.Module,
    units: Mapping[str, int],
    optimizer: Optimizers = None,
    *,
    capacities: Mapping[str, int] | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, Resize]:
    """Set the number of units of the named layers, regardless of ν; returns the layers that changed.

    >>> import awn
    >>> set_units_(awn.AdaptiveMLP(2, 2), {"hidden.0": 10}, optimizer=None)
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
    moves: Mapping[str, Move],
    optimizers: Sequence[Optimizer],
    generator: torch.Generator | None,
) -> dict[str, Resize]:
    """Carry out changes of width; returns the layers whose width changed."""
    if not moves:
        return {}
    tensors = {
        tensor: axes for tensor, axes in axes_by_tensor(groups).items() if any(group.name in moves for group, _ in axes)
    }
    check_parallel(model, tensors, optimizers)
    check_optimizers(model, list(tensors), optimizers)
    with torch.no_grad():
        prepared = prepare(model, groups, tensors, optimizers, moves, generator)
        commit_(tensors, optimizers, moves, prepared)
    if prepared.new:
        rewrap_(model)
        if unwrapped(model) is model and several_ranks():
            for gate in _gates([group for group in groups if group.name in moves]):
                _watch_on(gate).forget()
    if not optimizers:
        for group in groups:
            group.width.optimizer_may_be_stale = True
    return {name: Resize(move.before, move.after) for name, move in moves.items() if move.before != move.after}


def _check_generator(generator: torch.Generator | None) -> None:
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ArgumentError(f"generator must be a torch.Generator or None, got {generator!r}.")


def _read(numbers: Sequence[Tensor]) -> list[float]:
    """The values of scalar tensors: one by one on the CPU, in one transfer from an accelerator."""
    if all(number.is_cpu for number in numbers):
        return [number.item() for number in numbers]
    return torch.stack([number.detach() for number in numbers]).tolist()


def _settle(
    model: nn.Module, groups: Sequence[WidthGroup], stored: Sequence[float], optimizers: Sequence[Optimizer]
) -> list[tuple[int, float]] | None:
    """The number of units and the ν of every layer for the stored values; None if all stay as they are."""
    for group, log_nu in zip(groups, stored, strict=True):
        if not group.width.keeps(log_nu, group.width.units):
            break
    else:
        return None
    settled = []
    for group, log_nu in zip(groups, stored, strict=True):
        try:
            settled.append(group.width.settle(log_nu))
        except NonFiniteError as error:
            raise NonFiniteError(lost_number(model, group, optimizers, error)) from None
    now = [(group.width.units, log_nu) for group, log_nu in zip(groups, stored, strict=True)]
    return None if settled == now else settled


def _keep_in_step(model: nn.Module, groups: Sequence[WidthGroup], moves: Mapping[str, Move]) -> None:
    """With several processes, check that all are about to make the same change."""
    if unwrapped(model) is not model:
        staying = {group.name: Move(group.width.units, group.width.units, group.width.capacity) for group in groups}
        every = {**staying, **moves}
        check_in_step(model, {name: (move.before, move.after, move.capacity) for name, move in every.items()})
    elif several_ranks():
        _watch_on(_gates(groups)[0]).refuse_inside()


def _gates(groups: Sequence[WidthGroup]) -> list[Gate]:
    return [
        gate
        for group in groups
        for axis in group.consumers
        for gate in gates_of(axis.module)[axis.name]
        if gate.width is group.width
    ]


def _watch_on(gate: Gate) -> Watch:
    gate.watch = gate.watch or Watch()
    return gate.watch


def catch_up_(model: nn.Module, groups: Sequence[WidthGroup], optimizers: Sequence[Optimizer]) -> None:
    """Check that optimizers fit the model, and clear what they hold of units that went without them at hand."""
    if not optimizers:
        return
    if any(group.width.optimizer_may_be_stale for group in groups):
        _catch_up_(model, groups, optimizers)
    check_prior_decay(groups, optimizers)


def _catch_up_(model: nn.Module, groups: Sequence[WidthGroup], optimizers: Sequence[Optimizer]) -> None:
    tensors = axes_by_tensor(groups)
    check_parallel(model, tensors, optimizers)
    check_optimizers(model, [*tensors, *(group.width.log_nu for group in groups)], optimizers)
    inert = {group.name: (group.width.units, group.width.capacity) for group in groups}
    with torch.no_grad():
        clear_slots_(tensors, optimizers, inert)
    spare_(model, [buffer for group in groups for buffer in group.width.buffers()])
    warn_of_decay(groups, optimizers)
    for group in groups:
        group.width.optimizer_may_be_stale = False


def _plan(groups: Sequence[WidthGroup], units: Mapping[str, int], capacities: Mapping[str, int]) -> dict[str, Move]:
    moves = {}
    for group in groups:
        width = group.width
        after = units.get(group.name, width.units)
        kept_capacity = width.capacity if width.fits(after) else width.capacity_for(after)
        capacity = capacities.get(group.name, kept_capacity)
        if capacity < after:
            raise ArgumentError(f"a capacity of {capacity} has no room for the {after} units of layer {group.name!r}.")
        if (after, capacity) != (width.units, width.capacity):
            moves[group.name] = Move(width.units, after, capacity)
    return moves


def lost_number(model: nn.Module, group: WidthGroup, optimizers: Sequence[Optimizer], error: NonFiniteError) -> str:
    """An error message that names the layer, the step and other tensors that are not finite."""
    steps = [one.state[group.width.log_nu].get("step") for one in optimizers if group.width.log_nu in one.state]
    when = f" at step {int(steps[0])}" if steps and steps[0] is not None else ""
    others = non_finite_tensors(model)
    also = f" Also not finite: {', '.join(others)}." if others else ""
    return (
        f"{error}, in layer {group.name!r}{when}; its width stays at {group.width.units}.{also} "
        "The loss was probably not finite: lower the learning rate, clip gradients, or check the data."
    )
