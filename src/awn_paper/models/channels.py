"""ResNet-20 whose channels are learned or fixed, in every layer: past the paper, which learns the head alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from awn.adapt import adapt_
from awn.core.width import Width
from awn_paper.data.dataset import Dataset
from awn_paper.models.perceptron import Fixed, Learned, Widths
from awn_paper.models.resnet import prepare

_BLOCKS_A_STAGE = 3


@dataclass(frozen=True)
class ChannelResNet20:
    """Twenty layers, with as many channels in the first stage as the widths say, then two and four times as many.

    `Learned` starts from the width of its importance, with the same family in all layers.
    """

    augment: bool = True

    def build(self, data: Dataset, widths: Widths) -> nn.Module:
        """The plain network, which takes bytes."""
        first = first_channels(widths)
        trunk = _trunk(data.inputs, first)
        return nn.Sequential(prepare(data, augment=self.augment), trunk, nn.Linear(4 * first, data.outputs))

    def learn_(self, model: nn.Module, learned: Learned, data: Dataset) -> None:
        """Have all channels learn their number, each layer from the one that it has."""
        adapt_(
            model,
            importance=type(learned.importance),
            quantile=learned.quantile,
            max_units=learned.max_units,
            new_units=learned.new_units,
            example_input=data.train.x[:2],
        )


class ProjectedBlock(nn.Module):
    """Two convolutions beside a shortcut, which is a convolution where the number of channels changes.

    ResNet-20 itself pads the shortcut with empty channels, which ties the channels of all stages to each other.
    """

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        """A residual block."""
        inner = self.second_norm(self.second(F.relu(self.first_norm(self.first(x)))))
        return F.relu(inner + self.shortcut(x))


def first_channels(widths: Widths) -> int:
    """The channels of the first stage with which a network is built."""
    if isinstance(widths, Fixed):
        return widths.units
    return Width(widths.importance, quantile=widths.quantile, max_units=widths.max_units).units


def _trunk(inputs: int, first: int) -> nn.Sequential:
    trunk = nn.Sequential(nn.Conv2d(inputs, first, 3, padding=1, bias=False), nn.BatchNorm2d(first), nn.ReLU())
    inside = first
    for outside in (first, 2 * first, 4 * first):
        for _ in range(_BLOCKS_A_STAGE):
            trunk.append(ProjectedBlock(inside, outside, stride=1 if inside == outside else 2))
            inside = outside
    return trunk.append(_MeanOverPixels())


class _MeanOverPixels(nn.Module):
    """Global average pooling. `adapt_` does not follow AdaptiveAvgPool2d's own strides over channels-last images."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))
