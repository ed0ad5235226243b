"""Adam, AdamW and SGD on the flat buffers, and on ν, which is a plain number here."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from awn.training.by_hand.layout import FIRST, GRADIENT, SECOND, WEIGHT, Buffers
from awn.training.by_hand.structure import Structure

Options = Mapping[str, Any]


class FlatOptimizer(ABC):
    """The update of all weights in one go, and that of a single number."""

    #: What torch's optimizer calls the moments.
    names: tuple[str, ...]

    def __init__(self, options: Options, count: int) -> None:
        self.options = options
        #: The moments that the weights have.
        self.moments = self.names
        self.lr = float(options["lr"])
        #: Updates so far.
        self.count = count

    @abstractmethod
    def attach(self, buffers: Buffers, decay: float | Tensor) -> None:
        """Work on these buffers from now on, with a weight decay for all weights or one for each."""

    @abstractmethod
    def update(self) -> None:
        """Change the weights by their gradients."""

    @staticmethod
    @abstractmethod
    def update_number(value: float, slope: float, moments: list[float], count: int, options: Options) -> float:
        """The number after its update number `count`; `moments` change in place."""


class FlatAdam(FlatOptimizer):
    """Adam and, if weight decay is decoupled, AdamW."""

    names = ("exp_avg", "exp_avg_sq")

    def attach(self, buffers: Buffers, decay: float | Tensor) -> None:
        """See `FlatOptimizer`."""
        self.weight, self.gradient, self.first, self.second = (
            buffers.rows[row] for row in (WEIGHT, GRADIENT, FIRST, SECOND)
        )
        self.clock = torch.zeros(())
        self.clock_array = self.clock.numpy()  # to set it costs less than to fill the tensor
        self.decay = decay
        self.decoupled = _is_decoupled(self.options)
        # Decay that differs between weights is not one that the fused update knows.
        self.step = self.gradient
        if isinstance(decay, Tensor) and not self.decoupled:
            self.step = torch.empty_like(self.gradient)
        self.lists: tuple[list[Tensor], ...] = [self.weight], [self.step], [self.first], [self.second], [], [self.clock]
        self.each: dict[str, Any] = {
            "lr": self.lr,
            "beta1": float(self.options["betas"][0]),
            "beta2": float(self.options["betas"][1]),
            "eps": float(self.options["eps"]),
            "weight_decay": decay if isinstance(decay, float) else 0.0,
            "amsgrad": False,
            "maximize": False,
        }
        name = "_fused_adamw_" if self.decoupled else "_fused_adam_"
        self.fused = getattr(torch, name, None)

    def update(self) -> None:
        """See `FlatOptimizer`."""
        self.count += 1
        if isinstance(self.decay, Tensor):
            if self.decoupled:
                self.weight.addcmul_(self.weight, self.decay, value=-self.lr)
            else:
                torch.addcmul(self.gradient, self.weight, self.decay, out=self.step)
        if self.fused is None:
            self.update_in_public()
        else:
            self.clock_array[...] = self.count
            self.fused(*self.lists, **self.each)

    def update_in_public(self) -> None:
        """The same without private functions of torch."""
        beta1, beta2, decay = self.each["beta1"], self.each["beta2"], self.each["weight_decay"]
        gradient = self.step
        if decay and self.decoupled:
            self.weight.mul_(1 - self.lr * decay)
        elif decay:
            gradient = torch.add(gradient, self.weight, alpha=decay)
        self.first.lerp_(gradient, 1 - beta1)
        self.second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = torch.sqrt(self.second).div_(math.sqrt(1 - beta2**self.count)).add_(self.each["eps"])
        self.weight.addcdiv_(self.first, root, value=-self.lr / (1 - beta1**self.count))

    @staticmethod
    def update_number(value: float, slope: float, moments: list[float], count: int, options: Options) -> float:
        """See `FlatOptimizer`."""
        lr, (beta1, beta2), decay = float(options["lr"]), options["betas"], options["weight_decay"]
        if decay and _is_decoupled(options):
            value *= 1 - lr * decay
        elif decay:
            slope += decay * value
        moments[0] += (1 - beta1) * (slope - moments[0])
        moments[1] = beta2 * moments[1] + (1 - beta2) * slope * slope
        root = math.sqrt(moments[1]) / math.sqrt(1 - beta2**count)
        return float(value - lr / (1 - beta1**count) * moments[0] / (root + options["eps"]))


class FlatSGD(FlatOptimizer):
    """Stochastic gradient descent, with momentum or without."""

    names = ("momentum_buffer",)

    def __init__(self, options: Options, count: int) -> None:
        super().__init__(options, count)
        self.moments = self.names if options["momentum"] else ()

    def attach(self, buffers: Buffers, decay: float | Tensor) -> None:
        """See `FlatOptimizer`."""
        self.weight, self.gradient = buffers.rows[WEIGHT], buffers.rows[GRADIENT]
        self.buffer = buffers.rows.get(FIRST)
        self.decay = decay

    def update(self) -> None:
        """See `FlatOptimizer`."""
        self.count += 1
        step, momentum = self.gradient, self.options["momentum"]
        if isinstance(self.decay, Tensor):
            step = torch.addcmul(step, self.weight, self.decay)
        elif self.decay:
            step = torch.add(step, self.weight, alpha=self.decay)
        if self.buffer is not None:
            # The first step of all is not damped.
            damping = 1 - self.options["dampening"] if self.count > 1 else 1.0
            self.buffer.mul_(momentum).add_(step, alpha=damping)
            step = step.add(self.buffer, alpha=momentum) if self.options["nesterov"] else self.buffer
        self.weight.add_(step, alpha=-self.lr)

    @staticmethod
    def update_number(value: float, slope: float, moments: list[float], count: int, options: Options) -> float:
        """See `FlatOptimizer`."""
        momentum = options["momentum"]
        slope += options["weight_decay"] * value
        if momentum:
            moments[0] = momentum * moments[0] + (1 - options["dampening"] if count > 1 else 1.0) * slope
            slope = slope + momentum * moments[0] if options["nesterov"] else moments[0]
        return value - float(options["lr"]) * slope


def optimizer_by_hand(optimizer: Optimizer, structure: Structure) -> type[FlatOptimizer] | str:
    """The flat optimizer that does what a torch optimizer does, or a sentence that says why there is none.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> optimizer_by_hand(Adam(model.parameters()), Structure.of(model))
    <class '...FlatAdam'>
    >>> optimizer_by_hand(torch.optim.RMSprop(model.parameters()), Structure.of(model))
    'the optimizer is a RMSprop, not Adam, AdamW or SGD'
    """
    if type(optimizer) not in (Adam, AdamW, SGD):
        return f"the optimizer is a {type(optimizer).__name__}, not Adam, AdamW or SGD"
    if type(optimizer) is AdamW and not all(map(_is_decoupled, optimizer.param_groups)):
        return "this version of torch does not say how AdamW decays"
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return "the optimizer has hooks"
    found = options_by_parameter(optimizer)
    weights = weights_of(structure)
    if found.keys() != {*weights, *(group.width.log_nu for group in structure.groups)}:
        return "the optimizer does not hold the model's parameters, all of them and no others"
    for flag in ("amsgrad", "maximize", "capturable", "differentiable"):
        if any(options.get(flag) for options in found.values()):
            return f"the optimizer has {flag}=True"
    shared = [{name: _number(options.get(name)) for name in _SHARED} for options in (found[one] for one in weights)]
    if any(options != shared[0] for options in shared):
        return "the optimizer has groups of weights that differ in more than their weight decay"
    if len({updates_so_far(optimizer, weight) for weight in weights}) > 1:
        return "some weights have had more updates than others"
    return FlatSGD if type(optimizer) is SGD else FlatAdam


def options_by_parameter(optimizer: Optimizer) -> dict[Tensor, dict[str, Any]]:
    """The options that an optimizer has for each parameter."""
    return {parameter: group for group in optimizer.param_groups for parameter in group["params"]}


def weights_of(structure: Structure) -> list[Tensor]:
    """All weights and biases."""
    return [part for layer in structure.layers for part in layer.parameters() if part is not None]


def updates_so_far(optimizer: Optimizer, parameter: Tensor) -> int:
    """How many updates a parameter has had; SGD does not count, and 1 stands for some."""
    state = optimizer.state.get(parameter, {})
    if "step" in state:
        return int(state["step"])
    return int(state.get("momentum_buffer") is not None)


def decays(optimizer: Optimizer, structure: Structure) -> Sequence[tuple[float, float]]:
    """The weight decay of every layer's weight and bias."""
    found = options_by_parameter(optimizer)
    return [
        (float(found[weight]["weight_decay"]), 0.0 if bias is None else float(found[bias]["weight_decay"]))
        for weight, bias in (layer.parameters() for layer in structure.layers)
    ]


_SHARED = ("lr", "betas", "eps", "momentum", "dampening", "nesterov", "decoupled_weight_decay")


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, Tensor) else value


def _is_decoupled(options: Options) -> bool:
    return bool(options.get("decoupled_weight_decay"))
