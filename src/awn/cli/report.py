"""`awn report`: compare several runs in one HTML report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from awn.cli.arguments import AsJson, Quiet
from awn.cli.folders import check_out_file
from awn.cli.output import print_json, say


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, written by `awn fit`.")],
    out_file: Annotated[Path, typer.Option("--out", help="HTML file to write.")] = Path("comparison.html"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare several runs in one HTML report.

    Example:  awn report runs/houses runs/houses-2 --out comparison.html
    """
    check_out_file(out_file, (".html", ".htm"))
    from awn.report import write_comparison
    from awn.report.stored import read_report_data

    found = [read_report_data(run) for run in runs]
    write_comparison(out_file, found, [str(run) for run in runs])
    say(f"Wrote a comparison of {len(found)} runs to {out_file}", quiet=quiet)
    if as_json:
        print_json({"file": str(out_file), "runs": [str(run) for run in runs]})
