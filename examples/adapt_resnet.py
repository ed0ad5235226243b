"""A small residual network on MNIST that learns how many channels its convolutions have.

    AWN_DATA=folder python examples/adapt_resnet.py [--steps 300] [--results results/adapt/adapt_resnet.json]

Channels inside a block have their own width. Channels that residual connections add share one width.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from training import compare, images, options_of


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut.append(nn.Conv2d(inside, outside, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        inside = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inside)) + self.shortcut(x))


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Block(16, 16),
        Block(16, 32, stride=2),
        Block(32, 64, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def main() -> None:
    options = options_of(__doc__, steps=300)
    compare("ResNet on MNIST", network, images("MNIST"), options)


if __name__ == "__main__":
    main()
