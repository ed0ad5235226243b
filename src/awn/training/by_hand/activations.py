"""Activations as a pair of in-place operations: forward, and the gradient's way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

#: Writes act(z) to h, which may be the same tensor.
Forward = Callable[[Tensor, Tensor], Any]
#: Multiplies d in place by act'(z), given z and h = act(z).
Backward = Callable[[Tensor, Tensor, Tensor], Any]


@dataclass(frozen=True)
class Activation:
    """An activation by hand.

    `keeps_input`: backward reads z, so that h needs a tensor of its own. `by_sign`: backward reads the sign of h alone,
    so that h may be scaled in place.
    """

    forward: Forward
    backward: Backward
    keeps_input: bool = False
    by_sign: bool = False


def activation_by_hand(module: nn.Module) -> Activation | None:
    """The in-place operations of an activation module, or None if it is not one that is known here.

    >>> z = torch.tensor([-1.0, 2.0])
    >>> activation = activation_by_hand(nn.ReLU())
    >>> activation.forward(z, z)
    tensor([0., 2.])
    """
    make = _KNOWN.get(type(module))
    if make is None or module._forward_hooks or module._forward_pre_hooks:
        return None
    try:
        return make(module)
    except AttributeError:  # this version of torch has no such private operation
        return by_autograd(module)


def by_autograd(module: nn.Module) -> Activation:
    """The public way, for versions of torch without the operations below: autograd, through the activation alone.

    >>> d, z = torch.ones(2), torch.tensor([-1.0, 2.0])
    >>> by_autograd(nn.ReLU()).backward(d, z, z)
    tensor([0., 1.])
    """

    def forward(z: Tensor, h: Tensor) -> Tensor:
        return h.copy_(module(z))

    def backward(d: Tensor, z: Tensor, h: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            entering = z.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(module(entering), entering, d.clone())
        return d.copy_(gradient)

    return Activation(forward, backward, keeps_input=True)


def _private(name: str, overload_name: str = "grad_input") -> Callable[..., Tensor]:
    """An operation of torch that writes to a given tensor, without the Python layer on top."""
    overload = getattr(getattr(torch.ops.aten, name), overload_name)
    operation: Callable[..., Tensor] = getattr(overload, "_op", overload)
    return operation


def _relu(module: Any) -> Activation:
    back = _private("threshold_backward")
    return Activation(lambda z, h: torch.relu_(z), lambda d, z, h: back(d, h, 0, grad_input=d), by_sign=True)


def _hardtanh(module: Any) -> Activation:
    low, high, back = module.min_val, module.max_val, _private("hardtanh_backward")
    return Activation(
        lambda z, h: torch.clamp(z, low, high, out=z), lambda d, z, h: back(d, h, low, high, grad_input=d)
    )


def _leaky_relu(module: Any) -> Activation:
    slope, back = module.negative_slope, _private("leaky_relu_backward")
    if slope < 0:  # the sign of the output does not tell that of the input
        return by_autograd(module)
    forward = nn.functional.leaky_relu_
    return Activation(
        lambda z, h: forward(z, slope), lambda d, z, h: back(d, h, slope, True, grad_input=d), by_sign=True
    )


def _elu(module: Any) -> Activation:
    alpha, back = module.alpha, _private("elu_backward")
    if alpha < 0:
        return by_autograd(module)
    return Activation(
        lambda z, h: nn.functional.elu_(z, alpha), lambda d, z, h: back(d, alpha, 1, 1, True, h, grad_input=d)
    )


def _tanh(module: Any) -> Activation:
    back = _private("tanh_backward")
    return Activation(lambda z, h: torch.tanh_(z), lambda d, z, h: back(d, h, grad_input=d))


def _sigmoid(module: Any) -> Activation:
    back = _private("sigmoid_backward")
    return Activation(lambda z, h: torch.sigmoid_(z), lambda d, z, h: back(d, h, grad_input=d))


def _softsign(module: Any) -> Activation:
    """H = z/(1 + |z|), with the slope (1 − |h|)²."""
    return Activation(lambda z, h: z.div_(z.abs().add_(1)), lambda d, z, h: d.mul_(h.abs().neg_().add_(1).square_()))


def _silu(module: Any) -> Activation:
    to, back = _private("silu", "out"), _private("silu_backward")
    return Activation(lambda z, h: to(z, out=h), lambda d, z, h: back(d, z, grad_input=d), True)


def _gelu(module: Any) -> Activation:
    kind, to, back = module.approximate, _private("gelu", "out"), _private("gelu_backward")
    return Activation(
        lambda z, h: to(z, approximate=kind, out=h),
        lambda d, z, h: back(d, z, approximate=kind, grad_input=d),
        True,
    )


def _softplus(module: Any) -> Activation:
    beta, threshold = module.beta, module.threshold
    to, back = _private("softplus", "out"), _private("softplus_backward")
    return Activation(
        lambda z, h: to(z, beta, threshold, out=h),
        lambda d, z, h: back(d, z, beta, threshold, grad_input=d),
        True,
    )


def _mish(module: Any) -> Activation:
    to, back = _private("mish", "out"), _private("mish_backward", "default")
    return Activation(lambda z, h: to(z, out=h), lambda d, z, h: d.copy_(back(d, z)), True)


def _identity(module: Any) -> Activation:
    return Activation(lambda z, h: z, lambda d, z, h: d, by_sign=True)


_KNOWN: dict[type[nn.Module], Callable[[Any], Activation]] = {
    nn.ReLU: _relu,
    nn.ReLU6: _hardtanh,
    nn.Hardtanh: _hardtanh,
    nn.LeakyReLU: _leaky_relu,
    nn.ELU: _elu,
    nn.GELU: _gelu,
    nn.SiLU: _silu,
    nn.Mish: _mish,
    nn.Softplus: _softplus,
    nn.Tanh: _tanh,
    nn.Sigmoid: _sigmoid,
    nn.Softsign: _softsign,
    nn.Identity: _identity,
}
