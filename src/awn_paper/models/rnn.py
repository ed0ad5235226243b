"""The paper's recurrent network: state = tanh(A(x) + B(state)), with perceptrons A and B."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from awn_paper.data.dataset import Dataset
from awn_paper.models.perceptron import Perceptron, Widths, hidden_sizes


@dataclass(frozen=True)
class RNN:
    """A state of 128 units by default, from which the class is read after the last step."""

    layers: int = 1
    activation: str = "relu6"
    state: int = 128

    def build(self, data: Dataset, widths: Widths) -> nn.Module:
        """The plain network, which takes bytes."""
        hidden = hidden_sizes(self.layers, widths)
        return Recurrent(data.inputs, self.state, data.outputs, hidden, self.activation)


class Recurrent(nn.Module):
    """Reads a sequence [samples, steps, features] of bytes."""

    def __init__(self, inputs: int, state: int, outputs: int, hidden: list[int], activation: str) -> None:
        super().__init__()
        self.from_input = Perceptron(inputs, hidden, state, activation)
        self.from_state = Perceptron(state, hidden, state, activation)
        self.output = nn.Linear(state, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """The classes' logits after the last step."""
        read = self.from_input(x.float() / 255)  # all steps at once
        state = torch.tanh(read[:, 0])
        for step in range(1, read.shape[1]):
            state = torch.tanh(read[:, step] + self.from_state(state))
        logits: Tensor = self.output(state)
        return logits
