"""Names in error messages: the first few of many, and suggestions for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def listed(names: Iterable[str], most: int = 10) -> str:
    """The first few names, in quotes.

    >>> listed(["age", "job", "pay"], most=2)
    "'age', 'job' and 1 more"
    """
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def near(name: str, names: Sequence[str]) -> str:
    """A suggestion of similar names, or an empty string.

    >>> near("Incme", ["age", "income"])
    " Did you mean 'income'?"
    """
    lower = {other.lower(): other for other in reversed(names)}
    found = [lower[match] for match in difflib.get_close_matches(name.lower(), lower, n=3)]
    return f" Did you mean {' or '.join(repr(match) for match in found)}?" if found else ""
