"""Column names: strings, none of them empty, no two the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from awn.basics.names import listed
from awn.errors import ArgumentError, TableError


def with_names(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table with its column names as strings, checked.

    >>> with_names(pd.DataFrame([[1, 2]], columns=["a", 7])).columns.tolist()
    ['a', '7']
    """
    if not isinstance(frame, pd.DataFrame):
        raise ArgumentError(f"A table must be a pandas DataFrame, got {type(frame).__name__}.")
    names = [str(name) for name in frame.columns]
    check_names(names, "The table")
    return frame.set_axis(names, axis=1)


def check_names(names: Sequence[str], table: str) -> None:
    """Refuse unnamed and duplicate columns; `table` names the table in the error.

    >>> check_names(["a", "b", "a"], "sales.csv")
    Traceback (most recent call last):
    awn.errors.TableError: sales.csv has more than one column named 'a' (columns 1 and 3). Rename or remove all but one.
    """
    unnamed = [place for place, name in enumerate(names, start=1) if not name.strip()]
    if unnamed:
        at = f"column {unnamed[0]}" if len(unnamed) == 1 else f"columns {', '.join(map(str, unnamed[:10]))}"
        advice = ""
        if unnamed == [1]:
            advice = " If it is a pandas index, write the file with to_csv(..., index=False)."
        elif unnamed == [len(names)]:
            advice = " The header probably ends in a delimiter; remove it there and in every row."
        raise TableError(f"{table} has no name for {at} of {len(names)}. Name every column.{advice}")
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        places = [str(place) for place, name in enumerate(names, start=1) if name == duplicates[0]]
        more = f" Other duplicates: {listed(duplicates[1:])}." if len(duplicates) > 1 else ""
        raise TableError(
            f"{table} has more than one column named {duplicates[0]!r} (columns {' and '.join(places)}). "
            f"Rename or remove all but one.{more}"
        )
