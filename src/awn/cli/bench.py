"""`awn bench`: what a learned width costs beside a fixed one, on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from awn.cli.fit import AsJson, Quiet
from awn.cli.output import print_json, print_table, say
from awn.errors import ArgumentError

_MEASURED = Path("results/bench")


def bench(
    only: Annotated[list[str] | None, typer.Option(help="step, resize, answer, after or memory; several too.")] = None,
    given: Annotated[Path | None, typer.Option("--out", help="Where to write. Default: results/bench.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes: the times say nothing.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print finished results as Markdown, and run nothing.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure training steps, resizes, whole searches, latency and memory against fixed widths.

    Example:  awn bench --only step
    """
    from awn.bench.record import BENCHMARKS, Rows, cells, columns, markdown, record

    folder = given or _MEASURED
    if show:
        typer.echo(markdown(folder))
        return
    if quick and folder.resolve() == _MEASURED.resolve():
        raise ArgumentError(
            f"--quick measures nothing worth keeping: name a folder other than {_MEASURED} for it, --out."
        )

    def print_rows(name: str, rows: Rows) -> None:
        if not as_json:
            names = columns(rows)
            print_table(BENCHMARKS[name].TITLE, names, [cells(row, names) for row in rows])

    found = record(folder, only or (), quick=quick, then=print_rows)
    if as_json:
        print_json(found)
    say(f"written to {folder}", quiet=quiet)
