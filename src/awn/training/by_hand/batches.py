"""The batches of an epoch: fetched from the data for many steps at once, so that a step itself fetches nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from awn.training.by_hand.layout import FEW_INPUTS
from awn.training.data import Data

# So many numbers are fetched at once, one batch at least: the copy stays small beside the data.
_NUMBERS_AT_ONCE = 2**18


class Batch(NamedTuple):
    """A batch with the samples along the last dimension."""

    #: Inputs below a row of ones, [lead + inputs, samples], and their transpose.
    x: Tensor
    x_t: Tensor
    #: What the data term compares the outputs with, [outputs, samples], contiguous.
    target: Tensor
    #: The same in one dimension.
    flat_target: Tensor
    #: weight / samples for every sample, if they have weights.
    shares: Tensor | None


def batches(data: Data, rows: Sequence[Tensor], classes: int | None, lead: int) -> Iterator[Batch]:
    """Batches of these rows. With `classes`, the targets are −1/samples (· weight) at a sample's class, otherwise 0.

    >>> data = Data(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 1, 1]))
    >>> first, second = batches(data, [torch.tensor([2, 0]), torch.tensor([1])], classes=2, lead=1)
    >>> first.x, first.target
    (tensor([[1., 1.], [3., 1.]]), tensor([[ 0.0000, -0.5000], [-0.5000,  0.0000]]))
    """
    few = lead + data.x.shape[1] < FEW_INPUTS
    source = data.x.t().contiguous() if few else data.x
    for chunk in _alike(rows, at_once=max(1, _NUMBERS_AT_ONCE // max(1, rows[0].numel() * (data.x.shape[1] + 1)))):
        count, samples, order = len(chunk), len(chunk[0]), torch.cat(list(chunk))
        xs, xs_t = _inputs(source, order, samples, lead, few)
        shares = (
            None if data.weight is None else data.weight.index_select(0, order).div_(samples).view(count, 1, samples)
        )
        targets = data.y.index_select(0, order).view(count, samples, -1).transpose(1, 2)
        if classes is None:
            targets = targets.contiguous()
        else:
            spread = torch.zeros(count, classes, samples, dtype=data.x.dtype)
            targets = (
                spread.scatter_(1, targets, -1 / samples) if shares is None else spread.scatter_(1, targets, -shares)
            )
        parts = [None] * count if shares is None else shares.view(count, samples).unbind()
        yield from map(Batch, xs, xs_t, targets.unbind(), targets.view(count, -1).unbind(), parts)


def _inputs(
    source: Tensor, order: Tensor, samples: int, lead: int, few: bool
) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Inputs and their transposes, batch by batch. Few inputs are kept transposed: see `FEW_INPUTS`."""
    number = lead + source.shape[0 if few else 1]
    held = torch.ones((number, len(order)) if few else (len(order), number), dtype=source.dtype)
    if few:
        torch.index_select(source, 1, order, out=held[lead:])
        return held.split(samples, 1), held.t().split(samples)
    torch.index_select(source, 0, order, out=held[:, lead:])
    return held.t().split(samples, 1), held.split(samples)


def _alike(rows: Sequence[Tensor], at_once: int) -> Iterator[Sequence[Tensor]]:
    """Runs of batches of one size, at most so many."""
    start = 0
    while start < len(rows):
        end = start
        while end < len(rows) and end - start < at_once and len(rows[end]) == len(rows[start]):
            end += 1
        yield rows[start:end]
        start = end
