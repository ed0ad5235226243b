"""TableSettings: everything that decides the result of a run on a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from awn.errors import ArgumentError
from awn.tabular.read.target import Task, check_task

_SEEDS = 2**32


@dataclass(frozen=True)
class TableSettings:
    """How to train on a table.

    `task` is inferred from the target if None. `test_size` is the fraction of the rows in the test set. `seed` decides
    the split, the initial weights and the order of the rows. `compare` also trains a fixed network of the learned
    widths, gradient boosting and a linear model. `explain` measures the importance of the columns. `options` are
    parameters of the estimator; they are checked when the task is known.

    >>> TableSettings("price", test_size=1.5)
    Traceback (most recent call last):
    awn.errors.ArgumentError: test_size must lie strictly between 0 and 1, got 1.5.
    """

    target: str
    task: Task | None = None
    test_size: float = 0.2
    seed: int = 0
    compare: bool = True
    explain: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_task(self.task)
        if not 0 < self.test_size < 1:
            raise ArgumentError(
                f"test_size must lie strictly between 0 and 1, got {self.test_size}.", argument="test_size"
            )
        if not 0 <= self.seed < _SEEDS:
            raise ArgumentError(
                f"seed must be a whole number from 0 to {_SEEDS - 1}, got {self.seed}.", argument="seed"
            )
