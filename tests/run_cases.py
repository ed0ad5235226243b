"""What a worker does in the tests of many runs: in a file that its process can import by name."""

from __future__ import annotations

import os

from awn.errors import ArgumentError


def square(run: int) -> int:
    """Squares, but for some numbers that go wrong."""
    if run == 3:
        raise ArgumentError("3 cannot be used.")
    if run == 4:
        raise KeyError("four")
    if run == 5:
        os._exit(9)
    return run * run
