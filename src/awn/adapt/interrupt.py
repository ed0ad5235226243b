"""Interrupt: Ctrl-C is raised at points where everything can be undone, and nowhere else."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_pending: list[int] = []


@contextlib.contextmanager
def interrupts_delayed() -> Iterator[None]:
    """Keep Ctrl-C until `check_interrupt` is called, or until the end of the block.

    >>> with interrupts_delayed():
    ...     check_interrupt()
    """
    if threading.current_thread() is not threading.main_thread():  # signals arrive elsewhere
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is None or not callable(before):  # ignored, or set by other code than Python's
        yield
        return
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if _pending:
            _pending.clear()
            before(signal.SIGINT, None)


def check_interrupt() -> None:
    """Raise a Ctrl-C that has come in the meantime."""
    if _pending:
        _pending.clear()
        raise KeyboardInterrupt


def _note(number: int, frame: Any) -> None:
    _pending.append(number)
