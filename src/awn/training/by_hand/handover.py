"""Between a model with its torch optimizer and the flat buffers: moves, both ways, without a second copy of anything.

Each row of the buffers is allocated, filled, and then the model's tensors that it replaces are released. On the way
back a row is freed as soon as the model has it again. The gradients are not handed over: their row is allocated last
and freed first. At most as many numbers are alive as in a step through autograd: weights, gradients and two moments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from awn.core.initialise import generator_apart
from awn.core.resize import set_units_
from awn.training.by_hand.layout import FIRST, GRADIENT, PREFIX, WEIGHT, Buffers
from awn.training.by_hand.optimizers import options_by_parameter, updates_so_far, weights_of
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


def give_back_nus_(structure: Structure, optimizer: Optimizer, nus: Sequence[Nu], names: Sequence[str]) -> None:
    """Write every ν and its moments to the model and the optimizer."""
    with torch.no_grad():
        for group, nu in zip(structure.groups, nus, strict=True):
            log_nu = group.width.log_nu
            _write_(log_nu, nu.log)
            log_nu.grad = None
            if nu.count:
                _count_updates(optimizer, log_nu, nu.count, nu.options)
                if nu.options.get("momentum") != 0:  # SGD without momentum keeps nothing
                    for name, moment in zip(names, nu.moments, strict=True):
                        _write_(_moment(optimizer, log_nu, name), moment)


class Handover:
    """Moves weights and moments into flat buffers, and back.

    In between, the model's tensors have their shapes and read as zeros, at no memory. `give_back_` also undoes an
    incomplete `take_`.
    """

    def __init__(self, structure: Structure, optimizer: Optimizer, names: Sequence[str]) -> None:
        self.structure, self.optimizer = structure, optimizer
        #: What the optimizer calls the moments in the rows after the gradients.
        self.names = dict(enumerate(names, start=FIRST))
        self._taken: list[int] = []

    def take_(self, buffers: Buffers, units: Sequence[int]) -> None:
        """Move the active units' weights and moments into the buffers. All gradients become None."""
        for parameter in weights_of(self.structure):
            parameter.grad = None
        for row in (WEIGHT, *self.names):
            buffers.make(row)
            self._fill(buffers, row, units)
            self._taken.append(row)  # from here on the buffers are what counts
            self._release(row)

    @torch.no_grad()
    def give_back_(self, buffers: Buffers, units: Sequence[int], capacities: Sequence[int], count: int) -> None:
        """Move weights and moments back, at these widths; `count` is the number of updates so far."""
        for row in (GRADIENT, PREFIX):
            buffers.free(row)
        if WEIGHT in self._taken:
            self._resize(units, capacities)
        options = options_by_parameter(self.optimizer)
        for row in self._taken:
            for parameter, active, part in self._places(buffers, row, units):
                if row == WEIGHT:
                    parameter[active].copy_(part)
                elif count:
                    _count_updates(self.optimizer, parameter, count, options[parameter])
                    _moment(self.optimizer, parameter, self.names[row])[active].copy_(part)
            buffers.free(row)
        self._taken.clear()

    def _fill(self, buffers: Buffers, row: int, units: Sequence[int]) -> None:
        for parameter, active, part in self._places(buffers, row, units):
            tensor = parameter if row == WEIGHT else self.optimizer.state.get(parameter, {}).get(self.names[row])
            if tensor is not None:
                part.copy_(tensor[active])

    def _release(self, row: int) -> None:
        """Free the model's tensors that a row has replaced."""
        for parameter in weights_of(self.structure):
            if row == WEIGHT:
                with torch.inference_mode(False):  # a model must not hold inference tensors
                    parameter.data = parameter.new_zeros(()).expand(parameter.shape)
            elif parameter in self.optimizer.state:
                self.optimizer.state[parameter].pop(self.names[row], None)

    def _resize(self, units: Sequence[int], capacities: Sequence[int]) -> None:
        """Bring the model to these widths, with memory for all weights."""
        for layer, (outputs, inputs) in zip(self.structure.layers, self.structure.sizes(capacities), strict=True):
            for parameter, shape in zip(layer.parameters(), ((outputs, inputs), (outputs,)), strict=True):
                # `set_units_` replaces Parameters of other shapes, and needs no memory behind those that it replaces.
                if parameter is not None and parameter.shape == shape:
                    parameter.data = parameter.new_zeros(shape)
        layers = [group.name for group in self.structure.groups]
        set_units_(
            self.structure.model,
            dict(zip(layers, units, strict=True)),
            self.optimizer,
            capacities=dict(zip(layers, capacities, strict=True)),
            generator=generator_apart(self.structure.model),  # what is drawn is overwritten
        )

    def _places(
        self, buffers: Buffers, row: int, units: Sequence[int]
    ) -> Iterator[tuple[Tensor, tuple[slice, ...], Tensor]]:
        """Every weight and bias, the index of its active units, and their part of a row."""
        lead, sizes = self.structure.lead, self.structure.sizes(units)
        for layer, block, (outputs, inputs) in zip(self.structure.layers, buffers.blocks, sizes, strict=True):
            weight, bias = layer.parameters()
            yield weight, (slice(outputs), slice(inputs)), block[row][:outputs, lead : lead + inputs]
            if bias is not None:
                yield bias, (slice(outputs),), block[row][:outputs, 0]


def _count_updates(optimizer: Optimizer, parameter: Tensor, count: int, options: Any) -> None:
    """Write the number of updates, if the optimizer counts them."""
    if "betas" not in options:
        return
    state = optimizer.state[parameter]
    if "step" not in state:
        # In double precision if that is the default, except where the update is fused, as torch makes it.
        double = torch.get_default_dtype() == torch.float64 and not options.get("fused")
        state["step"] = torch.zeros((), dtype=torch.float64 if double else torch.float32)
    state["step"].fill_(count)


def _write_(tensor: Tensor, number: float) -> None:
    """Write a number that may be too large for the tensor, which then holds infinity; `fill_` would raise."""
    tensor.copy_(torch.tensor(number, dtype=torch.float64))


def _moment(optimizer: Optimizer, parameter: Tensor, name: str) -> Tensor:
    """Where the optimizer keeps a moment of a parameter, made if it is missing."""
    state = optimizer.state[parameter]
    if state.get(name) is None:
        state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    moment: Tensor = state[name]
    return moment
