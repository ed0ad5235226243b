"""How commands speak: tables and sentences for people, JSON for machines, errors on the error stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from awn.basics.plain import to_plain

out = Console()
err = Console(stderr=True)
_WIDE = 140


def print_json(content: Any) -> None:
    """One JSON object on the standard output; a number that is none, which JSON has no word for, as null."""
    typer.echo(json.dumps(to_plain(content, nonfinite="null"), ensure_ascii=False, allow_nan=False))


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on the standard output; numbers to the right."""
    table = Table(title=escape(title), title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    # A file has no width: rather long lines than cells broken in two.
    (out if out.is_terminal else Console(width=max(out.width, _WIDE))).print(table)


def say(sentence: str, *, quiet: bool = False) -> None:
    """A sentence on the error stream, so that it never mixes with results."""
    if not quiet:
        err.print(sentence, highlight=False, markup=False, soft_wrap=True)
