"""`awn report`: one page for several runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from awn.cli.fit import AsJson, Quiet
from awn.cli.output import print_json, say
from awn.errors import ArgumentError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders that `awn fit` wrote.")],
    out_file: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("comparison.html"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare runs in one page.

    Example:  awn report runs/houses runs/houses-2 --out comparison.html
    """
    from awn.report import ReportData, write_comparison

    found = []
    for run in runs:
        path = run / "report.json"
        try:
            found.append(ReportData.from_json(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError) as error:
            raise ArgumentError(f"{run} is not a finished run of `awn fit`: {path} cannot be read ({error}).") from None
    write_comparison(out_file, found)
    say(f"comparison of {len(found)} runs: {out_file}", quiet=quiet)
    if as_json:
        print_json({"file": str(out_file), "runs": [str(run) for run in runs]})
