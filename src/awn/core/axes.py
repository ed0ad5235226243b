"""The axes of torch's layers: the dimensions that produce units, and those that consume them."""

from __future__ import annotations

from torch import nn

from awn.core.axis import Axis


def produced_by(layer: nn.Linear) -> list[Axis]:
    """The producer axes of a linear layer: its outputs are units.

    >>> [str(axis) for axis in produced_by(nn.Linear(2, 3))]
    ['Linear.weight', 'Linear.bias']
    """
    weight = Axis(layer, "weight", 0, "producer", size_name="out_features")
    return [weight] if layer.bias is None else [weight, Axis(layer, "bias", 0, "producer")]


def consumed_by(layer: nn.Linear, repeat: int = 1) -> list[Axis]:
    """The consumer axis of a linear layer: its inputs are units, `repeat` inputs per unit.

    >>> [(str(axis), axis.dim) for axis in consumed_by(nn.Linear(2, 3))]
    [('Linear.weight', 1)]
    """
    return [Axis(layer, "weight", 1, "consumer", repeat=repeat, size_name="in_features")]


def normalised_by(norm: nn.modules.batchnorm._NormBase) -> list[Axis]:
    """The axes of a batch or instance norm over units. A new unit starts with the identity transform.

    >>> [(axis.name, axis.fill) for axis in normalised_by(nn.BatchNorm1d(3))]
    [('weight', 1.0), ('bias', 0.0), ('running_mean', 0.0), ('running_var', 1.0)]
    """
    starts = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}
    return [
        Axis(norm, name, 0, "producer", fill=start, size_name="num_features")
        for name, start in starts.items()
        if getattr(norm, name) is not None
    ]
