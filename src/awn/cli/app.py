"""The `awn` command. Exit codes: 0 success, 1 an interrupt or a fault of ours, 2 a wrong call or a bad input."""

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
# Other packages add commands of their own, a function or a Typer of several: awn_paper adds `paper` and `bench`.
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
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Neural networks that learn the width of their layers while they train."""


def main() -> None:
    """Run the command line, and turn an error of ours, or of the disk, into one sentence and exit code 2."""
    try:
        app(prog_name="awn")
    except (AwnError, OSError) as error:
        sentence = str(error)
        if isinstance(error, OSError) and error.strerror:
            sentence = f"{error.filename or 'a file'} cannot be read or written: {error.strerror}."
        err.print(f"[red]error:[/red] {escape(sentence)}", highlight=False, soft_wrap=True)
        sys.exit(2)
