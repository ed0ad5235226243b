"""AdaptiveRNN: a recurrent network whose two perceptrons learn their width."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from awn.basics.checks import check_units
from awn.core.gate import read_once
from awn.errors import ArgumentError
from awn.nn.activations import make_activation
from awn.nn.mlp import AdaptiveMLP


class AdaptiveRNN(nn.Module):
    """The paper's recurrent network: hₜ = σ(input_to_hidden(xₜ) + hidden_to_hidden(hₜ₋₁)).

    Both parts are an `AdaptiveMLP` with one hidden layer and take its options. The size of the state is fixed. The call
    is that of `nn.RNN`: inputs [steps, samples, features], or [samples, steps, features] with `batch_first`.

    >>> import awn
    >>> rnn = awn.nn.AdaptiveRNN(1, 16, importance=awn.Exponential.for_units(24))
    >>> outputs, state = rnn(torch.zeros(5, 3, 1))
    >>> outputs.shape, state.shape
    (torch.Size([5, 3, 16]), torch.Size([1, 3, 16]))
    >>> awn.widths(rnn)
    {'input_to_hidden.hidden.0': 24, 'hidden_to_hidden.hidden.0': 24}
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        nonlinearity: str | nn.Module = "tanh",
        batch_first: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        check_units("hidden_size", hidden_size)
        self.input_size, self.hidden_size, self.batch_first = input_size, hidden_size, batch_first
        self.nonlinearity = make_activation(nonlinearity)
        self.input_to_hidden = AdaptiveMLP(input_size, hidden_size, **options)
        self.hidden_to_hidden = AdaptiveMLP(hidden_size, hidden_size, **options)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The states after all steps, and the last one; `state` is the initial state [1, samples, hidden_size]."""
        if x.dim() != 3 or x.shape[-1] != self.input_size:
            layout = "[samples, steps, features]" if self.batch_first else "[steps, samples, features]"
            raise ArgumentError(f"inputs must be {layout} with {self.input_size} features, got {tuple(x.shape)}.")
        steps = x.transpose(0, 1) if self.batch_first else x
        hidden = x.new_zeros(steps.shape[1], self.hidden_size) if state is None else state[0]
        outputs = []
        # The importance is the same at every step, so each gated weight is computed once.
        with read_once(self):
            for entering in self.input_to_hidden(steps):
                hidden = self.nonlinearity(entering + self.hidden_to_hidden(hidden))
                outputs.append(hidden)
        stacked = torch.stack(outputs, dim=1 if self.batch_first else 0)
        return stacked, hidden[None]
