"""Output of commands: results on the standard output, as tables or JSON; messages and errors on the error stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from awn.cli.streams import prints_utf8

out = Console()
err = Console(stderr=True)
_WIDE = 140
_CHUNK = 1 << 16  # bytes


def print_json(content: Any) -> None:
    """Print a JSON object on the standard output; NaN and infinity, which JSON lacks, become null."""
    from awn.basics.plain import to_plain  # imports torch
    from awn.files.write import json_text

    plain = to_plain(content, nonfinite="null")
    typer.echo(json_text(plain) if prints_utf8() else json.dumps(plain))


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table on the standard output, with the first column left-aligned and the others right-aligned."""
    table = Table(title=escape(title), title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    # A file or pipe has no width; long lines are better there than wrapped cells.
    (out if out.is_terminal else Console(width=max(out.width, _WIDE))).print(table)


def print_bytes(content: bytes) -> None:
    """Write data to the standard output as it is, in whatever encoding the terminal has."""
    sys.stdout.flush()
    for start in range(0, len(content), _CHUNK):  # in chunks, to notice a reader that has gone
        sys.stdout.buffer.write(content[start : start + _CHUNK])
        sys.stdout.buffer.flush()


def say(sentence: str, *, quiet: bool = False) -> None:
    """Print a message on the error stream, so that it never mixes with results."""
    if not quiet:
        err.print(sentence, highlight=False, markup=False, soft_wrap=True)


def score_text(score: float | None) -> str:
    """A score with four decimals, or a dash.

    >>> score_text(0.91234), score_text(None)
    ('0.9123', '–')
    """
    return "–" if score is None else f"{score:.4f}"
