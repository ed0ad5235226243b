"""Denormals: numbers below 1e-38, which slow down a processor many times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero inside a block, on this thread.

    The weights and the optimizer's moments of units that a network does not need shrink towards zero without reaching
    it. Without flushing, a long training may take several times as long.

    >>> tiny = torch.tensor(1e-40)
    >>> with flush_denormals():
    ...     bool(tiny * 1 == 0)
    True
    >>> bool(tiny * 1 == 0)
    False
    """
    before = _are_flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _are_flushed() -> bool:
    """Torch can set this mode but not report it."""
    return bool(torch.tensor(1e-40) * 1 == 0)
