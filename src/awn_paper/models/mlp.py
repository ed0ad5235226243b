"""The networks for points and tables: a perceptron alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from awn.nn.mlp import AdaptiveMLP
from awn_paper.data.dataset import Dataset
from awn_paper.models.constant import fixed_without_autograd
from awn_paper.models.perceptron import Learned, LearnedInOrder, Perceptron, Widths, hidden_sizes


@dataclass(frozen=True)
class MLP:
    """A perceptron of so many hidden layers."""

    layers: int = 1
    activation: str = "relu6"

    def build(self, data: Dataset, widths: Widths) -> nn.Module:
        """A network that `awn.training.fit` trains without autograd, with learned widths or fixed ones."""
        if isinstance(widths, Learned):
            return AdaptiveMLP(
                data.inputs,
                data.outputs,
                self.layers,
                activation=self.activation,
                importance=widths.importance,
                quantile=widths.quantile,
                max_units=widths.max_units,
                new_units=widths.new_units,
                ordered=widths.ordered if isinstance(widths, LearnedInOrder) else 0.0,
            )
        plain = Perceptron(data.inputs, hidden_sizes(self.layers, widths), data.outputs, self.activation)
        return fixed_without_autograd(plain, self.activation) if widths.units else plain
