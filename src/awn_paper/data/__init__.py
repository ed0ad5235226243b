"""The paper's data sets by name."""

from __future__ import annotations

import functools
from collections.abc import Callable

from awn.errors import ArgumentError
from awn_paper.data.dataset import Dataset
from awn_paper.data.graphs import load_nci1, load_reddit
from awn_paper.data.images import (
    load_cifar10,
    load_cifar10_part,
    load_cifar100,
    load_mnist,
    load_mnist_pixels,
    load_pmnist,
    load_pmnist_part,
)
from awn_paper.data.plane import load_double_moon, load_spiral, load_spiral_hard
from awn_paper.data.tables import load_credit, load_miniboone, load_pol
from awn_paper.data.text import load_multi30k, load_multi30k_seen, load_multi30k_short

LOADERS: dict[str, Callable[[], Dataset]] = {
    "DoubleMoon": load_double_moon,
    "Spiral": load_spiral,
    "SpiralHard": load_spiral_hard,
    "pol": load_pol,
    "MiniBooNE": load_miniboone,
    "credit card": load_credit,
    "PMNIST": load_pmnist,
    "PMNIST (10,000 images)": load_pmnist_part,
    "MNIST": load_mnist,
    "MNIST pixels": load_mnist_pixels,
    "CIFAR10": load_cifar10,
    "CIFAR10 (10,000 images)": load_cifar10_part,
    "CIFAR100": load_cifar100,
    "Multi30k": load_multi30k,
    "Multi30k (seen tokens)": load_multi30k_seen,
    "Multi30k (short)": load_multi30k_short,
}
#: Data sets that come in folds.
FOLDED: dict[str, Callable[[int], Dataset]] = {"NCI1": load_nci1, "REDDIT-B": load_reddit}
#: Those whose parts for training and validation are given, and not to be drawn anew for model selection.
GIVEN_PARTS = (*FOLDED, "Multi30k", "Multi30k (seen tokens)", "Multi30k (short)")


@functools.lru_cache(maxsize=2)
def load(name: str, fold: int = 0) -> Dataset:
    """A data set by its name, read once and kept; `fold` for those that come in folds.

    >>> len(load("SpiralHard").train.y)
    7200
    """
    if name in FOLDED:
        return FOLDED[name](fold)
    if name not in LOADERS:
        raise ArgumentError(f"no data set is called {name!r}. There are: {', '.join([*LOADERS, *FOLDED])}.")
    return LOADERS[name]()
