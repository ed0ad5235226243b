"""Many runs of `fit_table`: one per table and seed, each with its own folder. A failed run does not stop the others."""

from __future__ import annotations

import hashlib
import json
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from awn.errors import ArgumentError, AwnError, CheckpointError, TableError
from awn.files.provenance import origin
from awn.files.write import json_file
from awn.runs.workers import Tasks, Workers
from awn.tabular.fitting import check_fit, fit_table
from awn.tabular.outcome import TableFit
from awn.tabular.settings import TableSettings

Tell = Callable[[str], None]


@dataclass(frozen=True)
class TableRun:
    """A run to make: its table, seed and folder."""

    table: Path
    seed: int
    folder: Path

    def __str__(self) -> str:
        return f"{self.table}, seed {self.seed}"


@dataclass(frozen=True)
class Failure:
    """Why a run failed, with the traceback of a bug.

    `refused` means that the table, an option or the run's folder cannot be used, so a second try would fail too.
    `argument` is that of an `ArgumentError`.
    """

    says: str
    refused: bool = False
    trace: str = ""
    argument: str | None = None


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
    asked = _asked(runs, settings)
    made: dict[TableRun, TableFit] = {}
    failed: dict[TableRun, Failure] = {}
    tasks: Tasks[TableRun] = Tasks(workers)
    from_here = origin()  # a worker elsewhere does not know it
    for run in runs:
        finished = _read_fit(run, asked[run]) if resume else None
        if finished is None:
            tasks.add(run, _make, _found(run), settings, resume, threads, {**from_here, "asked": asked[run]})
        else:
            made[run] = finished
            tell(f"{run}: finished before")
    while len(tasks):
        for run, outcome in tasks.finished():
            result = _read_fit(run, asked[run]) if outcome is None else None
            if result is None:
                failed[run] = _failure(run, outcome)
                if not failed[run].refused:
                    tell(f"{run}: failed; {len(tasks)} to go")
            else:
                made[run] = result
                tell(_sentence(run, result, len(tasks)))
    return Fanout({run: made[run] for run in runs if run in made}, {run: failed[run] for run in runs if run in failed})


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


def _make(run: TableRun, settings: TableSettings, resume: bool, threads: int, facts: dict[str, Any]) -> Failure | None:
    """Make a run, in a worker. Results go to the run's folder; not every exception survives the way back."""
    torch.set_num_threads(threads)
    try:
        fit_table(run.table, run.folder, replace(settings, seed=run.seed), resume=resume, facts=facts)
    except ArgumentError as error:
        return Failure(str(error), refused=True, argument=error.argument)
    except (AwnError, OSError) as error:
        return Failure(str(error), refused=isinstance(error, TableError | CheckpointError))
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", trace=traceback.format_exc())
    return None


def _found(run: TableRun) -> TableRun:
    """The run with absolute paths, since a worker may have another working directory."""
    return replace(run, table=run.table.absolute(), folder=run.folder.absolute())


def _failure(run: TableRun, outcome: Failure | Exception | None) -> Failure:
    if isinstance(outcome, Exception):  # of the worker, not of the run
        return Failure((str(outcome) or repr(outcome)).splitlines()[0])
    return outcome or Failure(
        f"There is no result in {run.folder}. The folder must be on a disk that all workers share."
    )


def _asked(runs: Sequence[TableRun], settings: TableSettings) -> dict[TableRun, dict[str, Any]]:
    """Everything that decides the result of each run, as JSON stores it."""
    contents = {table: hashlib.sha256(table.read_bytes()).hexdigest() for table in {run.table for run in runs}}
    return {
        run: json.loads(json_file({"table": contents[run.table], **asdict(replace(settings, seed=run.seed))}))
        for run in runs
    }


def _read_fit(run: TableRun, asked: Mapping[str, Any]) -> TableFit | None:
    """The result in a run's folder, if the run is finished and was made with the same settings."""
    try:
        summary = json.loads((run.folder / "summary.json").read_bytes())
        if summary["from"].get("asked") != asked or not (run.folder / "report.json").is_file():
            return None
        return TableFit(**{own.name: summary[own.name] for own in fields(TableFit)})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # not there, or cut off
        return None


def _sentence(run: TableRun, made: TableFit, left: int) -> str:
    score, units = made.scores["adaptive"], sum(made.widths.values())
    capped = f" ({', '.join(made.at_cap)} at the limit: a higher --max-units may help)" if made.at_cap else ""
    return f"{run}: {made.score_name} {score:.4f}, {units} units{capped}, {made.seconds:.1f} s; {left} to go"
