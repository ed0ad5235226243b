"""The memory that is left."""

from __future__ import annotations

from pathlib import Path

_FACTS = Path("/proc/meminfo")


def available_memory() -> int | None:
    """The bytes that a process can still allocate without swapping; None where the system does not tell.

    >>> available_memory() is None or available_memory() > 0
    True
    """
    lines = _FACTS.read_text(encoding="ascii").splitlines() if _FACTS.is_file() else []
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return 1024 * found[0] if found else None
