"""ResNet-20 for small images, with a perceptron between its 64 pooled features and the classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from awn_paper.data.dataset import Dataset
from awn_paper.models.perceptron import Perceptron, Widths, hidden_sizes

_BLOCKS_A_STAGE = 3
_CHANNELS = (16, 32, 64)
_ROWS_FOR_STATISTICS = 10_000


@dataclass(frozen=True)
class ResNet20:
    """Twenty layers for images of about 32 × 32. `augment`: random crops and flips while training."""

    activation: str = "leaky_relu"
    layers: int = 1
    augment: bool = True

    def build(self, data: Dataset, widths: Widths) -> nn.Module:
        """The plain network, which takes bytes."""
        head = Perceptron(_CHANNELS[-1], hidden_sizes(self.layers, widths), data.outputs, self.activation)
        return nn.Sequential(prepare(data, augment=self.augment), _trunk(data.inputs), head)


class Prepare(nn.Module):
    """Standardise the bytes of images; in training, shift them by up to 4 pixels and flip them at random."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, *, augment: bool) -> None:
        super().__init__()
        self.augment = augment
        self.register_buffer("mean", mean[:, None, None])
        self.register_buffer("std", std[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        """[samples, channels, height, width] of bytes to the same of numbers."""
        x = (x.float() - self.mean) / self.std
        moved = _shifted_and_flipped(x) if self.training and self.augment else x
        return moved.contiguous(memory_format=torch.channels_last)  # faster on a CPU, by a sixth for this network


def prepare(data: Dataset, *, augment: bool) -> Prepare:
    """What comes before a network of images, with the statistics of the training part."""
    known = data.train.x[:_ROWS_FOR_STATISTICS].float()
    return Prepare(known.mean((0, 2, 3)), known.std((0, 2, 3)), augment=augment)


class Block(nn.Module):
    """Two convolutions beside a shortcut, which takes every second pixel and adds empty channels where it must."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outside)
        self.stride, self.added = stride, outside - inside

    def forward(self, x: Tensor) -> Tensor:
        """A residual block."""
        inner = self.second_norm(self.second(F.relu(self.first_norm(self.first(x)))))
        shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        return F.relu(inner + shortcut)


def _trunk(channels: int) -> nn.Sequential:
    trunk = nn.Sequential(
        nn.Conv2d(channels, _CHANNELS[0], 3, padding=1, bias=False), nn.BatchNorm2d(_CHANNELS[0]), nn.ReLU()
    )
    inside = _CHANNELS[0]
    for outside in _CHANNELS:
        for _ in range(_BLOCKS_A_STAGE):
            trunk.append(Block(inside, outside, stride=1 if inside == outside else 2))
            inside = outside
    return trunk.append(nn.AdaptiveAvgPool2d(1)).append(nn.Flatten())


def _shifted_and_flipped(x: Tensor, by: int = 4) -> Tensor:
    samples, _, height, width = x.shape
    padded = F.pad(x, (by, by, by, by))
    down, right = torch.randint(0, 2 * by + 1, (2, samples, 1, 1, 1), device=x.device)
    rows = down + torch.arange(height, device=x.device)[:, None]
    columns = right + torch.arange(width, device=x.device)
    flip = torch.rand(samples, 1, 1, 1, device=x.device) < 0.5
    columns = torch.where(flip, columns.flip(-1), columns)
    sample = torch.arange(samples, device=x.device)[:, None, None, None]
    channel = torch.arange(x.shape[1], device=x.device)[:, None, None]
    return padded[sample, channel, rows, columns]
