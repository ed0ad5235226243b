"""The networks for points and tables: a perceptron alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from awn_paper.data.dataset import Dataset
from awn_paper.models.perceptron import Perceptron, Widths, hidden_sizes


@dataclass(frozen=True)
class MLP:
    """A perceptron of so many hidden layers."""

    layers: int = 1
    activation: str = "relu6"

    def build(self, data: Dataset, widths: Widths) -> nn.Module:
        """The plain network."""
        return Perceptron(data.inputs, hidden_sizes(self.layers, widths), data.outputs, self.activation)
