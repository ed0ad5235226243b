"""Likelihoods: the data term of the objective, the mean of −log p(y | x) over the samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from awn.basics.checks import check_number
from awn.errors import ArgumentError


def categorical(logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
    """Classification: logits [samples, classes], target [samples] of class numbers.

    >>> import torch
    >>> categorical(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor(0.6931)
    """
    if sample_weight is None:
        return F.cross_entropy(logits, target)
    return _weighted(_of_categorical(logits, target), sample_weight)


def bernoulli(logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
    """Independent binary outputs: logits and targets in 0 … 1 of the same shape [samples, outputs].

    >>> import torch
    >>> bernoulli(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(1.3863)
    """
    return _weighted(_of_bernoulli(logits, target), sample_weight)


def gaussian(mean: Tensor, target: Tensor, sample_weight: Tensor | None = None, *, deviation: float = 1.0) -> Tensor:
    """Regression with Gaussian noise of standard deviation `deviation`: mean and target [samples, outputs].

    >>> import torch
    >>> gaussian(torch.tensor([[0.0]]), torch.tensor([[2.0]]))
    tensor(2.9189)
    """
    return _weighted(_of_gaussian(mean, target, deviation), sample_weight)


def of_samples(loss: Callable[..., Any], output: Any, target: Any, sample_weight: Any) -> Tensor | None:
    """The loss of every sample, [samples], weighted; None for a loss or tensors whose mean is not over samples alone.

    Many means over some of the samples each take one call this way.

    >>> import torch
    >>> of_samples(categorical, torch.tensor([[0.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 1]), None)
    tensor([0.6931, 0.3133])
    >>> of_samples(F.l1_loss, torch.zeros(2, 1), torch.zeros(2, 1), None)
    """
    plain, options = (loss.func, loss.keywords) if isinstance(loss, partial) and not loss.args else (loss, {})
    known = _OF_SAMPLES.get(plain)
    if known is None or not isinstance(output, Tensor) or not isinstance(target, Tensor):
        return None
    # Classes below 0 are those that `cross_entropy` leaves out, and further dimensions are averaged over, too.
    if plain is categorical and (output.dim() != 2 or target.dim() != 1 or bool((target < 0).any())):
        return None
    each = known(output, target, **options)
    return each if sample_weight is None else each * sample_weight


def _of_categorical(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target, reduction="none")


def _of_bernoulli(logits: Tensor, target: Tensor) -> Tensor:
    _check_same_shape(logits, target)
    each = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    return each.reshape(len(each), -1).sum(1)


def _of_gaussian(mean: Tensor, target: Tensor, deviation: float = 1.0) -> Tensor:
    _check_same_shape(mean, target)
    check_number("deviation", deviation)
    each = F.mse_loss(mean, target, reduction="none") / (2 * deviation**2)
    constant = math.log(deviation) + 0.5 * math.log(2 * math.pi)
    return (each + constant).reshape(len(each), -1).sum(1)


_OF_SAMPLES: dict[Any, Callable[..., Tensor]] = {
    categorical: _of_categorical,
    bernoulli: _of_bernoulli,
    gaussian: _of_gaussian,
}


def _weighted(each: Tensor, sample_weight: Tensor | None) -> Tensor:
    """The mean over the samples. Weights have a mean of 1 over the whole data set, so they are not normalised here."""
    if sample_weight is None:
        return each.mean()
    _check_same_shape(each, sample_weight, "loss of the samples", "sample_weight")
    return (each * sample_weight).mean()


def _check_same_shape(first: Tensor, second: Tensor, name: str = "prediction", other: str = "target") -> None:
    if first.shape != second.shape:
        raise ArgumentError(
            f"the {name} has shape {tuple(first.shape)}, the {other} {tuple(second.shape)}; they must be equal: "
            f"torch would otherwise broadcast every sample against every other. Reshape one, e.g. {other}[:, None]."
        )
