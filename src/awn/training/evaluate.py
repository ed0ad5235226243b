"""Evaluation in chunks: a model's outputs, mean loss and accuracy, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from awn.training.data import Data

#: The mean negative log-likelihood of targets, given outputs and, optionally, sample weights.
Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]
#: The score of a model on data; higher is better.
Score = Callable[[nn.Module, Data], float]

_SAMPLES_AT_A_TIME = 1024  # the activations of a large data set may not fit into memory


def all_outputs(model: nn.Module, x: Tensor) -> Tensor:
    """A model's outputs for many samples. The mode of the model, training or evaluation, is not changed.

    >>> all_outputs(nn.Linear(2, 3), torch.zeros(5000, 2)).shape
    torch.Size([5000, 3])
    """
    with torch.no_grad():
        return torch.cat([model(part) for part in x.split(_SAMPLES_AT_A_TIME)])


def mean_loss(model: nn.Module, data: Data, loss: Loss) -> float:
    """The mean of a loss over all samples.

    >>> import awn
    >>> data = Data(torch.zeros(5000, 2), torch.zeros(5000, dtype=torch.long))
    >>> round(mean_loss(nn.Identity(), data, awn.likelihood.categorical), 3)   # two classes, equally likely: log 2
    0.693
    """
    total = 0.0
    with torch.no_grad():
        for part in _parts(data):
            total += len(part.y) * loss(model(part.x), part.y, part.weight).item()
    return total / len(data.y)


def accuracy(model: nn.Module, data: Data) -> float:
    """The fraction of samples, weighted if they have weights, whose class has the largest output.

    >>> accuracy(nn.Identity(), Data(torch.eye(4), torch.tensor([0, 1, 2, 0])))
    0.75
    """
    right = total = 0.0
    with torch.no_grad():
        for part in _parts(data):
            hits = (model(part.x).argmax(1) == part.y).double()
            weight = torch.ones_like(hits) if part.weight is None else part.weight.double()
            right += (hits * weight).sum().item()
            total += weight.sum().item()
    return right / total


def _parts(data: Data) -> Iterator[Data]:
    for rows in torch.arange(len(data.y), device=data.x.device).split(_SAMPLES_AT_A_TIME):
        yield data.rows(rows)
