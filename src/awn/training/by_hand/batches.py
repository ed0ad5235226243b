"""The batches of an epoch: fetched from the data for several steps at once, into the same memory again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from awn.training.by_hand.layout import Array
from awn.training.data import Data

# So many numbers are fetched at once, one batch at least: few beside a network, but enough for several small batches,
# which would take longer to fetch one by one.
_NUMBERS_AT_ONCE = 2**12
# Two larger batches at once are still worth their memory, if they have no more numbers than this.
_NUMBERS_OF_TWO = 2**14
# Inputs fewer than this are gathered faster from a transposed copy of the data.
_FEW_INPUTS = 8


class Batch(NamedTuple):
    """A batch with the samples along the last dimension. The next batches may take its memory."""

    #: Inputs below a row of ones, [lead + inputs, samples], and their transpose.
    x: Tensor
    x_t: Tensor
    #: What the data term compares the outputs with, [outputs, samples], contiguous.
    target: Array
    #: The same in one dimension.
    flat_target: Array
    #: weight / samples for every sample, if they have weights.
    shares: Array | None


def batches(data: Data, order: Tensor, number: int, classes: int | None, lead: int) -> Iterator[Batch]:
    """The samples in an order, in a number of batches whose sizes differ by one at most.

    With `classes`, the targets are −1/samples (· weight) at a sample's class, otherwise 0.

    >>> data = Data(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 1, 1]))
    >>> first, second = map(Tensor.clone, (batch.x for batch in batches(data, torch.tensor([2, 0, 1]), 2, 2, lead=1)))
    >>> first, second
    (tensor([[1., 1.], [3., 1.]]), tensor([[1.], [2.]]))
    """
    few = lead + data.x.shape[1] < _FEW_INPUTS
    source = data.x.t().contiguous() if few else data.x
    size, larger = divmod(len(order), number)
    for count, samples in ((larger, size + 1), (number - larger, size)):
        numbers = samples * (lead + data.x.shape[1])
        at_once = max(1, _NUMBERS_AT_ONCE // numbers, min(2, _NUMBERS_OF_TWO // numbers))
        rows, order = order[: count * samples], order[count * samples :]
        whole, rest = divmod(count, at_once)
        for together, part in ((at_once, rows[: whole * at_once * samples]), (rest, rows[whole * at_once * samples :])):
            if len(part):
                yield from _Chunk(data, together, samples, classes, lead, few).fetch(data, source, part)


class _Chunk:
    """Memory for a number of batches of one size."""

    def __init__(self, data: Data, count: int, samples: int, classes: int | None, lead: int, few: bool) -> None:
        self.count, self.samples, self.few = count, samples, few
        dtype, inputs, together = data.x.dtype, lead + data.x.shape[1], count * samples
        # Few inputs are kept transposed.
        held = torch.ones((inputs, together) if few else (together, inputs), dtype=dtype)
        self.inputs = held[lead:] if few else held[:, lead:]
        xs_t = (held.t() if few else held).split(samples)
        self.targets = torch.zeros(count, classes or data.y[:1].numel(), samples, dtype=dtype)
        self.shares = None if data.weight is None else torch.empty(count, 1, samples, dtype=dtype)
        shares = [None] * count if self.shares is None else list(self.shares.squeeze(1).numpy())
        targets = self.targets.numpy(), self.targets.view(count, -1).numpy()
        self.of_classes = classes is not None
        self.batches = list(map(Batch, [x_t.t() for x_t in xs_t], xs_t, *targets, shares))

    def fetch(self, data: Data, source: Tensor, order: Tensor) -> Iterator[Batch]:
        """The batches of samples in an order."""
        for rows in order.split(self.count * self.samples):
            torch.index_select(source, 1 if self.few else 0, rows, out=self.inputs)
            if self.shares is not None and data.weight is not None:
                torch.index_select(data.weight, 0, rows, out=self.shares.view(-1)).div_(self.samples)
            targets = data.y.index_select(0, rows).view(self.count, self.samples, -1).transpose(1, 2)
            if not self.of_classes:
                self.targets.copy_(targets)
            elif self.shares is None:
                self.targets.zero_().scatter_(1, targets, -1 / self.samples)
            else:
                self.targets.zero_().scatter_(1, targets, -self.shares)
            yield from self.batches
