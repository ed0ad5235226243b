"""The flat buffers: one tensor for all weights, their gradients and the optimizer's moments.

    state [4, n]                  row 0 weights · row 1 gradients · rows 2 and 3 moments

A fifth row takes the gradients of a prefix's pass in ordered training.

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

Units have slots: so many that their number, with the ones, is a multiple of 8. Products of such sizes are up to 30 %
faster than those of one more. Slots have nothing to do with the model's own capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]
WEIGHT, GRADIENT, FIRST, SECOND, PREFIX = range(5)
# Rows start at multiples of so many numbers: a processor reads aligned rows faster.
_ALIGNMENT = 16
# Slots and ones together are a multiple of this.
_SLOTS = 8
#: Fewer inputs than this are few: products that write rows that short are slow, so such matrices are transposed.
FEW_INPUTS = 8


def slots_for(units: int, lead: int, present: int = 0) -> int:
    """The slots to have for a number of units: the present ones, unless they are too few or many too many.

    >>> slots_for(231, lead=1), slots_for(232, lead=1), slots_for(231, lead=1, present=239)
    (231, 239, 239)
    """
    fitting = -(-(units + lead) // _SLOTS) * _SLOTS - lead
    return present if fitting <= present <= fitting + 2 * _SLOTS else fitting


class Buffers:
    """The flat buffers of layers with these numbers of outputs and inputs.

    >>> buffers = Buffers([(231, 2), (2, 231)], lead=1, dtype=torch.float32)
    >>> [tuple(block.shape) for block in buffers.blocks]
    [(4, 231, 3), (4, 2, 232)]
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], lead: int, dtype: torch.dtype, *, rows: int = 4) -> None:
        self.sizes, self.lead = sizes, lead
        shapes = [(outputs, lead + inputs) for outputs, inputs in sizes]
        strides = [_aligned(outputs if inputs < FEW_INPUTS else inputs) for outputs, inputs in shapes]
        counts = [inputs if inputs < FEW_INPUTS else outputs for outputs, inputs in shapes]
        lengths = [count * stride for count, stride in zip(counts, strides, strict=True)]
        self.state = torch.zeros(rows, sum(lengths), dtype=dtype)
        self.blocks: list[Tensor] = []
        for part, stride, (outputs, inputs) in zip(self.state.split(lengths, 1), strides, shapes, strict=True):
            matrix = part.unflatten(1, (-1, stride))
            few = inputs < FEW_INPUTS
            self.blocks.append(matrix[:, :, :outputs].transpose(1, 2) if few else matrix[:, :, :inputs])
        #: The same memory, for NumPy.
        self.arrays: list[Array] = [block.numpy() for block in self.blocks]

    def prefix(self, sizes: Sequence[tuple[int, int]]) -> list[Tensor]:
        """Blocks of the first outputs and inputs, [2, …]: the weights, and their gradients in the fifth row of `state`.

        >>> buffers = Buffers([(231, 2), (2, 231)], lead=1, dtype=torch.float32, rows=5)
        >>> [tuple(block.shape) for block in buffers.prefix([(15, 2), (2, 15)])]
        [(2, 15, 3), (2, 2, 16)]
        """
        return [
            block[::PREFIX, :outputs, : self.lead + inputs]
            for block, (outputs, inputs) in zip(self.blocks, sizes, strict=True)
        ]

    def copy_(self, other: Buffers) -> None:
        """Take over what both have room for."""
        for new, old in zip(self.blocks, other.blocks, strict=True):
            outputs, inputs = min(new.shape[1], old.shape[1]), min(new.shape[2], old.shape[2])
            new[:, :outputs, :inputs] = old[:, :outputs, :inputs]

    def spread(self, numbers: Sequence[tuple[float, float]]) -> float | Tensor:
        """A number for the weights and one for the biases of every layer, as a row of `state`; one number if all agree.

        >>> Buffers([(2, 8)], lead=1, dtype=torch.float32).spread([(0.5, 0.5)])
        0.5
        """
        distinct = {number for weight, bias in numbers for number in ((weight, bias) if self.lead else (weight,))}
        if len(distinct) == 1:
            return distinct.pop()
        like, lead = Buffers(self.sizes, self.lead, self.state.dtype), self.lead
        for block, (weight, bias) in zip(like.blocks, numbers, strict=True):
            block[WEIGHT, :, lead:] = weight
            block[WEIGHT, :, :lead] = bias
        return like.state[WEIGHT].clone()


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT
