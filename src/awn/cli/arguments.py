"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from awn.errors import ArgumentError

Quiet = Annotated[bool, typer.Option("--quiet", help="Print only results and errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as a JSON object.")]

Ignore = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column to leave out. May be repeated.")]
Kind = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=KIND",
        help="Kind of a column: number, boolean, category, date or ignored. Default: inferred. May be repeated.",
    ),
]


def column_kinds(ignore: Sequence[str], kind: Sequence[str]) -> dict[str, str]:
    """The kinds of columns that --ignore COLUMN and --kind COLUMN=KIND set.

    >>> column_kinds(["name"], ["zip=category", "a=b=number"])
    {'zip': 'category', 'a=b': 'number', 'name': 'ignored'}
    """
    kinds = {}
    for entry in kind:
        name, sign, given = entry.rpartition("=")
        if not (sign and name and given):
            raise ArgumentError(f"--kind takes COLUMN=KIND, such as zip=category, got {entry!r}.")
        kinds[name] = given
    return {**kinds, **dict.fromkeys(ignore, "ignored")}
