"""Many runs of `fit_table`: one per table and seed, each with its own folder. A failed run does not stop the others."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from awn.basics.plain import to_plain
from awn.basics.schema import anything, entries, flag, items, number, record, text, whole
from awn.errors import ArgumentError, CheckpointError, TableError
from awn.files.provenance import origin
from awn.files.read import read_json
from awn.runs.manager import Failure, RunManager, RunRecipe, Tell
from awn.runs.workers import Workers
from awn.tabular.fitting import check_fit, fit_table
from awn.tabular.outcome import TableFit
from awn.tabular.settings import TableSettings


@dataclass(frozen=True)
class TableRun:
    """A run to make: its table, seed and folder."""

    table: Path
    seed: int
    folder: Path

    def __str__(self) -> str:
        return f"{self.table}, seed {self.seed}"


@dataclass(frozen=True)
class Fanout:
    """The results and the failures of many runs, in the order of the runs."""

    made: dict[TableRun, TableFit]
    failed: dict[TableRun, Failure]

    def by_table(self) -> dict[Path, list[TableFit]]:
        """The results of every table."""
        tables: dict[Path, list[TableFit]] = {}
        for run, result in self.made.items():
            tables.setdefault(run.table, []).append(result)
        return tables


def plan_runs(tables: Sequence[Path], seeds: Sequence[int], folder: Path) -> list[TableRun]:
    """A run for every table and seed, in `folder`/<table>/seed-<n>; tables of the same name are numbered.

    >>> runs = plan_runs([Path("a/sales.csv"), Path("b/sales.csv")], [0, 1], Path("runs"))
    >>> [run.folder.as_posix() for run in runs]
    ['runs/sales/seed-0', 'runs/sales/seed-1', 'runs/sales-2/seed-0', 'runs/sales-2/seed-1']
    """
    names: dict[Path, str] = {}
    for table in tables:
        if table.resolve() in names:
            raise ArgumentError(f"The table {table} is given twice. For several runs of one table, use several seeds.")
        stem = name = table.name.split(".")[0] or "table"
        number = 1
        while name in names.values():
            number += 1
            name = f"{stem}-{number}"
        names[table.resolve()] = name
    return [
        TableRun(table, seed, folder / names[table.resolve()] / f"seed-{seed}") for table in tables for seed in seeds
    ]


def check_runs(runs: Sequence[TableRun], settings: TableSettings) -> dict[Path, str]:
    """A description of the task of every table. Tables that cannot be used are refused, all in one error."""
    taken, wrong = {}, []
    for table, seed in {run.table: run.seed for run in runs}.items():
        try:
            taken[table] = check_fit(table, replace(settings, seed=seed))
        except TableError as error:
            wrong.append(str(error) if str(table) in str(error) else f"{table}: {error}")
    if wrong:
        raise TableError(f"{' '.join(wrong)} Nothing was trained.")
    return taken


def fit_tables(
    runs: Sequence[TableRun],
    settings: TableSettings,
    workers: Workers,
    *,
    threads: int = 1,
    resume: bool = False,
    tell: Tell = lambda _: None,
) -> Fanout:
    """Make all runs, each with its own seed; with `resume`, finished runs are not repeated.

    `tell` is called with a sentence as each run ends.
    """
    # The command and the commit are those of this process: a worker elsewhere does not know them.
    recipe = _TableRuns(settings, _asked(runs, settings), origin(), threads, resume, tell)
    manager = RunManager(recipe, workers)
    for run in runs:
        manager.ask(run)
        if run in manager.results:
            tell(f"{run}: finished before")
    manager.finish()
    made, failed = manager.results, manager.failures
    return Fanout({run: made[run] for run in runs if run in made}, {run: failed[run] for run in runs if run in failed})


@dataclass(frozen=True)
class _TableRuns(RunRecipe[TableRun, TableFit]):
    settings: TableSettings
    asked: Mapping[TableRun, dict[str, Any]]
    origin: Mapping[str, Any]
    threads: int
    resume: bool
    tell: Tell

    def find(self, run: TableRun) -> TableFit | None:
        return read_fit(run, self.asked[run]) if self.resume else None

    def call(self, run: TableRun) -> tuple[Any, ...]:
        # A worker's working folder may be another.
        there = replace(run, table=run.table.absolute(), folder=run.folder.absolute())
        facts = {**self.origin, "asked": self.asked[run]}
        return _make, there, self.settings, self.resume, self.threads, facts

    def keep(self, run: TableRun, returned: None) -> TableFit | Failure:
        made = read_fit(run, self.asked[run])
        return made or Failure(f"no result is in {run.folder}: it must be on a disk that all workers share.")

    def say(self, run: TableRun, outcome: TableFit | Failure, left: int) -> None:
        if isinstance(outcome, TableFit):
            self.tell(sentence(run, outcome, left))
        elif not outcome.refused:
            self.tell(f"{run}: failed; {left} to go")


def spread(numbers: Sequence[float]) -> dict[str, float | None]:
    """The mean and the sample standard deviation of some numbers; the latter is None for a single number.

    >>> spread([1.0, 3.0])
    {'mean': 2.0, 'std': 1.41...}
    """
    return {"mean": fmean(numbers), "std": stdev(numbers) if len(numbers) > 1 else None}


def summarise(fits: Sequence[TableFit]) -> dict[str, Any]:
    """Means and standard deviations over the runs of one table; `at_cap` counts the runs of each capped layer."""
    return {
        "task": fits[0].task,
        "score_name": fits[0].score_name,
        "runs": len(fits),
        "scores": {name: spread([fit.scores[name] for fit in fits]) for name in fits[0].scores},
        "widths": {layer: spread([fit.widths[layer] for fit in fits]) for layer in fits[0].widths},
        "at_cap": dict(Counter(layer for fit in fits for layer in fit.at_cap)),
        "units": spread([sum(fit.widths.values()) for fit in fits]),
        "parameters": spread([fit.parameters for fit in fits]),
        "seconds": spread([fit.seconds for fit in fits]),
    }


def _make(run: TableRun, settings: TableSettings, resume: bool, threads: int, facts: dict[str, Any]) -> None:
    """The work of a worker. The result is in the run's folder."""
    torch.set_num_threads(threads)
    fit_table(run.table, run.folder, replace(settings, seed=run.seed), resume=resume, facts=facts)


def _asked(runs: Sequence[TableRun], settings: TableSettings) -> dict[TableRun, dict[str, Any]]:
    """All that decides the result of each run, as `summary.json` holds it."""
    contents = {table: hashlib.sha256(table.read_bytes()).hexdigest() for table in {run.table for run in runs}}
    return {run: to_plain({"table": contents[run.table], **asdict(replace(settings, seed=run.seed))}) for run in runs}


def read_fit(run: TableRun, asked: Mapping[str, Any]) -> TableFit | None:
    """The result in a run's folder, if the run is finished and was made with the same settings."""
    try:
        summary = read_json(run.folder / "summary.json", _SUMMARY)
    except CheckpointError:  # not there, or damaged
        return None
    if summary["from"].get("asked") != asked or not (run.folder / "report.json").is_file():
        return None
    return TableFit(**{own.name: summary[own.name] for own in fields(TableFit)})


_SUMMARY = record(
    {own.name: anything() for own in fields(TableFit)}
    | {
        "from": entries(anything()),
        "score_name": text(),
        "seconds": number(),
        "parameters": whole(0),
        "networks": whole(1),
    }
    | {"scores": record({"adaptive": number()}, others=number())}
    | {name: entries(whole(0)) for name in ("rows", "columns", "widths", "learned_widths", "at_cap")}
    | {"epochs": whole(0), "kept_epoch": whole(0), "stopped_early": flag(), "notes": items(text())},
    others=anything(),
)


def sentence(run: TableRun, made: TableFit, left: int) -> str:
    """A finished run in one line, with the number of runs that are left."""
    score, units = made.scores["adaptive"], sum(made.widths.values())
    capped = f" ({', '.join(made.at_cap)} at the limit: a higher --max-units may help)" if made.at_cap else ""
    return f"{run}: {made.score_name} {score:.4f}, {units} units{capped}, {made.seconds:.1f} s; {left} to go"
