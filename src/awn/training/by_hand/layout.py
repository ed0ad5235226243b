"""The flat buffers: one tensor for all weights, their gradients and the optimizer's moments.

    state [4, n]                  row 0 weights · row 1 gradients · rows 2 and 3 moments

A layer's part of a row is a matrix, its `block`: a row per output, a column per input. Column 0 is the bias, which
reads a row of ones that the activations begin with. So one product computes a layer, and one its whole gradient.

    block [4, outputs, 1 + inputs]       activations [1 + inputs, samples]

              bias  unit 0  unit 1  inert                sample 0  sample 1
    unit 0     b      w       w       0           ones       1         1
    unit 1     b      w       w       0         unit 0       g         g
    inert      0      0       0       0         unit 1       g         g
                                                 inert       0         0

Inert slots hold zeros in all four rows of `state`, and so does the padding between rows: the optimizer's update of the
whole buffer leaves them at zero. Without biases, the column and the row of ones are missing (`lead` is 0, not 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]
WEIGHT, GRADIENT, FIRST, SECOND = range(4)
# Rows start at multiples of so many numbers: a processor reads aligned rows faster.
_ALIGNMENT = 16
#: Fewer inputs than this are few: products that write rows that short are slow, so such matrices are transposed.
FEW_INPUTS = 8


class Buffers:
    """The flat buffers of layers of some shapes, [outputs, lead + inputs] each.

    >>> buffers = Buffers([(231, 3), (2, 232)], torch.float32)
    >>> [tuple(block.shape) for block in buffers.blocks]
    [(4, 231, 3), (4, 2, 232)]
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], dtype: torch.dtype) -> None:
        strides = [_aligned(outputs if inputs < FEW_INPUTS else inputs) for outputs, inputs in shapes]
        rows = [inputs if inputs < FEW_INPUTS else outputs for outputs, inputs in shapes]
        sizes = [count * stride for count, stride in zip(rows, strides, strict=True)]
        self.state = torch.zeros(4, sum(sizes), dtype=dtype)
        self.blocks: list[Tensor] = []
        for part, stride, (outputs, inputs) in zip(self.state.split(sizes, 1), strides, shapes, strict=True):
            matrix = part.unflatten(1, (-1, stride))
            few = inputs < FEW_INPUTS
            self.blocks.append(matrix[:, :, :outputs].transpose(1, 2) if few else matrix[:, :, :inputs])
        #: The same memory, for NumPy.
        self.arrays: list[Array] = [block.numpy() for block in self.blocks]

    def copy_(self, other: Buffers) -> None:
        """Take over what both have room for."""
        for new, old in zip(self.blocks, other.blocks, strict=True):
            outputs, inputs = min(new.shape[1], old.shape[1]), min(new.shape[2], old.shape[2])
            new[:, :outputs, :inputs] = old[:, :outputs, :inputs]

    def spread(self, numbers: Sequence[tuple[float, float]], lead: int) -> float | Tensor:
        """A number for the weights and one for the biases of every layer, as a row of `state`; one number if all agree.

        >>> Buffers([(2, 8)], torch.float32).spread([(0.5, 0.5)], lead=1)
        0.5
        """
        distinct = {number for weight, bias in numbers for number in ((weight, bias) if lead else (weight,))}
        if len(distinct) == 1:
            return distinct.pop()
        like = Buffers([(block.shape[1], block.shape[2]) for block in self.blocks], self.state.dtype)
        for block, (weight, bias) in zip(like.blocks, numbers, strict=True):
            block[WEIGHT, :, lead:] = weight
            block[WEIGHT, :, :lead] = bias
        return like.state[WEIGHT].clone()


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT
