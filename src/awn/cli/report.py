"""`awn report`: one page for several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from awn.cli.fit import AsJson, Quiet
from awn.cli.folders import read_report
from awn.cli.output import print_json, say


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders that `awn fit` wrote.")],
    out_file: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("comparison.html"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare runs in one page.

    Example:  awn report runs/houses runs/houses-2 --out comparison.html
    """
    from awn.report import write_comparison

    found = [read_report(run) for run in runs]
    write_comparison(out_file, found)
    say(f"comparison of {len(found)} runs: {out_file}", quiet=quiet)
    if as_json:
        print_json({"file": str(out_file), "runs": [str(run) for run in runs]})
