"""The inputs of a batch, [lead + inputs, samples]: fetched from the data into the same tensor at every step."""

from __future__ import annotations

import torch
from torch import Tensor

from awn.training.by_hand.layout import FEW_INPUTS


class Inputs:
    """Batches of `samples` samples of x, below a row of ones.

    >>> inputs = Inputs(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), samples=2, lead=1)
    >>> inputs.take(torch.tensor([2, 0]))
    >>> inputs.batch
    tensor([[1., 1.], [5., 1.], [6., 2.]])
    """

    def __init__(self, x: Tensor, samples: int, lead: int) -> None:
        rows = lead + x.shape[1]
        # Many inputs are fetched a sample at a time, and the transpose is a view. Few inputs are kept transposed.
        self.few = rows < FEW_INPUTS
        self.source = x.t().contiguous() if self.few else x
        held = torch.ones((rows, samples) if self.few else (samples, rows), dtype=x.dtype)
        self.batch, self.batch_t = (held, held.t()) if self.few else (held.t(), held)
        self.into = held[lead:] if self.few else held[:, lead:]

    def take(self, rows: Tensor) -> None:
        """Fetch these rows of the data."""
        torch.index_select(self.source, 1 if self.few else 0, rows, out=self.into)
