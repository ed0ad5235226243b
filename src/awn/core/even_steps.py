"""Even steps: SGD moves the product of weight and importance, not the weight alone.

A network uses the products f_j w_j. A step of SGD changes w_j by η f_j ∂L/∂(f_j w_j), so it changes the product by f_j²
times what it would change in a network without importances. At k = 0.9, the last unit of an exponential is a hundred
times as slow as the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.utils.hooks import RemovableHandle

from awn.core.gate import Gated, gates_of
from awn.core.groups import require_groups
from awn.core.optimizers import HAS_PRIOR
from awn.errors import OptimizerError
from awn.parallel.unwrap import unwrapped


def even_steps_(model: nn.Module, optimizer: SGD) -> RemovableHandle:
    """Have SGD train all units at the same pace, whatever their importance.

    Before each step, the gradient of a weight that reads units is divided by the square of their importance. The
    products that the network computes with then take the steps of an ordinary network: with fixed widths, an adaptive
    network trains like the plain one that it computes. The gradients of ν and of all other parameters stay as they are.
    `remove()` of the returned handle ends it.

    `weight_decay` of the optimizer decays the products. The prior of `awn.objective` is part of the gradient, so it is
    divided as well. Gradients are divided after any clipping, and stay divided until `zero_grad`.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> optimizer = torch.optim.SGD(awn.param_groups(model, lr=0.1))
    >>> handle = even_steps_(model, optimizer)
    """
    require_groups(model)
    if not isinstance(optimizer, SGD):
        raise OptimizerError(
            f"even_steps_ is for one torch.optim.SGD, got {type(optimizer).__name__}. If several optimizers share the "
            "model, call it for each SGD. Optimizers such as Adam divide by the size of the gradient, so it would not "
            "change their steps."
        )
    if any(group.get(HAS_PRIOR) for group in optimizer.param_groups):
        raise OptimizerError(
            "even_steps_ cannot divide the prior that the optimizer applies as weight decay. Call awn.param_groups "
            "without prior=…, and leave the prior to awn.objective."
        )
    layers = [layer for layer in unwrapped(model).modules() if isinstance(layer, Gated)]

    def divide(_: Optimizer, args: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        closure = args[1] if len(args) > 1 else named.get("closure")
        if closure is None:
            _divide_gradients_(layers, optimizer)
            return None

        def closure_then_divide() -> Any:  # before it runs there are no gradients, or those of the step before
            loss = closure()
            _divide_gradients_(layers, optimizer)
            return loss

        return args[:1], {**named, "closure": closure_then_divide}

    return optimizer.register_step_pre_hook(divide)


@torch.no_grad()
def _divide_gradients_(layers: Sequence[nn.Module], optimizer: Optimizer) -> None:
    """Divide the gradients of the optimizer's gated weights by the squared importance; inert entries have none."""
    held = {weight for group in optimizer.param_groups for weight in group["params"]}
    for layer in layers:
        for name, gates in gates_of(layer).items():
            weight = layer._parameters[name]
            if weight is None or weight.grad is None or weight not in held:
                continue
            for gate in gates:
                importance = gate.importance(weight, in_forward=False)
                factor = torch.where(importance > 0, importance, 1).view(-1, *[1] * (weight.dim() - 1 - gate.dim))
                weight.grad.div_(factor).div_(factor)  # twice: the square of a small importance would be 0
