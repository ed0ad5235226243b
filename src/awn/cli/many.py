"""`awn fit` with several tables or seeds: distribute the runs to workers, and summarise and compare the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from awn.cli.folders import out_folder
from awn.cli.output import out, print_json, print_table, say
from awn.errors import ArgumentError

if TYPE_CHECKING:
    from awn.tabular.many import Fanout, TableRun
    from awn.tabular.settings import TableSettings


@dataclass(frozen=True)
class Execution:
    """How runs are executed: on which workers, and whether existing ones are resumed or overwritten."""

    workers: int
    ray: str | None
    threads: int
    resume: bool
    overwrite: bool


def check_workers(workers: int | None, ray: str | None) -> None:
    """Refuse local workers together with a Ray cluster."""
    if workers and ray:
        raise ArgumentError("--workers cannot be combined with --ray: the cluster decides how many runs it executes.")


def fit_many(
    tables: Sequence[Path],
    seeds: Sequence[int],
    given: Path | None,
    settings: TableSettings,
    execution: Execution,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make a run for every table and seed; exit code 1 if some of them fail."""
    from awn.parallel.torchrun import several_ranks, torchrun_group
    from awn.tabular.many import plan_runs

    with torchrun_group():
        if several_ranks():
            raise ArgumentError(
                "Under torchrun, all processes train one network on one table and seed. For several runs, start awn "
                "without torchrun and pass --workers or --ray."
            )
    folder = out_folder(given, "tables", resume=execution.resume, overwrite=execution.overwrite)
    runs = plan_runs(tables, seeds, folder)
    if execution.resume and not any((run.folder / "run").is_dir() for run in runs):
        raise ArgumentError(f"There are no runs of these tables and seeds to resume in {folder}.")
    try:
        found = _make(runs, settings, execution, quiet=quiet)
    except KeyboardInterrupt:
        say(f"Interrupted. To resume, run the same command with --out {folder} --resume.")
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
        advice = f"To retry, add --out {folder} --resume." if again else "Retrying with --resume would fail again."
        say(f"{len(found.failed)} of {len(runs)} runs failed. {advice}")
        raise typer.Exit(1)


def _make(runs: Sequence[TableRun], settings: TableSettings, execution: Execution, *, quiet: bool) -> Fanout:
    from awn.runs.workers import local_workers, ray_workers
    from awn.tabular.many import check_runs, fit_tables

    tasks = check_runs(runs, settings)
    local = min(execution.workers, len(runs))
    with ray_workers(execution.ray, execution.threads) if execution.ray else local_workers(local) as workers:
        for table, task in tasks.items():
            say(f"{table}: {task}", quiet=quiet)
        found = fit_tables(
            runs,
            settings,
            workers,
            threads=execution.threads,
            resume=execution.resume,
            tell=lambda sentence: say(sentence, quiet=quiet),
        )
    if not found.made and all(failure.refused for failure in found.failed.values()):
        first, *others = {failure.says: failure for failure in found.failed.values()}.values()
        more = " Other runs failed with similar errors." if others else ""
        raise ArgumentError(first.says + more, argument=first.argument)
    return found


def _compare(found: Fanout, folder: Path) -> Path | None:
    """Write a report that compares all runs that succeeded."""
    from awn.report import write_comparison
    from awn.report.stored import read_report_data

    if not found.made:
        return None
    runs = [read_report_data(run.folder) for run in found.made]
    write_comparison(folder / "comparison.html", runs, [str(run.folder) for run in found.made])
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
    tables = found.by_table()
    short = len({table.name for table in tables}) == len(tables)
    for table, fits in tables.items():
        summary = summarise(fits)
        scores = [_cell(summary["scores"].get(name), ".4f") for name in SCORES]
        widths = ", ".join(_cell(width, ".0f") for width in summary["widths"].values())
        rows.append((table.name if short else table, summary["runs"], summary["score_name"], *scores, widths))
    if rows:
        head = ["table", "runs", "score", *SCORES.values(), "units per layer"]
        print_table("Mean ± standard deviation over seeds, on the test set", head, rows)
    out.print(f"runs:       {folder}/<table>/seed-<n>", highlight=False, markup=False, soft_wrap=True)
    if page is not None:
        out.print(f"comparison: {page}", highlight=False, markup=False, soft_wrap=True)


def _cell(spread: Mapping[str, float | None] | None, form: str) -> str:
    """A mean and its standard deviation.

    >>> _cell({"mean": 0.91, "std": 0.02}, ".2f"), _cell({"mean": 12.0, "std": None}, ".0f")
    ('0.91 ± 0.02', '12')
    """
    if spread is None:
        return "–"
    mean, std = spread["mean"], spread["std"]
    return f"{mean:{form}}" if std is None else f"{mean:{form}} ± {std:{form}}"
