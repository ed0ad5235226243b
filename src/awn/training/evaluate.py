"""Evaluation in chunks: a model's outputs, mean loss and accuracy, without gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from awn.core.gate import read_once
from awn.errors import ArgumentError
from awn.training.data import Data

#: The mean negative log-likelihood of targets, given outputs and, optionally, sample weights.
Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]
#: The score of a model on data; higher is better.
Score = Callable[[nn.Module, Data], float]

_SAMPLES_AT_A_TIME = 1024  # the activations of a large data set may not fit into memory


def as_loss(loss: Callable[..., Tensor], *, weighted: bool) -> Loss:
    """A loss as `fit` calls it, with the samples' weights as third argument; torch's own losses take two.

    >>> as_loss(nn.MSELoss(), weighted=False)(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]), None)
    tensor(2.)
    """
    called = loss.forward if isinstance(loss, nn.Module) else loss
    try:
        parameters = inspect.signature(called)
    except (TypeError, ValueError):  # of something built in
        return loss
    takes_weights = _takes(parameters, 3) and getattr(loss, "__module__", "") != F.__name__
    if weighted and not takes_weights:
        raise ArgumentError(
            f"the samples have weights, but the loss {getattr(loss, '__name__', loss)} takes none. It is called as "
            "loss(output, y, weight): pass one of awn.likelihood, or a function of these three."
        )
    if takes_weights or not _takes(parameters, 2):
        return loss
    return lambda output, y, _: loss(output, y)


def _takes(parameters: inspect.Signature, number: int) -> bool:
    try:
        parameters.bind(*range(number))
    except TypeError:
        return False
    return True


def all_outputs(model: nn.Module, x: Tensor) -> Tensor:
    """A model's outputs for many samples. The mode of the model, training or evaluation, is not changed.

    >>> all_outputs(nn.Linear(2, 3), torch.zeros(5000, 2)).shape
    torch.Size([5000, 3])
    """
    with _evaluating(model):
        return torch.cat([model(part) for part in x.split(_SAMPLES_AT_A_TIME)])


def mean_loss(model: nn.Module, data: Data, loss: Loss) -> float:
    """The mean of a loss over all samples.

    >>> import awn
    >>> data = Data(torch.zeros(5000, 2), torch.zeros(5000, dtype=torch.long))
    >>> round(mean_loss(nn.Identity(), data, awn.likelihood.categorical), 3)   # two classes, equally likely: log 2
    0.693
    """
    with _evaluating(model):
        return sum(_sum_of_losses(part, model(part.x), loss) for part in _parts(data)) / len(data.y)


def accuracy(model: nn.Module, data: Data) -> float:
    """The fraction of samples, weighted if they have weights, whose class has the largest output.

    >>> accuracy(nn.Identity(), Data(torch.eye(4), torch.tensor([0, 1, 2, 0])))
    0.75
    """
    with _evaluating(model):
        return sum(_weight_of_hits(part, model(part.x)) for part in _parts(data)) / _weight(data)


def score_and_loss(model: nn.Module, data: Data, score: Score | None, loss: Loss) -> tuple[float, float]:
    """A score, by default minus the mean loss, and the mean loss. `accuracy` needs no second pass over the data.

    >>> import awn
    >>> data = Data(torch.eye(2), torch.tensor([0, 0]))
    >>> score_and_loss(nn.Identity(), data, accuracy, awn.likelihood.categorical)
    (0.5, 0.813...)
    """
    if score is not accuracy:
        found = mean_loss(model, data, loss)
        return (-found if score is None else score(model, data)), found
    hits = total = 0.0
    with _evaluating(model):
        for part in _parts(data):
            output = model(part.x)
            hits += _weight_of_hits(part, output)
            total += _sum_of_losses(part, output, loss)
    return hits / _weight(data), total / len(data.y)


def _sum_of_losses(part: Data, output: Tensor, loss: Loss) -> float:
    return len(part.y) * loss(output, part.y, part.weight).item()


def _weight_of_hits(part: Data, output: Tensor) -> float:
    hits = output.argmax(1) == part.y
    return float(hits.sum() if part.weight is None else part.weight.double() @ hits.double())


def _weight(data: Data) -> float:
    return float(len(data.y) if data.weight is None else data.weight.double().sum())


def _parts(data: Data) -> Iterator[Data]:
    for start in range(0, len(data.y), _SAMPLES_AT_A_TIME):
        rows = slice(start, start + _SAMPLES_AT_A_TIME)
        yield Data(data.x[rows], data.y[rows], None if data.weight is None else data.weight[rows])


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without gradients. Every gated weight is computed once, not for every part of the data."""
    with torch.no_grad(), read_once(model):
        yield
