"""The data term of a step and its gradient, for the likelihoods that are known by hand."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from awn.loss import likelihood
from awn.training.data import Data
from awn.training.evaluate import Loss


class DataTerm(ABC):
    """The mean negative log-likelihood of batches of one size, and its gradient."""

    def __init__(self, data: Data, outputs: int, samples: int) -> None:
        self.y, self.weight = data.y, data.weight
        made: dict[str, Any] = {"dtype": data.x.dtype}
        self.d = torch.empty(outputs, samples, **made)
        self.flat = self.d.view(-1)
        self.share = 1 / samples
        self.shares = None if data.weight is None else torch.empty(samples, **made)

    @abstractmethod
    def take(self, rows: Tensor) -> None:
        """Fetch the targets and the weights of a batch."""

    @abstractmethod
    def loss(self, z: Tensor) -> Tensor:
        """The data term at the outputs z [outputs, samples]; `d` becomes its gradient. z may be overwritten."""

    def _take_weights(self, rows: Tensor) -> None:
        if self.weight is not None:
            torch.mul(self.weight.index_select(0, rows), self.share, out=self.shares)


class CategoricalTerm(DataTerm):
    """−Σ t log softmax(z), whose gradient is Σ t · softmax(z) − t, for targets t of weight/samples at one class."""

    def __init__(self, data: Data, outputs: int, samples: int) -> None:
        super().__init__(data, outputs, samples)
        scale = self.share if self.weight is None else 1.0
        self.classes = torch.eye(outputs, dtype=data.x.dtype).mul_(-scale)
        self.target = torch.empty_like(self.d)
        self.flat_target = self.target.view(-1)

    def take(self, rows: Tensor) -> None:
        """See `DataTerm`."""
        self._take_weights(rows)
        torch.index_select(self.classes, 1, self.y.index_select(0, rows), out=self.target)
        if self.shares is not None:
            self.target.mul_(self.shares)

    def loss(self, z: Tensor) -> Tensor:
        """See `DataTerm`."""
        torch.log_softmax(z, 0, out=self.d)
        found = torch.dot(self.flat_target, self.flat)
        self.d.exp_()
        if self.shares is None:
            torch.add(self.target, self.d, alpha=self.share, out=self.d)
        else:
            self.d.mul_(self.shares).add_(self.target)
        return found


class GaussianTerm(DataTerm):
    """Σ (z − y)² / (2 deviation²) and its constant, as a weighted mean over the samples."""

    def __init__(self, data: Data, outputs: int, samples: int, deviation: float = 1.0) -> None:
        super().__init__(data, outputs, samples)
        self.target = torch.empty(samples, outputs, dtype=data.x.dtype)
        self.target_t = self.target.t()
        self.scaled = torch.empty_like(self.d)
        self.flat_scaled = self.scaled.view(-1)
        self.precision = deviation**-2
        self.constant = outputs * (math.log(deviation) + 0.5 * math.log(2 * math.pi))

    def take(self, rows: Tensor) -> None:
        """See `DataTerm`."""
        self._take_weights(rows)
        torch.index_select(self.y, 0, rows, out=self.target)

    def loss(self, z: Tensor) -> Tensor:
        """See `DataTerm`."""
        torch.sub(z, self.target_t, out=self.scaled)
        if self.shares is None:
            torch.mul(self.scaled, self.share * self.precision, out=self.d)
            return torch.dot(self.flat_scaled, self.flat).mul_(0.5).add_(self.constant)
        torch.mul(self.scaled, self.shares, out=self.d).mul_(self.precision)
        return torch.dot(self.flat_scaled, self.flat).mul_(0.5).add_(self.shares.sum(), alpha=self.constant)


class BernoulliTerm(GaussianTerm):
    """Σ softplus(z) − y z, as a weighted mean over the samples."""

    def loss(self, z: Tensor) -> Tensor:
        """See `DataTerm`."""
        each = torch.nn.functional.softplus(z).sub_(z * self.target_t)
        torch.sigmoid(z, out=self.d).sub_(self.target_t)
        shares: float | Tensor = self.share if self.shares is None else self.shares
        self.d.mul_(shares)
        return each.mul_(shares).sum()


#: Makes the term for batches of a size: (data, outputs, samples) → DataTerm.
MakeTerm = Callable[[Data, int, int], DataTerm]


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
