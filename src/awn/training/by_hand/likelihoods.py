"""The data term of a step and its gradient, for the likelihoods that are known by hand."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import numpy as np
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
        self.d = torch.empty(outputs, samples, dtype=dtype)
        #: The same memory for NumPy, whose calls cost less for few numbers.
        self.array = self.d.numpy()
        self.flat = self.array.reshape(-1)
        #: 1/samples, as an array of one number, which NumPy reads fastest.
        self.share = np.asarray(1 / samples, self.array.dtype)

    @abstractmethod
    def loss(self, z: Tensor, batch: Batch) -> float:
        """The data term at the outputs z [outputs, samples]; `d` becomes its gradient."""


class CategoricalTerm(DataTerm):
    """Σ t log softmax(z), with the gradient t − Σ t · softmax(z), for targets t = −weight/samples at one class."""

    of_classes = True

    def loss(self, z: Tensor, batch: Batch) -> float:
        """See `DataTerm`."""
        d = self.array
        torch.log_softmax(z, 0, out=self.d)
        found = float(batch.flat_target.dot(self.flat))
        np.exp(d, d)
        np.multiply(d, self.share if batch.shares is None else batch.shares, d)
        np.add(d, batch.target, d)
        return found


class GaussianTerm(DataTerm):
    """Σ (z − y)² / (2 deviation²) and its constant, as a weighted mean over the samples."""

    def __init__(self, outputs: int, samples: int, dtype: torch.dtype, deviation: float = 1.0) -> None:
        super().__init__(outputs, samples, dtype)
        self.error = np.empty_like(self.array)
        self.flat_error = self.error.reshape(-1)
        self.precision = np.asarray(deviation**-2, self.array.dtype)
        self.constant = outputs * (math.log(deviation) + 0.5 * math.log(2 * math.pi))

    def loss(self, z: Tensor, batch: Batch) -> float:
        """See `DataTerm`."""
        shares = self.share if batch.shares is None else batch.shares
        np.subtract(z.numpy(), batch.target, self.error)
        np.multiply(self.error, shares, self.array)
        np.multiply(self.array, self.precision, self.array)
        weights = 1.0 if batch.shares is None else float(batch.shares.sum())
        return 0.5 * float(self.flat_error.dot(self.flat)) + self.constant * weights


class BernoulliTerm(DataTerm):
    """Σ softplus(z) − y z, as a weighted mean over the samples."""

    def loss(self, z: Tensor, batch: Batch) -> float:
        """See `DataTerm`."""
        shares = self.share if batch.shares is None else batch.shares
        torch.sigmoid(z, out=self.d)
        np.subtract(self.array, batch.target, self.array)
        np.multiply(self.array, shares, self.array)
        each = torch.nn.functional.softplus(z).numpy() - z.numpy() * batch.target
        return float((each * shares).sum())


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
