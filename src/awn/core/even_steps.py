"""Even steps: SGD moves the product of weight and importance, not the weight alone.

A network uses the products f_j w_j. A step of SGD changes w_j by η f_j ∂L/∂(f_j w_j), so it changes the product by f_j²
times what it would change in a network without importances. At k = 0.9, the last unit of an exponential is a hundred
times as slow as the first.
"""

from __future__ import annotations

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
    `weight_decay` of the optimizer decays the products. `remove()` of the returned handle ends it.

    Optimizers such as Adam divide by the size of the gradient, so this has no effect on them, and they are refused.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> optimizer = torch.optim.SGD(awn.param_groups(model, lr=0.1))
    >>> handle = even_steps_(model, optimizer)
    """
    require_groups(model)
    if not isinstance(optimizer, SGD):
        raise OptimizerError(
            f"even_steps_ is for SGD. Steps of {type(optimizer).__name__} do not depend on the size of the gradient, "
            "so dividing it by the importance would not change them."
        )
    if any(group.get(HAS_PRIOR) for group in optimizer.param_groups):
        raise OptimizerError(
            "even_steps_ cannot divide the prior that the optimizer applies as weight decay. Call awn.param_groups "
            "without prior=…, and leave the prior to awn.objective."
        )
    layers = [layer for layer in unwrapped(model).modules() if isinstance(layer, Gated)]

    def divide(_: Optimizer, __: Any, ___: Any) -> None:
        for layer in layers:
            _divide_gradients_(layer)

    return optimizer.register_step_pre_hook(divide)


@torch.no_grad()
def _divide_gradients_(layer: nn.Module) -> None:
    """Divide the gradients of a layer's gated weights by the squared importance; inert entries have none."""
    for name, gates in gates_of(layer).items():
        weight = layer._parameters[name]
        for gate in gates:
            if weight is None or weight.grad is None:
                continue
            importance = gate.importance(weight)
            factor = torch.where(importance > 0, importance, 1).square()
            weight.grad.div_(factor.view(-1, *[1] * (weight.dim() - 1 - gate.dim)))
