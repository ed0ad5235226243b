"""Search: ways of choosing the next width to try, given what the widths so far scored.

A merit is a score, and what decides between equal ones. Optuna's samplers go by the score.

Grid, random and Bayesian search are Optuna's; local search goes to the better neighbour, as in the paper's comparison.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from awn.basics.extra import needs_extra
from awn.errors import ArgumentError

Proposer = Literal["grid", "random", "bayes", "local"]
Merit = tuple[float, float]
Tried = Sequence[tuple[int, Merit]]
Propose = Callable[[Tried], int]


def make_proposer(kind: Proposer, widths: Sequence[int], seed: int) -> Propose:
    """A function from what was tried, widths and their merits in order, to the width to try next.

    >>> propose = make_proposer("grid", [8, 16, 32], seed=0)
    >>> tried = []
    >>> for _ in range(3):
    ...     tried.append((propose(tried), (0.5, 0.0)))
    >>> sorted(units for units, _ in tried)
    [8, 16, 32]
    """
    if kind not in get_args(Proposer):
        raise ArgumentError(f"no search is called {kind!r}. There are: {', '.join(get_args(Proposer))}.")
    if kind == "local":
        return _LocalSearch(widths, seed)
    return _OptunaSearch(kind, widths, seed)


class _OptunaSearch:
    def __init__(self, kind: Proposer, widths: Sequence[int], seed: int) -> None:
        with needs_extra("searching widths needs Optuna", "paper", "optuna"):
            import optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        samplers: dict[str, Callable[[], Any]] = {
            "grid": lambda: optuna.samplers.GridSampler({"units": list(widths)}, seed=seed),
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
            "bayes": lambda: optuna.samplers.TPESampler(n_startup_trials=2, seed=seed),
        }
        self._study = optuna.create_study(direction="maximize", sampler=samplers[kind]())
        self._widths = list(widths)
        self._grid = kind == "grid"
        self._asked: Any = None

    def __call__(self, tried: Tried) -> int:
        if self._asked is not None:
            score, _ = tried[-1][1]
            self._study.tell(self._asked, score if math.isfinite(score) else 0.0)
        self._asked = self._study.ask()
        if self._grid:
            return int(self._asked.suggest_categorical("units", self._widths))
        return int(self._asked.suggest_int("units", min(self._widths), max(self._widths)))


class _LocalSearch:
    """From a random width to its neighbours in the list; on to the better one, until none is better."""

    def __init__(self, widths: Sequence[int], seed: int) -> None:
        self._widths = sorted(widths)
        self._start = random.Random(seed).randrange(len(self._widths))

    def __call__(self, tried: Tried) -> int:
        merits = dict(tried)
        if not merits:
            return self._widths[self._start]
        place = self._widths.index(max(merits, key=lambda units: merits[units]))
        neighbours = [self._widths[n] for n in (place + 1, place - 1) if 0 <= n < len(self._widths)]
        untried = [units for units in neighbours if units not in merits]
        return untried[0] if untried else self._widths[place]  # at the top of a hill it stays
