"""Perceptron: the plain network that all models have inside, and whose hidden widths are learned or fixed."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import nn

from awn.adapt import adapt_
from awn.core.count import active_shape, axes_by_tensor, blocks_by_dim
from awn.core.groups import find_groups
from awn.core.importance import Importance
from awn.core.places import active_parts
from awn.core.state import follow_state_dicts_
from awn.core.width import NewUnits, Width
from awn.loss.price import Price
from awn.loss.prior import Anneal, Prior
from awn.nn.activations import make_activation
from awn.nn.mlp import AdaptiveMLP
from awn_paper.models.counted_norm import CountedBatchNorm

Initialisation = Literal["kaiming+", "kaiming"]


@dataclass(frozen=True)
class Fixed:
    """Hidden layers of so many units, the same in all; 0 leaves the hidden layers out: a linear model."""

    units: int


@dataclass(frozen=True)
class Learned:
    """Hidden layers that learn their width, as in the paper: f as it is, and new units drawn from N(0, 1)."""

    importance: Importance
    quantile: float = 0.9
    max_units: int | None = None
    new_units: NewUnits = "normal"
    start: Initialisation = "kaiming+"
    weight_scale: float | None = 10.0
    width_mean: float | None = None
    width_scale: Anneal | None = None
    even_steps: ClassVar[bool] = False  # of SGD: `awn.advanced.even_steps_`, which the paper does not have

    @property
    def prior(self) -> Prior:
        """What the objective is told."""
        return Prior(self.weight_scale, self.width_mean, self.width_scale)


@dataclass(frozen=True)
class LearnedInOrder(Learned):
    """The same, with some steps that use a prefix of the units, which goes past the paper: `ordered` of Width."""

    ordered: float = 0.5


@dataclass(frozen=True)
class Priced(Learned):
    """The same, with the price of a weight that the ELBO implies and the paper's objective leaves out."""

    price: Price = field(default_factory=Price)

    @property
    def prior(self) -> Prior:
        """What the objective is told."""
        return dataclasses.replace(super().prior, price=self.price)


@dataclass(frozen=True)
class LearnedEvenly(Learned):
    """The same with even steps, which go past the paper."""

    even_steps: ClassVar[bool] = True


@dataclass(frozen=True)
class Budgeted(Learned):
    """With even steps, and under a soft cap on the FLOPs for one sample, which goes past the paper too."""

    even_steps: ClassVar[bool] = True
    width_lr: float | None = None
    max_flops: float = field(kw_only=True)
    strength: float = 1.0


@dataclass(frozen=True)
class BudgetedUnevenly(Budgeted):
    """The same without even steps."""

    even_steps: ClassVar[bool] = False


Widths = Fixed | Learned


class Perceptron(nn.Sequential):
    """Linear layers with an activation between them, batch norm before it if wanted: all plain PyTorch."""

    def __init__(
        self, inputs: int, hidden: Sequence[int], outputs: int, activation: str, *, batch_norm: bool = False
    ) -> None:
        super().__init__()
        for number, (inside, outside) in enumerate(itertools.pairwise([inputs, *hidden]), start=1):
            self.add_module(f"hidden{number}", nn.Linear(inside, outside))
            if batch_norm:
                self.add_module(f"norm{number}", CountedBatchNorm(outside))
            self.add_module(f"activation{number}", make_activation(activation))
        self.add_module("output", nn.Linear(hidden[-1] if hidden else inputs, outputs))


def hidden_sizes(layers: int, widths: Widths) -> list[int]:
    """The sizes with which the hidden layers are built."""
    if isinstance(widths, Learned):
        start = Width(widths.importance, quantile=widths.quantile, max_units=widths.max_units)
        return [start.capacity] * layers
    return [widths.units] * layers if widths.units else []


def learn_widths_(model: nn.Module, learned: Learned) -> None:
    """Have every hidden layer of every perceptron inside a model learn its width.

    >>> import awn
    >>> learned = Learned(awn.Exponential(rate=0.01, scale="mass"))
    >>> model = nn.Sequential(Perceptron(2, hidden_sizes(2, learned), 2, "relu6"))
    >>> learn_widths_(model, learned)
    >>> awn.widths(model)
    {'0.hidden1': 231, '0.hidden2': 231}
    """
    for part in list(model.modules()):
        if isinstance(part, Perceptron):
            adapt_(
                part,
                importance=learned.importance,
                quantile=learned.quantile,
                max_units=learned.max_units,
                new_units=learned.new_units,
                redraw=True,
            )
    if learned.start == "kaiming":
        _kaiming_(model)
    if not isinstance(model, Perceptron | AdaptiveMLP):  # these follow already
        follow_state_dicts_(model)


def _kaiming_(model: nn.Module) -> None:
    """The usual start, which does not know of the importance: Var[w] = 2 / inputs."""
    for tensor, axes in axes_by_tensor(find_groups(model)).items():
        if tensor.dim() > 1:
            inputs = active_shape(tensor, axes)[1]
            with torch.no_grad():
                for part in active_parts(tensor, blocks_by_dim(axes)):
                    nn.init.normal_(part.view, std=axes[0][0].width.gain / inputs**0.5)
