"""The flat buffers: one tensor each for all weights, their gradients and the optimizer's moments.

    rows        WEIGHT · GRADIENT · FIRST and SECOND, the moments · PREFIX, gradients of a prefix in ordered training

Each row is a tensor of its own, so that a row can be filled while the model's tensors that it replaces are freed.
A layer's part of a row is a matrix: a row per output, a column per input. Column 0 is the bias, which reads a row of
ones at the top of the activations. One product therefore computes a layer, and one its whole gradient.

    matrix [outputs, 1 + inputs]         activations [1 + inputs, samples]

              bias  unit 0  unit 1  inert                sample 0  sample 1
    unit 0     b      w       w       0           ones       1         1
    unit 1     b      w       w       0         unit 0       g         g
    inert      0      0       0       0         unit 1       g         g
                                                 inert       0         0

Inert slots hold zeros in all rows, so the optimizer's update of a whole row leaves them at zero. The backward pass
writes every gradient anew. Without biases, the column and the row of ones are missing (`lead` is 0, not 1). Wide
matrices have gaps of zeros between their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]
WEIGHT, GRADIENT, FIRST, SECOND, PREFIX = range(5)
# Products that write rows shorter than this take up to four times as long, so such matrices are transposed.
_SHORT_ROW = 16
# The rows of wide matrices begin at multiples of this: products write others at two thirds of the speed.
_ALIGNED, _WIDE = 8, 64


def slots_for(units: int, lead: int) -> int:
    """The slots for a number of units: with the ones, a multiple of a power of two, about a 32nd of the width.

    Some processors multiply matrices of such sizes faster. The step is at most 8, so that little memory is unused.

    >>> slots_for(20, lead=1), slots_for(64, lead=1), slots_for(231, lead=1), slots_for(1024, lead=1)
    (20, 65, 231, 1031)
    """
    size = units + lead
    return _rounded(size, min(8, 1 << max(0, size.bit_length() - 6))) - lead


def slots_after(units: int, lead: int, present: int) -> int:
    """The slots after a change of width: the present ones, unless they are too few or many too many.

    Steps of 8 leave room for the changes to come, each of which would otherwise replace the buffers.

    >>> slots_after(65, lead=1, present=65), slots_after(66, lead=1, present=65), slots_after(40, lead=1, present=65)
    (65, 71, 47)
    """
    roomy = _rounded(units + lead, 8) - lead
    return present if units <= present <= roomy + 16 else roomy


def _rounded(number: int, step: int) -> int:
    return -(-number // step) * step


class Buffers:
    """The flat buffers of layers with these numbers of outputs and inputs.

    >>> buffers = Buffers([(231, 2), (2, 231)], lead=1, dtype=torch.float32, rows=[WEIGHT, GRADIENT])
    >>> [tuple(block[GRADIENT].shape) for block in buffers.blocks]
    [(231, 3), (2, 232)]
    """

    def __init__(
        self, sizes: Sequence[tuple[int, int]], lead: int, dtype: torch.dtype, rows: Iterable[int] = ()
    ) -> None:
        self.sizes, self.lead, self.dtype = sizes, lead, dtype
        self.shapes = [(outputs, lead + inputs) for outputs, inputs in sizes]
        self.rows: dict[int, Tensor] = {}
        #: The matrices of every layer, by row; and the same memory for NumPy.
        self.blocks: list[dict[int, Tensor]] = [{} for _ in sizes]
        self.arrays: list[dict[int, Array]] = [{} for _ in sizes]
        for row in rows:
            self.make(row)

    def make(self, row: int) -> None:
        """Allocate a row, filled with zeros."""
        strides = [_rounded(inputs, _ALIGNED) if inputs >= _WIDE else inputs for _, inputs in self.shapes]
        lengths = [outputs * stride for (outputs, _), stride in zip(self.shapes, strides, strict=True)]
        self.rows[row] = made = torch.zeros(sum(lengths), dtype=self.dtype)
        parts = zip(made.split(lengths), self.shapes, self.blocks, self.arrays, strict=True)
        for part, (outputs, inputs), block, arrays in parts:
            short = inputs < _SHORT_ROW
            block[row] = part.view(inputs, outputs).t() if short else part.view(outputs, -1)[:, :inputs]
            arrays[row] = block[row].numpy()

    def free(self, row: int) -> None:
        """Let go of a row."""
        self.rows.pop(row, None)
        for block, arrays in zip(self.blocks, self.arrays, strict=True):
            block.pop(row, None)
            arrays.pop(row, None)

    def prefix(self, sizes: Sequence[tuple[int, int]]) -> list[Mapping[int, Tensor]]:
        """Blocks of the first outputs and inputs: the weights, and the row PREFIX as their gradients.

        >>> buffers = Buffers([(231, 2), (2, 231)], lead=1, dtype=torch.float32, rows=[WEIGHT, PREFIX])
        >>> [tuple(block[GRADIENT].shape) for block in buffers.prefix([(15, 2), (2, 15)])]
        [(15, 3), (2, 16)]
        """
        return [
            {
                row: block[source][:outputs, : self.lead + inputs]
                for row, source in ((WEIGHT, WEIGHT), (GRADIENT, PREFIX))
            }
            for block, (outputs, inputs) in zip(self.blocks, sizes, strict=True)
        ]

    def copy_(self, other: Buffers) -> None:
        """Take over the weights and moments, as far as both have room for them."""
        for new, old in zip(self.blocks, other.blocks, strict=True):
            for row in new.keys() - {GRADIENT, PREFIX}:
                outputs, inputs = (min(sizes) for sizes in zip(new[row].shape, old[row].shape, strict=True))
                new[row][:outputs, :inputs] = old[row][:outputs, :inputs]

    def spread(self, numbers: Sequence[tuple[float, float]]) -> float | Tensor:
        """A number for the weights and one for the biases of every layer, as a row; one number if all agree.

        >>> Buffers([(2, 8)], lead=1, dtype=torch.float32).spread([(0.5, 0.5)])
        0.5
        """
        distinct = {number for weight, bias in numbers for number in ((weight, bias) if self.lead else (weight,))}
        if len(distinct) == 1:
            return distinct.pop()
        like, lead = Buffers(self.sizes, self.lead, self.dtype, rows=[WEIGHT]), self.lead
        for block, (weight, bias) in zip(like.blocks, numbers, strict=True):
            block[WEIGHT][:, lead:] = weight
            block[WEIGHT][:, :lead] = bias
        return like.rows[WEIGHT]
