"""How commands speak: tables and sentences for people, JSON for machines, errors on the error stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

out = Console()
err = Console(stderr=True)


def print_json(content: Any) -> None:
    """One JSON object on the standard output."""
    typer.echo(json.dumps(content, ensure_ascii=False))


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table on the standard output; numbers to the right."""
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*map(str, row))
    out.print(table)


def say(sentence: str, *, quiet: bool = False) -> None:
    """A sentence on the error stream, so that it never mixes with results."""
    if not quiet:
        err.print(sentence, highlight=False)
