"""Benchmark 2, a resize: what one more unit costs at any width, with Adam's state in tow, and its peak memory."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.nn import functional as F

from awn.basics.timing import threads
from awn.core.families import Exponential
from awn.core.groups import find_groups
from awn.core.resize import set_units_
from awn.nn.mlp import AdaptiveMLP
from awn_paper.bench.memory import peak_of

TITLE = "Adding a unit"
_WIDTHS, _QUICK_WIDTHS = (64, 256, 1024, 4096, 16_384, 65_536), (64, 128)
_FEATURES = 64


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """A row for each width. The peak is that of a reallocation, over the memory of weights, gradients and moments."""
    rows = []
    with threads(1):
        for width in _QUICK_WIDTHS if quick else _WIDTHS:
            seconds = sorted(_seconds_per_unit(width) for _ in range(2 if quick else 5))
            rows.append(
                {
                    "width": width,
                    "microseconds per unit": round(1e6 * seconds[len(seconds) // 2], 1),
                    "peak memory": round(_peak(width), 2),
                }
            )
    return rows


def _seconds_per_unit(width: int) -> float:
    """Growing one unit at a time, as far as the next reallocation and past it: that is paid for by all of them."""
    model, optimizer = _trained(width)
    added = max(32, width // 16)
    started = time.process_time()
    for units in range(width + 1, width + added + 1):
        set_units_(model, {"hidden.0": units}, optimizer)
    return (time.process_time() - started) / added


def _trained(width: int) -> tuple[AdaptiveMLP, torch.optim.Optimizer]:
    model = AdaptiveMLP(_FEATURES, _FEATURES, importance=Exponential.for_units(width))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    F.mse_loss(model(torch.zeros(1, _FEATURES)), torch.zeros(1, _FEATURES)).backward()
    optimizer.step()
    return model, optimizer


def _peak(width: int) -> float:
    model, optimizer = _trained(width)
    beyond = find_groups(model)[0].width.capacity + 1
    before = peak_of(lambda: None, model, optimizer)
    return peak_of(lambda: set_units_(model, {"hidden.0": beyond}, optimizer), model, optimizer) / before
