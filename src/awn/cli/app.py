"""The `awn` program. Exit codes: 0 success, 1 interrupt, failed runs or a bug, 2 invalid usage or input."""

from __future__ import annotations

import errno
import signal
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
from awn.cli.streams import print_anything
from awn.cli.ui import ui
from awn.errors import AwnError

# Torch's own words, in a RuntimeError.
_NO_MEMORY = "can't allocate memory"
# What to do about a disk that takes no more.
_CANNOT_WRITE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "Free some space"),
    **dict.fromkeys((errno.EROFS, errno.EIO), "Make the disk writable again"),
}

app = typer.Typer(
    help="Neural networks that learn the width of their layers while they train.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
for command in (fit, predict, inspect, truncate, compress, export, report, ui):
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
    """Run the command line; errors of awn, of the file system and of memory end it with one sentence and code 2."""
    print_anything()
    # A request to end is treated like Ctrl-C: `awn fit` says how to resume.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(prog_name="awn")
    except (AwnError, OSError, MemoryError, RuntimeError) as error:
        err.print(f"[red]error:[/red] {escape(_sentence(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    finally:
        signal.signal(signal.SIGTERM, before)


def _sentence(error: Exception) -> str:
    """An error in one sentence; raises it again if it is a fault of awn, whose traceback is needed."""
    if isinstance(error, AwnError):
        return str(error)
    if isinstance(error, OSError):
        if error.errno in _CANNOT_WRITE:
            return (
                f"{error.filename or 'A file'} cannot be written: {error.strerror}. {_CANNOT_WRITE[error.errno]}; an "
                "interrupted `awn fit` then continues with --resume."
            )
        return (
            f"{error.filename or 'A file'} cannot be read or written: {error.strerror}."
            if error.strerror
            else str(error)
        )
    if isinstance(error, MemoryError) or _NO_MEMORY in str(error):
        first = (str(error).splitlines() or [""])[0]
        return (
            f"not enough memory{f' ({first})' if first else ''}. Use fewer rows or columns, or a lower --max-units; an "
            "interrupted `awn fit` continues with --resume."
        )
    raise error
