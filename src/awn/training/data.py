"""Data: tensors for training and evaluation."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor


class Data(NamedTuple):
    """Inputs, targets and, optionally, sample weights: tensors with the samples along the first dimension."""

    x: Tensor
    y: Tensor
    weight: Tensor | None = None

    def rows(self, rows: Tensor) -> Data:
        """Some of the samples."""
        return Data(self.x[rows], self.y[rows], None if self.weight is None else self.weight[rows])


def checksum(tensors: Iterable[Tensor | None]) -> int:
    """A checksum of the content of tensors.

    >>> checksum([torch.zeros(3)]) == checksum([torch.ones(3)])
    False
    """
    number = 0
    for tensor in tensors:
        if tensor is not None:
            content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            number = zlib.crc32(content.numpy().data, number)
    return number
