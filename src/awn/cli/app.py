"""The `awn` program. Exit codes: 0 success, 1 interrupt, failed runs or a bug, 2 invalid usage or input."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer
from rich.markup import escape

from awn._version import __version__
from awn.cli.command import AwnCommand
from awn.cli.fit import fit
from awn.cli.model import compress, export, inspect, predict, truncate
from awn.cli.output import err
from awn.cli.report import report
from awn.errors import AwnError

app = typer.Typer(
    help="Neural networks that learn the width of their layers while they train.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
for command in (fit, predict, inspect, truncate, compress, export, report):
    app.command(cls=AwnCommand)(command)
# Other packages may add commands, each a function or a Typer: awn_paper adds `paper` and `bench`.
for point in sorted(entry_points(group="awn.commands"), key=lambda point: point.name):
    added = point.load()
    if isinstance(added, typer.Typer):
        app.add_typer(added, name=point.name)
    else:
        app.command(point.name, cls=AwnCommand)(added)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"awn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Neural networks that learn the width of their layers while they train."""


def main() -> None:
    """Run the command line; awn's own errors and those of the file system end it with one sentence and code 2."""
    try:
        app(prog_name="awn")
    except (AwnError, OSError) as error:
        sentence = str(error)
        if isinstance(error, OSError) and error.strerror:
            sentence = f"{error.filename or 'A file'} cannot be read or written: {error.strerror}."
        err.print(f"[red]error:[/red] {escape(sentence)}", highlight=False, soft_wrap=True)
        sys.exit(2)
