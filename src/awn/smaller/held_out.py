"""HeldOut: rows that a network has not seen in training, with the loss that judges it there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from awn.basics.batches import Batch, evaluating
from awn.errors import ArgumentError, NonFiniteError
from awn.loss.likelihood import of_samples

#: The mean negative log-likelihood of targets, given outputs and, optionally, sample weights.
Loss = Callable[[Any, Any, Any], Tensor]
# The standard error of the mean loss comes from the means of about this many chunks of rows.
_CHUNKS = 50
_ROWS_AT_A_TIME = 4096  # the activations of many rows may not fit into memory


@dataclass(frozen=True, eq=False)
class Losses:
    """The mean losses of chunks of rows, [chunks], and the rows of each."""

    means: Tensor
    rows: Tensor

    @property
    def mean(self) -> float:
        """The mean over all rows.

        >>> Losses(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 1.0])).mean
        2.0
        """
        return float((self.means * self.rows).sum() / self.rows.sum())

    @property
    def error(self) -> float:
        """The standard error of the mean, from the spread of the chunks.

        >>> Losses(torch.tensor([1.0, 3.0, 5.0]), torch.ones(3)).error        # 2 / √3
        1.154...
        """
        if len(self.means) < 2:
            return 0.0
        shares = self.rows / self.rows.mean()  # a smaller last chunk counts for less
        return float(((self.means - self.mean) * shares).std() / math.sqrt(len(self.means)))


@dataclass(frozen=True, eq=False)
class _Part:
    batch: Batch
    target: Any
    weight: Tensor | None


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out rows in batches, and the loss of a network's outputs there."""

    parts: tuple[_Part, ...]
    loss: Loss
    rows: int

    @classmethod
    def of(cls, data: Any, loss: Loss) -> HeldOut:
        """Read `data`: inputs, targets and, optionally, weights, or an iterable of batches of these."""
        if isinstance(data, tuple | list) and data and isinstance(data[0], Tensor):
            given = [tensor for tensor in data if tensor is not None]
            data = list(zip(*(tensor.split(_ROWS_AT_A_TIME) for tensor in given), strict=True))
        if not isinstance(data, Iterable) or isinstance(data, str | bytes | Tensor | Mapping):
            raise ArgumentError(
                "held-out data must be (inputs, targets) or batches of them, such as a DataLoader yields; got "
                f"{type(data).__name__}.",
                argument="data",
            )
        parts = tuple(_read(batch) for batch in data)
        rows = sum(part.batch.rows for part in parts)
        if rows < 2:
            raise ArgumentError(
                f"choosing a width needs held-out rows, at least two; got {rows}. Hold back a part of the data.",
                argument="data",
            )
        return cls(parts, loss, rows)

    def inputs(self) -> list[Any]:
        """The inputs alone, as batches."""
        return [part.batch.kwargs or part.batch.args[0] for part in self.parts]

    def judge(self, model: nn.Module) -> Losses:
        """The losses of a network, in evaluation mode."""
        size = max(1, self.rows // _CHUNKS)
        with evaluating(model):
            parts = [self._chunks(part, part.batch.run(model), size) for part in self.parts]
        means, rows = (torch.cat(each) for each in zip(*parts, strict=True))
        found = Losses(means, rows)
        if not math.isfinite(found.mean):
            raise NonFiniteError(f"the held-out loss is {found.mean}: check the data and the loss.")
        return found

    def _chunks(self, part: _Part, outputs: Any, size: int) -> tuple[Tensor, Tensor]:
        """The mean losses of the chunks of a part, and the rows of each."""
        count = part.batch.rows
        # The outputs of some models, such as those for packed sequences, have no row per input.
        by_row = all(isinstance(each, Tensor) and len(each) == count for each in (outputs, part.target))
        rows = torch.tensor([min(size, count - begin) for begin in range(0, count, size)] if by_row else [count])
        each = of_samples(self.loss, outputs, part.target, part.weight) if by_row else None
        if each is not None:
            padded = F.pad(each.detach().double(), (0, len(rows) * size - count))
            return (padded.view(-1, size).sum(1) / rows.to(each.device)).cpu(), rows.double()
        means = []
        for end, length in zip(rows.cumsum(0).tolist(), rows.tolist(), strict=True):
            chunk = slice(end - length, end)
            means.append(self.loss(*(_rows(value, chunk) for value in (outputs, part.target, part.weight))))
        return torch.stack([mean.detach().double().cpu() for mean in means]), rows.double()


def _read(batch: Any) -> _Part:
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise ArgumentError(
            "a batch of held-out data must be (inputs, targets) or (inputs, targets, weights), got "
            f"{type(batch).__name__}.",
            argument="data",
        )
    inputs, target, *rest = batch
    return _Part(Batch.of(inputs, "data"), target, rest[0] if rest else None)


def _rows(value: Any, chunk: slice) -> Any:
    return value[chunk] if isinstance(value, Tensor) and value.dim() else value
