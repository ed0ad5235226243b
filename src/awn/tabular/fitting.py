"""From a table file to a trained model, its report and a comparison: what `awn fit` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import pandas as pd
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.model_selection import train_test_split

from awn.core.count import count_parameters
from awn.core.groups import find_groups
from awn.errors import ArgumentError, TableError
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.parallel.torchrun import is_first
from awn.report import write_report
from awn.tabular.analysis import analyse, mark_best
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.folder import Estimator, save_estimator
from awn.tabular.options import check_options
from awn.tabular.outcome import SCORE_NAMES, SCORES, Start, TableFit, describe_rows, describe_target
from awn.tabular.read.table import read_table
from awn.tabular.read.target import Task, as_classes, guess_task, split_target
from awn.training import Callback, Progress

_KINDS: dict[Task, type[AdaptiveClassifier | AdaptiveRegressor]] = {
    "classification": AdaptiveClassifier,
    "regression": AdaptiveRegressor,
}


def fit_table(
    table: str | Path,
    target: str,
    folder: str | Path,
    *,
    task: str | None = None,
    test_size: float = 0.2,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    compare: bool = True,
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
    data_parallel: bool = False,
    facts: Mapping[str, Any] | None = None,
    begin: Callable[[Start], None] = lambda _: None,
) -> TableFit:
    """Train on a table, judge on rows held out, and write the model, the report and a summary to a folder.

    `options` are those of `AdaptiveClassifier` or `AdaptiveRegressor`. `compare` also trains an ordinary network of the
    widths that were learned. `data_parallel` has all processes of torch's default group train together; rank 0 writes.
    The summary says where it comes from by `awn.files.provenance`, with `facts` besides. `begin` is told what is to be
    learned right before the first epoch.
    """
    known = _prepared(table, target, task, test_size, seed, options or {})
    parts = known.parts
    opening = _Opening(lambda: begin(_start(known, estimator)))
    estimator = _make(known.task, seed, known.options, [opening, *callbacks])
    started = time.perf_counter()
    estimator.fit(parts.X, parts.y, folder=Path(folder, "run"), resume=resume, data_parallel=data_parallel)
    seconds = time.perf_counter() - started

    scores = {"adaptive": float(estimator.score(parts.X_test, parts.y_test)), "baseline": _baseline(known.task, parts)}
    if compare:
        fixed = _make(known.task, seed, {**known.options, "fixed_widths": list(estimator.widths_.values())}, ())
        fixed.fit(parts.X, parts.y, data_parallel=data_parallel)
        scores["fixed"] = float(fixed.score(parts.X_test, parts.y_test))
    result = TableFit(
        **_start(known, estimator)._asdict(),
        **_end(estimator),
        scores=scores,
        seconds=round(seconds, 1),
        folder=str(folder),
        model=str(Path(folder, "model")),
        report=str(Path(folder, "report.html")),
    )
    if not data_parallel or is_first():
        _write(result, estimator, parts, Path(table), target, provenance(seed=seed, **(facts or {})))
    return result


class _Opening(Callback):
    """Says something once the columns are known, before the first epoch."""

    def __init__(self, say: Callable[[], None]) -> None:
        self._say = say

    def on_fit_start(self, progress: Progress) -> None:
        self._say()


def _start(known: _Prepared, estimator: Estimator) -> Start:
    """What is known of a run once the preprocessing is fitted."""
    columns = estimator.preprocessor_.columns
    counts = {
        "table": len(columns),
        "used": sum(column.used for column in columns),
        "inputs": len(estimator.preprocessor_.feature_names),
    }
    rows = {"train": len(known.parts.X), "test": len(known.parts.X_test)}
    notes = [*known.notes, describe_rows(rows, counts), *estimator.preprocessor_.notes]
    return Start(known.task, SCORE_NAMES[known.task], known.classes, rows, counts, notes)


def _end(estimator: Estimator) -> dict[str, Any]:
    """What is known of a run once it is trained."""
    rows = mark_best(estimator.history_.rows)
    widths = {group.name: group.width for group in find_groups(estimator.model_)}
    return {
        "widths": estimator.widths_,
        "at_cap": {name: width.units for name, width in widths.items() if width.units == width.max_units},
        "parameters": count_parameters(estimator.model_),
        "epochs": len(rows),
        "kept_epoch": max((row["epoch"] for row in rows if row["best"]), default=len(rows)),
        "stopped_early": len(rows) < estimator.epochs,
    }


def check_fit(
    table: str | Path, target: str, *, task: str | None = None, test_size: float = 0.2, seed: int = 0, options: Any = ()
) -> str:
    """Raise what `fit_table` would, before it trains anything; returns what the target is taken for."""
    return _prepared(table, target, task, test_size, seed, dict(options)).notes[0]


def _prepared(
    table: str | Path, target: str, task: str | None, test_size: float, seed: int, options: dict[str, Any]
) -> _Prepared:
    """The rows to learn from and to judge by, and what is to be done with them; all that can be refused is."""
    if not 0 < test_size < 1:
        raise ArgumentError(f"test_size must be a fraction between 0 and 1, got {test_size}.")
    if not 0 <= seed < 2**32:
        raise ArgumentError(f"seed must be a whole number from 0 to {2**32 - 1}, got {seed}.")
    features, wanted, notes = split_target(read_table(table), target)
    guess = guess_task(wanted, check_task(task))
    classifies = guess.task == "classification"
    parts = _split(features, as_classes(wanted) if classifies else wanted, guess.task, test_size, seed)
    classes = [str(label) for label in sorted(parts.y.unique())] if classifies else None
    says = describe_target(target, guess.task, classes, guess.reason)
    return _Prepared(guess.task, classes, parts, _usable(guess.task, options, parts.y), [says, *notes])


@dataclass(frozen=True)
class _Parts:
    X: pd.DataFrame
    y: pd.Series
    X_test: pd.DataFrame
    y_test: pd.Series


class _Prepared(NamedTuple):
    task: Task
    classes: list[str] | None
    parts: _Parts
    options: dict[str, Any]
    notes: list[str]


def check_task(task: str | None) -> Task | None:
    """Refuse a task that is neither of the two."""
    if task not in (None, *get_args(Task)):
        raise ArgumentError(f"task must be classification or regression, got {task!r}.")
    return cast("Task | None", task)


def _split(features: pd.DataFrame, target: pd.Series, task: Task, test_size: float, seed: int) -> _Parts:
    counts = target.value_counts()
    stratify = target if task == "classification" and counts.min() > 1 else None
    try:
        X, X_test, y, y_test = train_test_split(
            features, target, test_size=test_size, stratify=stratify, random_state=seed
        )
    except ValueError as error:
        raise TableError(f"{len(features)} rows are too few to hold {test_size:.0%} out: {error}") from None
    if min(len(X), len(X_test)) < 2:
        raise TableError(
            f"{len(features)} rows are too few: with {test_size:.0%} held out, {len(X)} would be left to learn from "
            f"and {len(X_test)} to judge by."
        )
    return _Parts(X, y, X_test, y_test)


def _usable(task: Task, options: Mapping[str, Any], target: pd.Series) -> dict[str, Any]:
    """The options, checked; the classes in `class_weight`, which a file names by words, as they are in the table."""
    check_options(_KINDS[task], options)
    weights = options.get("class_weight")
    if not isinstance(weights, Mapping):
        return dict(options)
    labels = {str(label): label for label in target.unique()}
    return {**options, "class_weight": {labels.get(str(name), name): weight for name, weight in weights.items()}}


def _make(task: Task, seed: int, options: dict[str, Any], callbacks: Sequence[Callback]) -> Estimator:
    return _KINDS[task](**options, random_state=seed, callbacks=callbacks)


def _baseline(task: Task, parts: _Parts) -> float:
    """The score of saying the most frequent class, or the mean, for every row."""
    dummy = DummyClassifier() if task == "classification" else DummyRegressor()
    return float(dummy.fit(parts.X, parts.y).score(parts.X_test, parts.y_test))


def _write(
    result: TableFit, estimator: Estimator, parts: _Parts, table: Path, target: str, made_by: dict[str, Any]
) -> None:
    folder = Path(result.folder)
    about = {"table": table.name, "target": target, "task": result.task, "score_name": result.score_name}
    save_estimator(estimator, result.model, about={**about, "scores": result.scores, "rows": result.rows})
    headline = [(f"{result.score_name}, {SCORES[name]}", score) for name, score in result.scores.items()]
    data = analyse(
        estimator,
        parts.X_test,
        parts.y_test,
        title=f"{table.name}: {target}",
        headline=[
            *headline,
            ("units", sum(result.widths.values())),
            ("parameters", result.parameters),
            ("training time", f"{result.seconds:.0f} s"),
        ],
        settings={"table": table.name, "target": target, "seed": made_by["seed"], **_plain_options(estimator)},
        notes=[*result.notes, *result.ending()],
    )
    write_report(folder / "report.html", data)
    write_files(
        {
            folder / "summary.json": json_file({"from": made_by, **about, **asdict(result)}),
            folder / "report.json": json_file(data.to_json()),
        }
    )


def _plain_options(estimator: Estimator) -> dict[str, Any]:
    return {name: value for name, value in estimator.get_params().items() if name not in ("callbacks", "random_state")}
