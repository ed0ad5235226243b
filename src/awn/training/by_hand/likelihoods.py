"""The data term of a step and its gradient, for the likelihoods that are known by hand."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from awn.loss import likelihood
from awn.training.by_hand.batches import Batch
from awn.training.data import Data
from awn.training.evaluate import Loss


class DataTerm(ABC):
    """The mean negative log-likelihood of batches of one size, and its gradient `d` with respect to the outputs."""

    #: Whether targets are classes, whose batches `batches` spreads over the outputs.
    of_classes = False

    def __init__(self, outputs: int, samples: int, dtype: torch.dtype) -> None:
        self.share = 1 / samples
        self.d = torch.empty(outputs, samples, dtype=dtype)
        self.flat = self.d.view(-1)

    @abstractmethod
    def loss(self, z: Tensor, batch: Batch) -> Tensor:
        """The data term at the outputs z [outputs, samples]; `d` becomes its gradient."""


class CategoricalTerm(DataTerm):
    """Σ t log softmax(z), with the gradient t − Σ t · softmax(z), for targets t = −weight/samples at one class."""

    of_classes = True

    def loss(self, z: Tensor, batch: Batch) -> Tensor:
        """See `DataTerm`."""
        torch.log_softmax(z, 0, out=self.d)
        found = torch.dot(batch.flat_target, self.flat)
        self.d.exp_()
        if batch.shares is None:
            torch.add(batch.target, self.d, alpha=self.share, out=self.d)
        else:
            self.d.mul_(batch.shares).add_(batch.target)
        return found


class GaussianTerm(DataTerm):
    """Σ (z − y)² / (2 deviation²) and its constant, as a weighted mean over the samples."""

    def __init__(self, outputs: int, samples: int, dtype: torch.dtype, deviation: float = 1.0) -> None:
        super().__init__(outputs, samples, dtype)
        self.error = torch.empty_like(self.d)
        self.flat_error = self.error.view(-1)
        self.precision = deviation**-2
        self.constant = outputs * (math.log(deviation) + 0.5 * math.log(2 * math.pi))

    def loss(self, z: Tensor, batch: Batch) -> Tensor:
        """See `DataTerm`."""
        torch.sub(z, batch.target, out=self.error)
        if batch.shares is None:
            torch.mul(self.error, self.share * self.precision, out=self.d)
            return torch.dot(self.flat_error, self.flat).mul_(0.5).add_(self.constant)
        torch.mul(self.error, batch.shares, out=self.d).mul_(self.precision)
        return torch.dot(self.flat_error, self.flat).mul_(0.5).add_(batch.shares.sum(), alpha=self.constant)


class BernoulliTerm(DataTerm):
    """Σ softplus(z) − y z, as a weighted mean over the samples."""

    def loss(self, z: Tensor, batch: Batch) -> Tensor:
        """See `DataTerm`."""
        shares: float | Tensor = self.share if batch.shares is None else batch.shares
        torch.sigmoid(z, out=self.d).sub_(batch.target).mul_(shares)
        each = torch.nn.functional.softplus(z).sub_(z * batch.target)
        return each.mul_(shares).sum()


#: Makes the term for batches of a size: (outputs, samples, dtype) → DataTerm.
MakeTerm = Callable[[int, int, torch.dtype], DataTerm]


def term_by_hand(loss: Loss, data: Data, outputs: int) -> MakeTerm | str:
    """How to make the data term by hand, or a sentence that says why it cannot be made.

    >>> data = Data(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0]))
    >>> term_by_hand(likelihood.categorical, data, outputs=2)
    <class '...CategoricalTerm'>
    >>> term_by_hand(likelihood.gaussian, data, outputs=2)
    'the targets are not numbers of the shape [samples, outputs]'
    """
    y, weight = data.y, data.weight
    if weight is not None and (weight.shape != y.shape[:1] or weight.dtype != data.x.dtype):
        return "the samples' weights are not one number each, in the precision of the inputs"
    if loss is likelihood.categorical:
        is_class = y.dim() == 1 and y.dtype == torch.int64 and int(y.min()) >= 0 and int(y.max()) < outputs
        return CategoricalTerm if is_class else "the targets are not the numbers of classes"
    make = _numeric_term(loss)
    if make is None:
        return "the loss is none of awn.likelihood.categorical, gaussian and bernoulli"
    if y.shape != (len(data.x), outputs) or y.dtype != data.x.dtype:
        return "the targets are not numbers of the shape [samples, outputs]"
    return make


def _numeric_term(loss: Loss) -> MakeTerm | None:
    if loss is likelihood.bernoulli:
        return BernoulliTerm
    if loss is likelihood.gaussian:
        return GaussianTerm
    if isinstance(loss, partial) and loss.func is likelihood.gaussian and not loss.args:
        return partial(GaussianTerm, **loss.keywords) if set(loss.keywords) <= {"deviation"} else None
    return None
