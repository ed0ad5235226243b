"""The three synthetic data sets, in the paper's splits."""

from __future__ import annotations

from awn.datasets import Samples, double_moon, spiral, spiral_hard, split
from awn.training.data import Data
from awn_paper.data.dataset import Dataset


def load_double_moon() -> Dataset:
    """DoubleMoon: 3600 / 400 / 1000 points."""
    return _dataset("DoubleMoon", double_moon())


def load_spiral() -> Dataset:
    """Spiral: 3600 / 400 / 1000 points."""
    return _dataset("Spiral", spiral())


def load_spiral_hard() -> Dataset:
    """SpiralHard: 7200 / 800 / 2000 points."""
    return _dataset("SpiralHard", spiral_hard())


def _dataset(name: str, samples: Samples) -> Dataset:
    train, validation, test = (Data(*part) for part in split(samples))
    return Dataset(name, train, validation, test, inputs=2, outputs=2)
