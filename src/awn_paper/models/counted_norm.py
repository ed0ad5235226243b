"""Batch norm over rows that each stand for a number of samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class CountedBatchNorm(nn.BatchNorm1d):
    """`nn.BatchNorm1d`, for which a row counts as often as `counted` says: once outside of it.

    >>> norm, x = CountedBatchNorm(1), torch.tensor([[1.0], [4.0]])
    >>> with counted([norm], torch.tensor([2.0, 1.0])):
    ...     few = norm(x)
    >>> torch.allclose(few[[0, 0, 1]], nn.BatchNorm1d(1)(x[[0, 0, 1]]))
    True
    """

    counts: Tensor | None = None

    def forward(self, input: Tensor) -> Tensor:
        """[rows, features] to the same."""
        if self.counts is None or not self.training:
            return super().forward(input)
        total = self.counts.sum()
        shares = self.counts / total
        out, mean, variance = _Normalise.apply(input, shares, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (total / (total - 1)), self.momentum)
            self.num_batches_tracked += 1
        normalised: Tensor = out
        return normalised


@contextmanager
def counted(norms: Sequence[CountedBatchNorm], counts: Tensor) -> Iterator[None]:
    """Have each row count so often in training forwards of the norms."""
    for norm in norms:
        norm.counts = counts
    try:
        yield
    finally:
        for norm in norms:
            norm.counts = None


class _Normalise(torch.autograd.Function):
    """The normalised rows, and the mean and variance of each feature, weighted by the rows' shares of the samples."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shares: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, ...]:
        mean = shares @ x
        normal = x - mean
        variance = shares @ normal.square()
        scale = (variance + eps).rsqrt()
        normal *= scale
        ctx.save_for_backward(normal, shares, weight, scale)
        ctx.mark_non_differentiable(mean, variance)
        return torch.addcmul(bias, normal, weight), mean, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        normal, shares, weight, scale = ctx.saved_tensors
        grad = grads[0]
        of_bias, of_weight = grad.sum(0), (grad * normal).sum(0)
        # The mean moves with every row by its share, and so does the variance.
        of_x = grad - shares[:, None] * torch.addcmul(of_bias, normal, of_weight)
        return of_x.mul_(weight * scale), None, of_weight, of_bias, None
