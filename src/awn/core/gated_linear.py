"""A gated linear map that keeps neither scaled inputs nor scaled weights for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

# Below this number of scaled elements, the call of a Python function in autograd costs more than the memory is worth.
_MANY_ELEMENTS = 2**14


def saves_memory(inputs: Tensor, weight: Tensor) -> bool:
    """Whether `gated_linear` applies to these tensors and is worth its call.

    >>> saves_memory(torch.zeros(128, 2), torch.zeros(2, 2)), saves_memory(torch.zeros(512, 512), torch.zeros(512, 512))
    (False, True)
    """
    return (
        min(inputs.numel(), weight.numel()) >= _MANY_ELEMENTS
        and torch.is_grad_enabled()
        and not torch.is_autocast_enabled(inputs.device.type)
        and forward_ad._current_level < 0
        and inputs.dtype == weight.dtype
        and inputs.is_meta == weight.is_meta
    )


def gated_linear(inputs: Tensor, weight: Tensor, bias: Tensor | None, importance: Tensor) -> Tensor:
    """(f ⊙ h) Wᵀ + b, which scales the inputs or the weight, whichever has fewer elements.

    Autograd would keep the scaled tensor beside the original. This function computes it again in the backward pass.

    >>> inputs, weight, importance = torch.ones(2, 3), torch.ones(1, 3), torch.tensor([1.0, 0.5, 0.25])
    >>> gated_linear(inputs, weight, None, importance)
    tensor([[1.7500],
            [1.7500]])
    """
    out: Tensor = _GatedLinear.apply(inputs, weight, bias, importance)  # type: ignore[no-untyped-call]
    return out


class _GatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, importance: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight, importance)
        if inputs.numel() < weight.numel():
            return F.linear(inputs * importance, weight, bias)
        return F.linear(inputs, weight * importance, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, importance = ctx.saved_tensors
        reads, trains_weight, trains_bias, trains_importance = ctx.needs_input_grad
        rows, grad = inputs.reshape(-1, inputs.shape[-1]), grads[0].reshape(-1, weight.shape[0])
        of_inputs = of_weight = of_importance = of_bias = None
        # Written in differentiable operations, for second derivatives. In place only if none are recorded.
        multiply = torch.mul if torch.is_grad_enabled() else Tensor.mul_
        if inputs.numel() < weight.numel():
            if reads or trains_importance:
                of_scaled = grad.mm(weight)
                of_importance = (of_scaled * rows).sum(0) if trains_importance else None
                of_inputs = multiply(of_scaled, importance).view_as(inputs) if reads else None
            # Last, so that the product above is gone before the larger gradient of the weight is made.
            of_weight = multiply(grad.t().mm(rows), importance) if trains_weight else None
        else:
            if trains_weight or trains_importance:
                of_scaled = grad.t().mm(rows)
                of_importance = (of_scaled * weight).sum(0) if trains_importance else None
                of_weight = multiply(of_scaled, importance) if trains_weight else None
            of_inputs = grad.mm(weight * importance).view_as(inputs) if reads else None
        if trains_bias:
            of_bias = grad.sum(0)
        return of_inputs, of_weight, of_bias, of_importance
