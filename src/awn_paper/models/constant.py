"""Fixed widths in an `AdaptiveMLP`, which `awn.training.fit` trains without autograd, as it does learned ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from awn.core.importance import Importance
from awn.nn.mlp import AdaptiveMLP
from awn_paper.models.perceptron import Perceptron

_QUANTILE = 0.9


@dataclass(frozen=True)
class Constant(Importance):
    """The importance 1 for every unit, whatever the learned value: its gradient is zero, so the width stays.

    As a distribution it is the uniform one on [0, `upto`).
    """

    learned: ClassVar[str] = "upto"
    upto: float = 128 / _QUANTILE

    def survival(self, x: Tensor, value: Tensor) -> Tensor:
        """See `Importance`."""
        return (1 - x / value).clamp(0, 1)

    def inverse_survival(self, p: Tensor, value: Tensor) -> Tensor:
        """See `Importance`."""
        return (1 - p) * value

    def mass(self, index: Tensor, value: Tensor) -> Tensor:
        """1, and not a share: the layer behind reads the units as they are."""
        return torch.ones_like(index * value)

    def slope(self, index: Tensor, value: Tensor, mass: Tensor) -> Tensor:
        """See `Importance`."""
        return torch.zeros_like(mass)


def fixed_without_autograd(plain: Perceptron, activation: str) -> AdaptiveMLP:
    """The network of the same function and weights as a plain perceptron.

    >>> plain = Perceptron(2, [5, 7], 3, "relu6")
    >>> model = fixed_without_autograd(plain, "relu6")
    >>> x = torch.randn(4, 2)
    >>> torch.allclose(model(x), plain(x)), [layer.out_features for layer in model.hidden]
    (True, [5, 7])
    """
    linears = [layer for layer in plain if isinstance(layer, nn.Linear)]
    model = AdaptiveMLP(
        linears[0].in_features,
        linears[-1].out_features,
        len(linears) - 1,
        activation=activation,
        importance=[Constant((layer.out_features - 0.5) / _QUANTILE, scale="mass") for layer in linears[:-1]],
        quantile=_QUANTILE,
        block=1,
    )
    weights = [tensor for name, tensor in model.named_parameters() if not name.endswith("log_nu")]
    with torch.no_grad():
        for tensor, same in zip(weights, plain.parameters(), strict=True):
            tensor.copy_(same)
    return model
