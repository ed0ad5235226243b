"""Gate: multiplies the weights that read a layer's units by the units' importance.

(f ⊙ h) Wᵀ = h (W · diag f)ᵀ, so the gate need not touch the activations: it is a parametrization of the
weight that reads them. The model keeps its own modules and its own forward.

Only where a linear layer reads fewer numbers than its weight has are the inputs multiplied in the weight's place:
the same by the equation above, in less time and memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from awn.core.axis import Axis
from awn.core.width import Width


class Gate(nn.Module):
    """The parametrization of a consumer's weight: every column times the importance of the unit that it reads."""

    def __init__(self, width: Width, axis: Axis) -> None:
        super().__init__()
        # In a tuple, so that the width is registered once, on its first producer, and not here again.
        self._width = (width,)
        self.dim = axis.dim
        self.repeat = axis.repeat

    def forward(self, weight: Tensor) -> Tensor:
        """The weight as the model uses it."""
        importance = self.importance(weight.dtype)
        if self.dim != weight.dim() - 1:
            importance = importance.view(-1, *[1] * (weight.dim() - 1 - self.dim))
        return weight * importance

    def importance(self, dtype: torch.dtype) -> Tensor:
        """The importance of everything that is read: of each unit, as often as it is repeated."""
        importance = self._width[0].importance()
        if importance.dtype != dtype:
            importance = importance.to(dtype)
        return importance if self.repeat == 1 else importance.repeat_interleave(self.repeat)


def gate_(width: Width, axis: Axis) -> None:
    """Put a gate on a consumer's weight. Its shape is known to fit, so torch need not run it to see."""
    parametrize.register_parametrization(axis.module, axis.name, Gate(width, axis), unsafe=True)
    # torch gives the module a class of its own, with a property in the weight's place.
    gated = type(axis.module)
    setattr(gated, axis.name, property(_reader(axis.name), getattr(gated, axis.name).fset))
    if getattr(gated, "forward", None) is nn.Linear.forward:
        gated.forward = _read_linear


def _reader(name: str) -> Callable[[nn.Module], Tensor]:
    """What reads a gated weight. torch's own reader takes about a tenth of a small network's step to find the way.

    Nor does torch's, inside `parametrize.cached()`, tell a module from its deep copy.
    """

    def read(module: nn.Module) -> Tensor:
        if not parametrize._cache_enabled:
            return _gated(module, name)
        weight = parametrize._cache.get((id(module), name))
        if weight is None:
            weight = parametrize._cache[id(module), name] = _gated(module, name)
        return weight

    return read


def _gated(module: nn.Module, name: str) -> Tensor:
    parametrizations: Any = module._modules["parametrizations"]
    held = parametrizations._modules[name]
    weight: Tensor = held.original
    for gate in held._modules.values():
        weight = gate(weight) if gate._forward_pre_hooks else gate.forward(weight)
    return weight


def _read_linear(self: nn.Linear, inputs: Tensor) -> Tensor:
    """The forward of a gated linear layer: gates whichever has fewer numbers, the inputs or the weight."""
    held: Any = self._modules["parametrizations"]._modules["weight"]  # type: ignore[union-attr]
    weight: Tensor = held.original
    gates = list(held._modules.values())
    inputs_are_few = (
        type(inputs) is Tensor
        and inputs.numel() < weight.numel()
        and [gate.dim for gate in gates] == [1]
        and not gates[0]._forward_pre_hooks
        and not parametrize._cache_enabled
        and not torch.compiler.is_compiling()  # which would bind the choice to the size of this batch
    )
    if inputs_are_few:
        return F.linear(inputs * gates[0].importance(weight.dtype), weight, self.bias)
    return F.linear(inputs, self.weight, self.bias)


def remove_gate_(axis: Axis) -> None:
    """Fold the importance into the weight, and leave a plain Parameter.

    torch deletes the weight's property from the module's class, which a deep copy shares with its original: so the
    module gets a class of its own first.
    """
    shared = type(axis.module)
    content = {name: value for name, value in vars(shared).items() if name not in ("__dict__", "__weakref__")}
    axis.module.__class__ = type(shared.__name__, shared.__bases__, content)
    parametrize.remove_parametrizations(axis.module, axis.name, leave_parametrized=True)
    # torch puts the weight last; layers have it first, and optimizers number parameters by their order.
    parameters = axis.module._parameters
    for name in [name for name in parameters if name != axis.name]:
        parameters[name] = parameters.pop(name)
