"""The paper's recurrent network on permuted MNIST: two adaptive perceptrons compute each new state.

    AWN_DATA=folder python examples/adapt_rnn.py [--steps 500] [--results results/adapt/adapt_rnn.json]

Each image, with its pixels in one random order, is read as 28 steps of 28 pixels, so the example takes minutes.
"""

from __future__ import annotations

from torch import Tensor, nn

import awn
from training import compare, images, options_of


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        start = awn.Exponential.for_units(128, scale="unit")
        self.rnn = awn.nn.AdaptiveRNN(28, 64, batch_first=True, importance=start)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.rnn(x.reshape(len(x), 28, 28))
        logits: Tensor = self.head(state[0])
        return logits


def main() -> None:
    options = options_of(__doc__, steps=500)
    compare("RNN on permuted MNIST", Reader, images("PMNIST"), options)


if __name__ == "__main__":
    main()
