"""Column names, checked once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from awn.basics.names import listed
from awn.errors import TableError


def check_names(names: Sequence[str], table: str) -> None:
    """Refuse columns without a name, or with the name of another.

    >>> check_names(["a", "b", "a"], "sales.csv")
    Traceback (most recent call last):
    awn.errors.TableError: sales.csv has more than one column named 'a' (columns 1 and 3). Rename or remove all but one.
    """
    unnamed = [place for place, name in enumerate(names, start=1) if not name.strip()]
    if unnamed:
        at = f"column {unnamed[0]}" if len(unnamed) == 1 else f"columns {', '.join(map(str, unnamed[:10]))}"
        why = ""
        if unnamed == [1]:
            why = " If it numbers the rows, as pandas writes it, leave it out with to_csv(..., index=False)."
        elif unnamed == [len(names)]:
            why = " The line of names probably ends in a delimiter; remove it, there and in every row."
        raise TableError(f"{table} has no name for {at} of {len(names)}. Name every column.{why}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        places = [str(place) for place, name in enumerate(names, start=1) if name == twice[0]]
        more = f" Others that repeat: {listed(twice[1:])}." if len(twice) > 1 else ""
        raise TableError(
            f"{table} has more than one column named {twice[0]!r} (columns {' and '.join(places)}). "
            f"Rename or remove all but one.{more}"
        )
