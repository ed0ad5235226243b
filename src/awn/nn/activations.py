"""Activations by name."""

from __future__ import annotations

from torch import nn

from awn.errors import ArgumentError

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softsign": nn.Softsign,
    "hardtanh": nn.Hardtanh,
    "identity": nn.Identity,
}


def make_activation(activation: str | nn.Module) -> nn.Module:
    """The activation module for a name; a module is returned as it is.

    >>> make_activation("relu6")
    ReLU6()
    """
    if isinstance(activation, nn.Module):
        return activation
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ArgumentError(
            f"unknown activation {activation!r}. Known: {', '.join(sorted(ACTIVATIONS))}; or pass a module."
        )
    return ACTIVATIONS[activation]()
