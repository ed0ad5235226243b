"""Benchmark 5, memory: the peak of a training step, learned widths over fixed ones.

Counted, not sampled: torch's memory tracker adds up every tensor that is alive. What a kernel takes for itself inside
one operation is not seen; it is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from awn.basics.timing import Work, threads
from awn_paper.bench.pairs import PAIRS, QUICK_PAIRS, adam, adaptive_step, fixed_step

TITLE = "Peak memory of a training step, adaptive / fixed"


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """A row for each network."""
    rows = []
    with threads(1):
        for pair in QUICK_PAIRS if quick else PAIRS:
            x, y = pair.batch()
            fixed = _peak(pair.fixed(), x, y, fixed_step)
            adaptive = _peak(pair.adaptive(), x, y, adaptive_step)
            rows.append({"network": pair.name, "fixed, MB": round(fixed / 1e6, 3), "ratio": round(adaptive / fixed, 3)})
    return rows


def _peak(model: nn.Module, x: Tensor, y: Tensor, make: Callable[..., Work]) -> int:
    """The bytes of all tensors at the worst moment of the second step: the first makes the optimizer's state."""
    optimizer = adam(model)
    step = make(model, optimizer, x, y)
    step()
    optimizer.zero_grad()
    return peak_of(step, model, optimizer, x, y)


def peak_of(work: Work, *held: nn.Module | Optimizer | Tensor) -> int:
    """The bytes of what is held before, and of all that a work makes, at its worst moment.

    >>> x = torch.zeros(1000)
    >>> peak_of(lambda: (x + 1) * 2, x)   # x, x + 1 and the product
    12000
    """
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(*held)
    with tracker:
        work()
    peak: int = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    return peak
