"""The forward and the backward pass over a batch of one size: views and scratch memory made once, then used in place.

The gate is on the smaller of two: on the activations, or on the weight that reads them if that has fewer rows than the
batch has samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
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

    A step that the network does not have, or that can be done in place, shares the tensor of the step before. The last
    tensor lies in `memory`, below a row of ones, where the next layer reads it as `read`. `gradient` is memory for the
    gradient that arrives from the layer above.
    """

    def __init__(
        self,
        memory: Tensor,
        gradient: Tensor,
        slots: int,
        capacity: int,
        lead: int,
        between: Between,
        column: Tensor | None,
        q: Tensor,
    ) -> None:
        def scratch() -> Tensor:
            return torch.empty_like(self.g)

        self.activation, self.keep = between.activation, 1 - between.dropout
        #: The importances, as a column, if the gate is here, and what takes their q.
        self.column, self.q = column, q.numpy()
        self.read = memory[: lead + slots]
        self.read_t = self.read.t()
        self.g = self.read[lead:]
        #: At the row of ones too, where nobody wants it.
        self.whole = gradient[: lead + slots]
        self.d = self.whole[lead:]
        has_dropout = between.dropout > 0
        in_place = column is None or (self.activation.by_sign and not has_dropout)
        self.m = self.g if in_place else scratch()
        self.h = scratch() if has_dropout else self.m
        self.z = scratch() if self.activation.keeps_input else self.h
        self.arrays = self.d.numpy(), self.g.numpy()
        self.mask = scratch().zero_() if has_dropout else None
        self.noise = torch.empty(memory.shape[1], capacity, dtype=memory.dtype) if has_dropout else None
        #: The mask of the slots that the model has too; others are inert.
        self.drawn = torch.empty(0) if self.mask is None else self.mask[:capacity]

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
        """dL/dz in place of dL/dg, and q if the gate is here."""
        d = self.d
        if self.column is not None:
            dot_rows(*self.arrays, out=self.q)
            torch.mul(d, self.column, out=d)
        if self.mask is not None:
            torch.mul(d, self.mask, out=d)
        self.activation.backward(d, self.z, self.h)
        return d


class Weights:
    """A layer's weight and gradient, with the gate if it is on the weight."""

    def __init__(self, weight: Tensor, gradient: Tensor, samples: int, row: Tensor | None, q: Tensor | None) -> None:
        self.weight, self.gradient = weight, gradient
        self.mm = product_for(weight.numel() * samples, weight.dtype)
        #: The importances, as a row, if the gate is here, and what takes their q.
        # A gated weight is small, so NumPy gates it.
        self.row: Array | None = None if row is None else row.numpy()
        self.q: Array | None = None if q is None else q.numpy()
        self.used = weight if row is None else torch.empty_like(weight)
        self.used_t = self.used.t()
        self.arrays = weight.numpy(), gradient.numpy(), self.used.numpy()

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
            np.multiply(gradient, self.row, out=gradient)
            np.add.reduce(weight * gradient, 0, out=self.q)
        if whole is not None:
            self.mm(self.used_t, d, out=whole)


class Passes:
    """Forward and backward through all layers, for batches of `samples` samples.

    `blocks`: the weights and gradients of every layer, see `layout.py`. `capacities`: those of the model's hidden
    layers, for which dropout draws.
    """

    def __init__(
        self,
        blocks: Sequence[Mapping[int, Tensor]],
        lead: int,
        importances: Importances,
        between: Between,
        capacities: Sequence[int],
        samples: int,
    ) -> None:
        self.samples, f, q = samples, importances.f, importances.q
        dtype, outputs = f.dtype, [len(block[WEIGHT]) for block in blocks]
        self.weights: list[Weights] = []
        self.hidden: list[HiddenUnits] = []
        for number, block in enumerate(blocks):
            on_weight = number > 0 and outputs[number] < samples
            read = slice(block[WEIGHT].shape[1])
            gate = (f[number - 1, read], q[number - 1, read]) if on_weight else (None, None)
            self.weights.append(Weights(block[WEIGHT], block[GRADIENT], samples, *gate))
        # Once the backward pass is past a layer, nobody reads its activations. The gradient of the layer below takes
        # their memory, from the row after the ones on. The last hidden layer has none above it and gets its own memory.
        rows = [max(slots, lead + below) for below, slots in itertools.pairwise([0, *outputs[:-1]])]
        memories = [torch.ones(lead + number, samples, dtype=dtype) for number in rows]
        gradients = [memory[lead:] for memory in memories[1:]]
        gradients.append(torch.empty(lead + outputs[-2], samples, dtype=dtype))
        for number, (memory, gradient) in enumerate(zip(memories, gradients, strict=True)):
            units = slice(lead, lead + outputs[number])
            column = f[number, units, None] if outputs[number + 1] >= samples else None
            where = outputs[number], capacities[number], lead
            self.hidden.append(HiddenUnits(memory, gradient, *where, between, column, q[number, units]))
        self.z = torch.empty(outputs[-1], samples, dtype=dtype)
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
