"""The paper's models: plain PyTorch, with perceptrons inside whose widths are fixed or learned."""

from __future__ import annotations

import warnings

from torch import nn

from awn_paper.data.dataset import Dataset
from awn_paper.models.channels import ChannelResNet20
from awn_paper.models.gin import GIN
from awn_paper.models.mlp import MLP
from awn_paper.models.perceptron import (
    Budgeted,
    BudgetedUnevenly,
    Fixed,
    Learned,
    LearnedEvenly,
    LearnedInOrder,
    Priced,
    Widths,
    learn_widths_,
)
from awn_paper.models.resnet import ResNet20
from awn_paper.models.rnn import RNN
from awn_paper.models.transformer import Transformer

Network = MLP | ResNet20 | ChannelResNet20 | RNN | GIN | Transformer

__all__ = [
    "GIN",
    "MLP",
    "RNN",
    "Budgeted",
    "BudgetedUnevenly",
    "ChannelResNet20",
    "Fixed",
    "Learned",
    "LearnedEvenly",
    "LearnedInOrder",
    "Network",
    "Priced",
    "ResNet20",
    "Transformer",
    "Widths",
    "build",
]


def build(network: Network, data: Dataset, widths: Widths) -> nn.Module:
    """A network for a data set, its widths fixed or learned.

    >>> import awn
    >>> from awn_paper.data import load
    >>> awn.widths(build(MLP(layers=2), load("Spiral"), Learned(awn.Exponential(rate=0.01, scale="mass"))))
    {'hidden.0': 231, 'hidden.1': 231}
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "quantile=", UserWarning)  # low ones are the subject of an experiment
        model = network.build(data, widths)
        if isinstance(widths, Learned) and isinstance(network, ChannelResNet20):
            network.learn_(model, widths, data)
        elif isinstance(widths, Learned):
            learn_widths_(model, widths)
    return model
