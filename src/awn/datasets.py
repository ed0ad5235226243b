"""The paper's synthetic data sets: DoubleMoon, Spiral and SpiralHard."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

_NOISE = 0.3


class Samples(NamedTuple):
    """Points in the plane [samples, 2] with their classes [samples], 0 or 1."""

    x: Tensor
    y: Tensor


class Split(NamedTuple):
    """Training, validation and test set."""

    train: Samples
    validation: Samples
    test: Samples


def double_moon(seed: int = 0, per_class: int = 2500) -> Samples:
    """Two interleaved half circles.

    >>> double_moon().x.shape
    torch.Size([5000, 2])
    """
    generator = torch.Generator().manual_seed(seed)
    moons = []
    for sign, shift in ((1, (-5.0, 0.0)), (-1, (5.0, 5.0))):
        t = torch.rand(per_class, generator=generator) * math.pi
        circle = torch.stack([10 * sign * t.cos(), 10 * sign * t.sin()], dim=1)
        moons.append(circle + torch.tensor(shift) + _noise(per_class, generator))
    return _join(*moons)


def spiral(seed: int = 0, per_class: int = 2500, turns: int = 1) -> Samples:
    """Two intertwined arms of a spiral; `turns` is the paper's r.

    >>> spiral().x.abs().max() < 14
    tensor(True)
    """
    generator = torch.Generator().manual_seed(seed)
    arms = []
    for sign in (1, -1):
        t = torch.rand(per_class, generator=generator).sqrt() * turns * 4 * math.pi
        arm = torch.stack([-t * t.cos(), t * t.sin()], dim=1) + _noise(per_class, generator)
        arms.append(sign * arm / turns)
    return _join(*arms)


def spiral_hard(seed: int = 0, per_class: int = 5000) -> Samples:
    """The spiral with twice the turns in the same space.

    >>> spiral_hard().y.bincount()
    tensor([5000, 5000])
    """
    return spiral(seed, per_class, turns=2)


def split(samples: Samples, seed: int = 0) -> Split:
    """A stratified split: 72 % training, 8 % validation, 20 % test.

    >>> [len(part.y) for part in split(spiral_hard())]
    [7200, 800, 2000]
    """
    generator = torch.Generator().manual_seed(seed)
    parts: list[list[Tensor]] = [[], [], []]
    for label in samples.y.unique():
        members = (samples.y == label).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=generator)]
        first, second = round(0.72 * len(members)), round(0.80 * len(members))
        for part, chosen in zip(parts, members.tensor_split([first, second]), strict=True):
            part.append(chosen)
    train, validation, test = (torch.cat(part) for part in parts)
    return Split(*(Samples(samples.x[rows], samples.y[rows]) for rows in (train, validation, test)))


def _noise(points: int, generator: torch.Generator) -> Tensor:
    return _NOISE * torch.randn(points, 2, generator=generator)


def _join(first: Tensor, second: Tensor) -> Samples:
    return Samples(torch.cat([first, second]), torch.arange(2).repeat_interleave(len(first)))
