"""Tables as text: aligned columns for a terminal, and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right.

    >>> print(text_table(["layer", "units"], [["hidden.0", "231"], ["hidden.1", "57"]]))
    layer     units
    hidden.0    231
    hidden.1     57
    """
    lines = [head, *rows]
    sizes = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [[line[0].ljust(sizes[0]), *map(str.rjust, line[1:], sizes[1:])] for line in lines]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown.

    >>> print(markdown_table(["layer", "units"], [["hidden.0", "231"]]))
    | layer | units |
    | --- | --- |
    | hidden.0 | 231 |
    """
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def as_table(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table of records: a column per key, and a dash for a missing value.

    >>> as_table([{"a": 1}, {"a": 2, "b": 0.5}])
    (['a', 'b'], [['1', '–'], ['2', '0.5']])
    """
    head = list(dict.fromkeys(name for record in records for name in record))
    return head, [["–" if record.get(name) is None else str(record[name]) for name in head] for record in records]
