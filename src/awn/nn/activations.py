"""Activations by name."""

from __future__ import annotations

import copy

import torch
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
    """The activation module for a name; a module is returned as it is, if it acts on each unit alone.

    >>> make_activation("relu6")
    ReLU6()
    """
    if isinstance(activation, nn.Module):
        _check_acts_by_unit(activation)
        return activation
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ArgumentError(
            f"unknown activation {activation!r}. Known: {', '.join(sorted(ACTIVATIONS))}; or pass a module."
        )
    return ACTIVATIONS[activation]()


def _check_acts_by_unit(activation: nn.Module) -> None:
    """Raise for a module that mixes units, or whose tensors have an entry for each: layers change their width."""
    if any(tensor.is_meta for tensor in activation.state_dict().values()):
        return
    probe = copy.deepcopy(activation).eval().to("cpu", torch.float32)
    units = torch.linspace(-2, 2, 24, device="cpu").view(3, 8)  # also where the default device is meta
    try:
        with torch.no_grad():
            whole, part = probe(units), probe(units[:, :5])
        alone = whole.shape == units.shape and torch.allclose(whole[:, :5], part, equal_nan=True)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ArgumentError(f"activation {activation} does not act on any number of units: {error}") from error
    if not alone:
        raise ArgumentError(
            f"activation {activation} mixes the units of a layer, so spare slots of an adaptive layer would change its "
            "outputs. Pass one that acts on each unit alone, such as nn.SiLU()."
        )
