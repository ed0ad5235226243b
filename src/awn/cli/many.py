"""`awn fit` with several tables or seeds: the runs given to workers, and what they came to in one table and page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from awn.cli.folders import out_folder, read_report
from awn.cli.output import out, print_json, print_table, say
from awn.errors import ArgumentError
from awn.parallel.torchrun import several_ranks, torchrun_group

if TYPE_CHECKING:
    from awn.tabular.many import Fanout, TableRun
    from awn.tabular.settings import TableSettings


@dataclass(frozen=True)
class Fleet:
    """How many runs are made: by whom, and whether what is in the folder is gone on with or replaced."""

    workers: int
    ray: str | None
    threads: int
    resume: bool
    overwrite: bool


def check_crew(workers: int | None, ray: str | None) -> None:
    """Refuse processes of this machine beside a cluster."""
    if workers and ray:
        raise ArgumentError("--workers is for this machine; with --ray, the cluster says how many runs go on.")


def fit_many(
    tables: Sequence[Path],
    seeds: Sequence[int],
    given: Path | None,
    settings: TableSettings,
    fleet: Fleet,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make a run for every table and seed; exit code 1 if some could not be made."""
    from awn.tabular.many import plan_runs

    with torchrun_group():
        if several_ranks():
            raise ArgumentError(
                "torchrun's processes train one network together, from one table and seed. For several runs, leave "
                "torchrun out: --workers or --ray share them out."
            )
    folder = out_folder(given, "tables", resume=fleet.resume, overwrite=fleet.overwrite)
    runs = plan_runs(tables, seeds, folder)
    if fleet.resume and not any((run.folder / "run").is_dir() for run in runs):
        raise ArgumentError(f"there are no runs of these tables and seeds in {folder} to resume.")
    try:
        found = _make(runs, settings, fleet, quiet=quiet)
    except KeyboardInterrupt:
        say(f"Interrupted. To go on: the same command with --out {folder} --resume.")
        raise typer.Exit(1) from None
    page = _compare(found, folder)
    if as_json:
        print_json(_content(found, folder, page))
    else:
        _print(found, folder, page)
    for run, failure in found.failed.items():
        say(f"failed: {run}: {failure.says}\n{failure.trace}".strip())
    if found.failed:
        again = any(not failure.refused for failure in found.failed.values())
        advice = f"To try them again: --out {folder} --resume." if again else "With --resume alone they would again."
        say(f"{len(found.failed)} of {len(runs)} runs failed. {advice}")
        raise typer.Exit(1)


def _make(runs: Sequence[TableRun], settings: TableSettings, fleet: Fleet, *, quiet: bool) -> Fanout:
    from awn.runs.workers import local_workers, ray_workers
    from awn.tabular.many import check_runs, fit_tables

    taken = check_runs(runs, settings)
    crew = ray_workers(fleet.ray, fleet.threads) if fleet.ray else local_workers(min(fleet.workers, len(runs)))
    with crew as workers:
        for table, says in taken.items():
            say(f"{table}: {says}", quiet=quiet)
        found = fit_tables(
            runs,
            settings,
            workers,
            threads=fleet.threads,
            resume=fleet.resume,
            tell=lambda sentence: say(sentence, quiet=quiet),
        )
    if not found.made and all(failure.refused for failure in found.failed.values()):
        first, *others = {failure.says: failure for failure in found.failed.values()}.values()
        more = " Other runs failed with similar errors." if others else ""
        raise ArgumentError(first.says + more, argument=first.argument)
    return found


def _compare(found: Fanout, folder: Path) -> Path | None:
    """A page with all runs that were made beside each other."""
    from awn.report import write_comparison

    if not found.made:
        return None
    runs = [dataclasses.replace(read_report(run.folder), title=str(run)) for run in found.made]
    write_comparison(folder / "comparison.html", runs)
    return folder / "comparison.html"


def _content(found: Fanout, folder: Path, page: Path | None) -> dict[str, Any]:
    from awn.tabular.many import summarise

    return {
        "folder": str(folder),
        "comparison": None if page is None else str(page),
        "tables": {str(table): summarise(fits) for table, fits in found.by_table().items()},
        "runs": [{"table": str(run.table), "seed": run.seed, **asdict(fit)} for run, fit in found.made.items()],
        "failed": [
            {"table": str(run.table), "seed": run.seed, "folder": str(run.folder), "error": failure.says}
            for run, failure in found.failed.items()
        ],
    }


def _print(found: Fanout, folder: Path, page: Path | None) -> None:
    from awn.tabular.many import summarise
    from awn.tabular.outcome import SCORES

    rows = []
    for table, fits in found.by_table().items():
        told = summarise(fits)
        scores = [_cell(told["scores"].get(name), ".4f") for name in SCORES]
        widths = ", ".join(_cell(width, ".0f") for width in told["widths"].values())
        rows.append((table, told["runs"], told["score_name"], *scores, widths))
    if rows:
        head = ["table", "runs", "score", *SCORES.values(), "units of each layer"]
        print_table("mean ± deviation over the seeds, on rows held out", head, rows)
    out.print(f"runs:       {folder}/<table>/seed-<n>", highlight=False, markup=False, soft_wrap=True)
    if page is not None:
        out.print(f"comparison: {page}", highlight=False, markup=False, soft_wrap=True)


def _cell(spread: Mapping[str, float | None] | None, form: str) -> str:
    """A mean and its deviation.

    >>> _cell({"mean": 0.91, "deviation": 0.02}, ".2f"), _cell({"mean": 12.0, "deviation": None}, ".0f")
    ('0.91 ± 0.02', '12')
    """
    if spread is None:
        return "–"
    mean, deviation = spread["mean"], spread["deviation"]
    return f"{mean:{form}}" if deviation is None else f"{mean:{form}} ± {deviation:{form}}"
