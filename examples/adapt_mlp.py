"""A plain PyTorch network on MNIST that learns the width of its hidden layers.

AWN_DATA=folder python examples/adapt_mlp.py [--steps 1000] [--results results/adapt/adapt_mlp.json]
"""

from __future__ import annotations

from torch import nn

from training import compare, images, options_of


def network() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def main() -> None:
    options = options_of(__doc__, steps=1000)
    compare("MLP on MNIST", network, images("MNIST"), options)


if __name__ == "__main__":
    main()
