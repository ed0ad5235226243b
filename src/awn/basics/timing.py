"""Timing in turns: functions run in short interleaved bursts, so that a busy machine slows all alike."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

#: The function to time. It is called many times.
Work = Callable[[], object]


def in_turns(works: Mapping[str, Work], repetitions: int, burst: float = 0.05) -> dict[str, list[float]]:
    """The seconds per call of each function, in every repetition.

    In each repetition, every function runs for a burst of about `burst` seconds, at least one call. The order is
    shuffled each time, because the function that ran before affects the caches. With one thread, processor time is
    measured, which other processes affect little; with several threads, wall-clock time.

    >>> seconds = in_turns({"short": lambda: sum(range(10)), "long": lambda: sum(range(10_000))}, repetitions=5)
    >>> len(seconds["short"]), ratio(seconds["long"], seconds["short"]) > 1
    (5, True)
    """
    calls = {}
    for name, work in works.items():
        work()  # the first call allocates
        calls[name] = max(1, round(burst / max(_seconds(work, 1), 1e-6)))
        _seconds(work, calls[name])
    seconds: dict[str, list[float]] = {name: [] for name in works}
    order, shuffler = list(works), random.Random(0)
    for _ in range(repetitions):
        shuffler.shuffle(order)
        for name in order:
            seconds[name].append(_seconds(works[name], calls[name]))
    return seconds


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """The ratio of the medians.

    >>> ratio([3, 2, 9], [2, 1, 2])
    1.5
    """
    return round(statistics.median(over) / statistics.median(under), 3)


def middle_half(over: Sequence[float], under: Sequence[float]) -> str:
    """The interquartile range of the ratios of the turns: how reliable a ratio is.

    >>> middle_half([1, 2, 3, 4, 5], [1, 1, 1, 1, 1])
    '2.00–4.00'
    """
    lower, _, upper = statistics.quantiles([a / b for a, b in zip(over, under, strict=True)], n=4, method="inclusive")
    return f"{lower:.2f}–{upper:.2f}"


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Set the number of threads of torch inside a block.

    >>> with threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _seconds(work: Work, calls: int) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    started = clock()
    for _ in range(calls):
        work()
    return (clock() - started) / calls
