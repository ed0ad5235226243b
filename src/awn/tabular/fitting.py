"""`fit_table`: from a table file to a trained model, its scores and a report."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.model_selection import train_test_split

from awn.core.count import count_parameters
from awn.core.groups import find_groups
from awn.errors import ArgumentError, ColumnWarning, TableError
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.parallel.torchrun import is_first
from awn.report import write_report
from awn.tabular.analysis import analyse
from awn.tabular.encode.columns import ColumnKind, decide_columns
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.folder import Estimator, save_estimator
from awn.tabular.leaks import find_leaks
from awn.tabular.measures import measure_classes, measure_numbers
from awn.tabular.members import describe_members, networks_of
from awn.tabular.options import check_options
from awn.tabular.outcome import SCORE_NAMES, SCORES, Start, TableFit, describe_imbalance, describe_rows, describe_target
from awn.tabular.read.table import read_table
from awn.tabular.read.target import Task, as_classes, guess_task, split_target
from awn.tabular.read.values import numbers
from awn.tabular.settings import TableSettings
from awn.training import Callback, Progress

_ESTIMATORS: dict[Task, type[AdaptiveClassifier | AdaptiveRegressor]] = {
    "classification": AdaptiveClassifier,
    "regression": AdaptiveRegressor,
}


def fit_table(
    table: str | Path,
    folder: str | Path,
    settings: TableSettings,
    *,
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
    data_parallel: bool = False,
    facts: Mapping[str, Any] | None = None,
    begin: Callable[[Start], None] = lambda _: None,
) -> TableFit:
    """Train on a table, score on its test set, and write the model, the report and a summary to a folder.

    With `data_parallel`, all processes of torch's default group train one network together, and rank 0 writes. The
    summary records its provenance by `awn.files.provenance`, with `facts` added. `begin` is called right before the
    first epoch.
    """
    known = _prepare(table, settings)
    parts = known.parts
    opening = _Opening(lambda: begin(_start(known, estimator)))
    estimator = _make(known, settings.seed, callbacks=[opening, *callbacks])
    started = time.perf_counter()
    _train(estimator, parts, folder=Path(folder, "run"), resume=resume, data_parallel=data_parallel)
    seconds = time.perf_counter() - started

    baseline = _baseline(known.task, parts)
    measures = {"adaptive": _measured(estimator, parts), "baseline": _measured(baseline, parts)}
    scores = {"adaptive": _score(estimator, parts), "baseline": _score(baseline, parts)}
    if settings.compare:
        fixed = _make(known, settings.seed, fixed_widths=list(estimator.widths_.values()))
        _train(fixed, parts, data_parallel=data_parallel)
        scores["fixed"], measures["fixed"] = _score(fixed, parts), _measured(fixed, parts)
    result = TableFit(
        **_start(known, estimator)._asdict(),
        **_end(estimator),
        scores=scores,
        measures=measures,
        seconds=round(seconds, 1),
        folder=str(folder),
        model=str(Path(folder, "model")),
        report=str(Path(folder, "report.html")),
    )
    if not data_parallel or is_first():
        _write(result, estimator, parts, Path(table), settings.target, provenance(seed=settings.seed, **(facts or {})))
    return result


class _Opening(Callback):
    """Calls a function when the columns are known, right before the first epoch."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin

    def on_fit_start(self, progress: Progress) -> None:
        self._begin()


def _start(known: _Prepared, estimator: Estimator) -> Start:
    """The facts known once the preprocessing is fitted."""
    columns = estimator.preprocessor_.columns
    counts = {
        "table": len(columns),
        "used": sum(column.used for column in columns),
        "inputs": len(estimator.preprocessor_.feature_names),
    }
    rows = {"train": len(known.parts.X), "test": len(known.parts.X_test)}
    notes = [*known.notes, describe_rows(rows, counts), describe_members(estimator.members_)]
    notes += estimator.preprocessor_.notes
    return Start(known.task, SCORE_NAMES[known.task], known.classes, rows, counts, notes)


def _end(estimator: Estimator) -> dict[str, Any]:
    """The facts known once the network is trained."""
    history = estimator.history_
    widths = {group.name: group.width for one in networks_of(estimator.model_) for group in find_groups(one)}
    return {
        "widths": estimator.widths_,
        "learned_widths": estimator.learned_widths_,
        "at_cap": {name: width.units for name, width in widths.items() if width.units == width.max_units},
        "parameters": count_parameters(estimator.model_),
        "epochs": len(history),
        "kept_epoch": history.kept_epoch,
        "stopped_early": len(history) < estimator.max_iter_,
        "training_path": history.path,
    }


def check_fit(table: str | Path, settings: TableSettings) -> str:
    """Raise any error that `fit_table` would raise before training; returns a description of the task."""
    return _prepare(table, settings).notes[0]


def _prepare(table: str | Path, settings: TableSettings) -> _Prepared:
    """Read and split the table, infer the task, and check the options."""
    kinds = _kinds(settings)
    frame = read_table(table, as_text=[name for name, kind in kinds.items() if kind == "category"])
    features, wanted, notes = split_target(frame, settings.target)
    columns = decide_columns(features, kinds)  # decided again on the training rows; here, errors in any row are found
    guess = guess_task(wanted, settings.task)
    classifies = guess.task == "classification"
    parts = _split(features, as_classes(wanted) if classifies else wanted, guess.task, settings)
    classes = [str(label) for label in sorted(parts.y.unique())] if classifies else None
    says = describe_target(settings.target, guess.task, classes, guess.reason)
    notes += [note for note in [describe_imbalance(parts.y) if classifies else ""] if note]
    notes += find_leaks(parts.X, parts.y, guess.task, columns)
    return _Prepared(guess.task, classes, parts, _usable(guess.task, settings.options, parts.y), [says, *notes])


def _kinds(settings: TableSettings) -> Mapping[str, ColumnKind]:
    """The kinds of columns in the options, if they are a mapping: other values are refused with the other options."""
    kinds = settings.options.get("kinds") or {}
    if not isinstance(kinds, Mapping):
        return {}
    if settings.target in kinds:
        raise ArgumentError(f"{settings.target!r} is the target, so it has no kind. The task decides how it is read.")
    return kinds


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


def _split(features: pd.DataFrame, target: pd.Series, task: Task, settings: TableSettings) -> _Parts:
    counts, share = target.value_counts(), settings.test_size
    stratify = target if task == "classification" and counts.min() > 1 else None
    try:
        X, X_test, y, y_test = train_test_split(
            features, target, test_size=share, stratify=stratify, random_state=settings.seed
        )
    except ValueError as error:
        raise TableError(f"{len(features)} rows are too few for a test set of {share:.0%}: {error}") from None
    if min(len(X), len(X_test)) < 2:
        raise TableError(
            f"{len(features)} rows are too few: a test set of {share:.0%} leaves {len(X)} for training and "
            f"{len(X_test)} for testing, and both need at least 2."
        )
    return _Parts(X, y, X_test, y_test)


def _usable(task: Task, options: Mapping[str, Any], target: pd.Series) -> dict[str, Any]:
    """The options, checked, with the keys of `class_weight` (strings in JSON) replaced by the table's own labels."""
    check_options(_ESTIMATORS[task], options)
    weights = options.get("class_weight")
    if not isinstance(weights, Mapping):
        return dict(options)
    labels = {str(label): label for label in target.unique()}
    return {**options, "class_weight": {labels.get(str(name), name): weight for name, weight in weights.items()}}


def _make(known: _Prepared, seed: int, **others: Any) -> Estimator:
    return _ESTIMATORS[known.task](**known.options, random_state=seed, **others)


def _train(estimator: Estimator, parts: _Parts, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnWarning)  # the notes name these columns
        estimator.fit(parts.X, parts.y, **options)


def _baseline(task: Task, parts: _Parts) -> Any:
    """A model that predicts the most frequent class, or the mean, for every row."""
    dummy = DummyClassifier() if task == "classification" else DummyRegressor()
    return dummy.fit(parts.X, parts.y)


def _score(model: Any, parts: _Parts) -> float:
    return float(model.score(parts.X_test, parts.y_test))


def _measured(model: Any, parts: _Parts) -> dict[str, dict[str, float]]:
    """All measures of a model on the test set, as plain numbers."""
    if isinstance(model, ClassifierMixin):
        classes = list(model.classes_)
        place = {label: number for number, label in enumerate(classes)}
        known = parts.y_test.isin(classes).to_numpy()  # a class of one row may be in the test set alone
        actual = np.array([place[label] for label in parts.y_test[known]], dtype=np.intp)
        found = measure_classes(classes, actual, model.predict_proba(parts.X_test[known])) if len(actual) else {}
    else:
        found = measure_numbers(numbers(parts.y_test), model.predict(parts.X_test))
    return {name: asdict(measure) for name, measure in found.items()}


def _write(
    result: TableFit, estimator: Estimator, parts: _Parts, table: Path, target: str, made_by: dict[str, Any]
) -> None:
    folder = Path(result.folder)
    about = {"table": table.name, "target": target, "task": result.task, "score_name": result.score_name}
    save_estimator(estimator, result.model, about={**about, "scores": result.scores, "rows": result.rows})
    headline = [(f"{result.score_name} ({SCORES[name]})", score) for name, score in result.scores.items()]
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
        settings={"table": table.name, "target": target, "seed": made_by["seed"], **_reported_options(estimator)},
        notes=[*result.notes, *result.ending()],
        measures=result.measures,
    )
    write_report(folder / "report.html", data)
    write_files(
        {
            folder / "summary.json": json_file({"from": made_by, **about, **asdict(result)}),
            folder / "report.json": json_file(data.to_json()),
        }
    )


def _reported_options(estimator: Estimator) -> dict[str, Any]:
    return {name: value for name, value in estimator.get_params().items() if name not in ("callbacks", "random_state")}
