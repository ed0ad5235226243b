"""The paper's models: plain PyTorch, with perceptrons inside whose widths are fixed or learned."""

from __future__ import annotations

from torch import nn

from awn.paper.data.dataset import Dataset
from awn.paper.models.mlp import MLP
from awn.paper.models.perceptron import Fixed, Learned, Widths, learn_widths_

Network = MLP

__all__ = ["MLP", "Fixed", "Learned", "Network", "Widths", "build"]


def build(network: Network, data: Dataset, widths: Widths) -> nn.Module:
    """A network for a data set, its widths fixed or learned.

    >>> import awn
    >>> from awn.paper.data import load
    >>> awn.widths(build(MLP(layers=2), load("Spiral"), Learned(awn.Exponential(rate=0.01))))
    {'hidden1': 231, 'hidden2': 231}
    """
    model = network.build(data, widths)
    if isinstance(widths, Learned):
        learn_widths_(model, widths)
    return model
