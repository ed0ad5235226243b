"""The forward and the backward pass over a batch of one size: views and scratch memory made once, then used in place.

The gate is on the smaller of two: on the activations, or on the weight that reads them if that has fewer rows than the
batch has samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from awn.training.by_hand.activations import Activation
from awn.training.by_hand.importances import Importances
from awn.training.by_hand.layout import GRADIENT, WEIGHT, Array
from awn.training.by_hand.products import product_for

# The dot product of each two rows: faster than torch.linalg.vecdot on one thread. NumPy 1 has no vecdot.
dot_rows: Any = getattr(np, "vecdot", partial(np.einsum, "ij,ij->i"))


@dataclass(frozen=True)
class Between:
    """What is between two linear layers: an activation and dropout."""

    activation: Activation
    dropout: float


class HiddenUnits:
    """A hidden layer's activations [slots, samples] on their way: z → h (activation) → m (dropout) → g (gate).

    Steps that a network does not have share the tensor of the step before. The last one lies in `read`, below the row
    of ones, where the next layer reads it.
    """

    def __init__(
        self,
        slots: int,
        capacity: int,
        samples: int,
        lead: int,
        between: Between,
        column: Tensor | None,
        df: Tensor,
        whole: Tensor,
    ) -> None:
        def scratch() -> Tensor:
            return torch.empty(slots, samples, dtype=whole.dtype)

        self.activation, self.keep = between.activation, 1 - between.dropout
        #: The importances, as a column, if the gate is here; `df` takes their gradient.
        self.column, self.df = column, df.numpy()
        #: The gradient that arrives from the layer above: at the row of ones too, where nobody wants it.
        self.whole, self.d = whole, whole[lead:]
        self.read = torch.ones(lead + slots, samples, dtype=whole.dtype)
        self.read_t = self.read.t()
        has_dropout = between.dropout > 0
        self.g = self.read[lead:]
        self.m = self.g if column is None else scratch()
        self.h = scratch() if has_dropout else self.m
        self.z = scratch() if self.activation.keeps_input else self.h
        self.arrays = self.d.numpy(), self.m.numpy()
        self.mask = scratch() if has_dropout else None
        self.noise = torch.empty(samples, capacity, dtype=whole.dtype) if has_dropout else None
        #: The mask of the slots that the model has too; others are inert.
        self.drawn = torch.empty(0) if self.mask is None else self.mask.zero_()[:capacity]

    def forward(self) -> Tensor:
        """What the next layer reads, given z."""
        self.activation.forward(self.z, self.h)
        if self.mask is not None and self.noise is not None:
            # In the shape and by the call that nn.Dropout uses, so that both paths draw the same numbers.
            torch.mul(self.noise.bernoulli_(self.keep).t()[: len(self.drawn)], 1 / self.keep, out=self.drawn)
            torch.mul(self.h, self.mask, out=self.m)
        if self.column is not None:
            torch.mul(self.m, self.column, out=self.g)
        return self.read

    def backward(self) -> Tensor:
        """dL/dz in place of dL/dg, and the gradient of the importances if the gate is here."""
        d = self.d
        if self.column is not None:
            dot_rows(*self.arrays, out=self.df)
            torch.mul(d, self.column, out=d)
        if self.mask is not None:
            torch.mul(d, self.mask, out=d)
        self.activation.backward(d, self.z, self.h)
        return d


class Weights:
    """A layer's weight and gradient, with the gate if it is on the weight."""

    def __init__(self, block: Tensor, samples: int, row: Tensor | None, df: Tensor | None) -> None:
        self.weight, self.gradient = block[WEIGHT], block[GRADIENT]
        self.mm = product_for(self.weight.numel() * samples, block.dtype)
        #: The importances, as a row, if the gate is here; `df` takes their gradient.
        # A gated weight is small, so NumPy gates it.
        self.row: Array | None = None if row is None else row.numpy()
        self.df: Array | None = None if df is None else df.numpy()
        self.used = self.weight if row is None else torch.empty_like(self.weight)
        self.used_t = self.used.t()
        self.arrays = self.weight.numpy(), self.gradient.numpy(), self.used.numpy()

    def forward(self, x: Tensor, out: Tensor) -> None:
        """The product with the inputs."""
        if self.row is not None:
            np.multiply(self.arrays[0], self.row, out=self.arrays[2])
        self.mm(self.used, x, out=out)

    def backward(self, d: Tensor, x_t: Tensor, whole: Tensor | None) -> None:
        """The gradient of the weight, and to `whole` that of the inputs."""
        self.mm(d, x_t, out=self.gradient)
        if self.row is not None:
            weight, gradient, _ = self.arrays
            np.add.reduce(weight * gradient, 0, out=self.df)
            np.multiply(gradient, self.row, out=gradient)
        if whole is not None:
            self.mm(self.used_t, d, out=whole)


class Passes:
    """Forward and backward through all layers, for batches of `samples` samples.

    `blocks`: the weights and gradients of every layer, see `layout.py`. `capacities`: those of the model's hidden
    layers, for which dropout draws.
    """

    def __init__(
        self,
        blocks: Sequence[Tensor],
        lead: int,
        importances: Importances,
        between: Between,
        capacities: Sequence[int],
        samples: int,
    ) -> None:
        self.samples, f, df = samples, importances.f, importances.df
        most, dtype = max(block.shape[1] for block in blocks), blocks[0].dtype
        # The gradients of two neighbouring layers are alive at a time.
        gradients = torch.empty(2, lead + most, samples, dtype=dtype)
        self.weights: list[Weights] = []
        self.hidden: list[HiddenUnits] = []
        for number, block in enumerate(blocks):
            on_weight = number > 0 and block.shape[1] < samples
            read = slice(block.shape[2])
            gate = (f[number - 1, read], df[number - 1, read]) if on_weight else (None, None)
            self.weights.append(Weights(block, samples, *gate))
        for number, (block, above) in enumerate(itertools.pairwise(blocks)):
            slots = block.shape[1]
            units = slice(lead, lead + slots)
            column = f[number, units, None] if above.shape[1] >= samples else None
            whole = gradients[number % 2, : lead + slots]
            self.hidden.append(
                HiddenUnits(slots, capacities[number], samples, lead, between, column, df[number, units], whole)
            )
        self.z = torch.empty(blocks[-1].shape[1], samples, dtype=dtype)
        self.downwards = list(zip(self.weights[1:], self.hidden, strict=True))[::-1]

    def forward(self, x: Tensor) -> Tensor:
        """Inputs [lead + inputs, samples] → outputs [outputs, samples]."""
        for weights, hidden in zip(self.weights, self.hidden, strict=False):
            weights.forward(x, hidden.z)
            x = hidden.forward()
        self.weights[-1].forward(x, self.z)
        return self.z

    def backward(self, d: Tensor, x_t: Tensor) -> None:
        """All gradients, from that of the outputs, dL/dz [outputs, samples], and the inputs of the last forward."""
        for weights, hidden in self.downwards:
            weights.backward(d, hidden.read_t, hidden.whole)
            d = hidden.backward()
        self.weights[0].backward(d, x_t, None)
