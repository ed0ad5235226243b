"""The `awn` command. Exit codes: 0 success, 1 an interrupt or a fault of ours, 2 a wrong call or a bad input."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated

import typer
from rich.markup import escape

from awn._version import __version__
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
    app.command()(command)
# Other packages add commands of their own, a function or a Typer of several: awn_paper adds `paper` and `bench`.
for point in sorted(entry_points(group="awn.commands"), key=lambda point: point.name):
    added = point.load()
    if isinstance(added, typer.Typer):
        app.add_typer(added, name=point.name)
    else:
        app.command(point.name)(added)


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


def as_typed(sentence: str, words: Sequence[str]) -> str:
    """The sentence of an error with the arguments that it speaks of as they were typed.

    >>> as_typed("max_params=3 cannot be met.", ["awn", "truncate", "--max-params", "3"])
    '--max-params 3 cannot be met.'
    """
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("--") and option != "--":
            name = re.escape(option[2:].replace("-", "_"))
            sentence = re.sub(rf"\b(?<!-){name}(?= must be)", option, sentence)
            sentence = re.sub(rf"\b{name}=", f"{option} ", sentence)
    return sentence


def main() -> None:
    """Run the command line, and turn an error of ours, or of the disk, into one sentence and exit code 2."""
    try:
        app(prog_name="awn")
    except (AwnError, OSError) as error:
        sentence = str(error)
        if isinstance(error, OSError) and error.strerror:
            sentence = f"{error.filename or 'a file'} cannot be read or written: {error.strerror}."
        err.print(f"[red]error:[/red] {escape(as_typed(sentence, sys.argv))}", highlight=False, soft_wrap=True)
        sys.exit(2)
