"""Perceptron: the plain network that all models have inside, and whose hidden widths are learned or fixed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from awn.axis import Axis
from awn.groups import active_shape, axes_by_tensor, connect_, consumed_by, find_groups, normalised_by, produced_by
from awn.importance import Importance
from awn.initialise import active_part, gain_of, kaiming_plus_
from awn.mlp import make_activation
from awn.prior import Anneal, Prior
from awn.state import follow_state_dicts_
from awn.width import NewUnits, Width

Start = Literal["kaiming+", "kaiming"]


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
    start: Start = "kaiming+"
    weight_scale: float | None = 10.0
    width_mean: float | None = None
    width_scale: Anneal | None = None

    @property
    def prior(self) -> Prior:
        """What the objective is told."""
        return Prior(self.weight_scale, self.width_mean, self.width_scale)

    def make_width(self, activation: nn.Module) -> Width:
        """A width of its own for one layer."""
        return Width(
            self.importance,
            quantile=self.quantile,
            max_units=self.max_units,
            new_units=self.new_units,
            gain=gain_of(activation),
        )


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
                self.add_module(f"norm{number}", nn.BatchNorm1d(outside))
            self.add_module(f"activation{number}", make_activation(activation))
        self.add_module("output", nn.Linear(hidden[-1] if hidden else inputs, outputs))


def hidden_sizes(layers: int, widths: Widths) -> list[int]:
    """The sizes with which the hidden layers are built."""
    if isinstance(widths, Learned):
        return [widths.make_width(nn.ReLU()).capacity] * layers
    return [widths.units] * layers if widths.units else []


def learn_widths_(model: nn.Module, learned: Learned) -> None:
    """Have every hidden layer of every perceptron inside a model learn its width.

    >>> import awn
    >>> learned = Learned(awn.Exponential(rate=0.01))
    >>> model = nn.Sequential(Perceptron(2, hidden_sizes(2, learned), 2, "relu6"))
    >>> learn_widths_(model, learned)
    >>> awn.widths(model)
    {'0.hidden1': 231, '0.hidden2': 231}
    """
    for part in model.modules():
        if isinstance(part, Perceptron):
            _connect(part, learned)
    groups = find_groups(model)
    kaiming_plus_(groups)
    if learned.start == "kaiming":
        _kaiming_(model)
    follow_state_dicts_(model)


def _connect(perceptron: Perceptron, learned: Learned) -> None:
    layers = dict(perceptron.named_children())
    linear = [layer for layer in layers.values() if isinstance(layer, nn.Linear)]
    for number, (producer, consumer) in enumerate(itertools.pairwise(linear), start=1):
        axes: list[Axis] = [*produced_by(producer), *consumed_by(consumer)]
        norm = layers.get(f"norm{number}")
        if isinstance(norm, nn.BatchNorm1d):
            axes += normalised_by(norm)
        connect_(learned.make_width(layers[f"activation{number}"]), axes)


def _kaiming_(model: nn.Module) -> None:
    """The usual start, which does not know of the importance: Var[w] = 2 / inputs."""
    for tensor, axes in axes_by_tensor(find_groups(model)).items():
        if tensor.dim() > 1:
            inputs = active_shape(tensor, axes)[1]
            with torch.no_grad():
                nn.init.normal_(active_part(tensor, axes), std=axes[0][0].width.gain / inputs**0.5)
