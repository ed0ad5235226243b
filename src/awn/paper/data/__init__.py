"""The paper's data sets by name."""

from __future__ import annotations

import functools
from collections.abc import Callable

from awn.errors import ArgumentError
from awn.paper.data.dataset import Dataset
from awn.paper.data.plane import load_double_moon, load_spiral, load_spiral_hard
from awn.paper.data.tables import load_credit, load_miniboone, load_pol

LOADERS: dict[str, Callable[[], Dataset]] = {
    "DoubleMoon": load_double_moon,
    "Spiral": load_spiral,
    "SpiralHard": load_spiral_hard,
    "pol": load_pol,
    "MiniBooNE": load_miniboone,
    "credit card": load_credit,
}


@functools.lru_cache(maxsize=2)
def load(name: str, fold: int = 0) -> Dataset:
    """A data set by its name, read once and kept; `fold` for those that come in folds.

    >>> len(load("SpiralHard").train.y)
    7200
    """
    if name not in LOADERS:
        raise ArgumentError(f"no data set is called {name!r}. There are: {', '.join(LOADERS)}.")
    return LOADERS[name]()
