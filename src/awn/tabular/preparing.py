"""`prepare_table`: read and split a table, infer its task, and check the options, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.model_selection import train_test_split

from awn.errors import ArgumentError, TableError
from awn.tabular.encode.columns import Column, ColumnKind, decide_columns
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.leaks import find_leaks
from awn.tabular.options import check_options
from awn.tabular.outcome import describe_imbalance, describe_target
from awn.tabular.read.table import read_table
from awn.tabular.read.target import Task, as_classes, guess_task, split_target
from awn.tabular.read.values import BOOLEAN_PAIRS
from awn.tabular.settings import TableSettings

ESTIMATORS: dict[Task, type[AdaptiveClassifier | AdaptiveRegressor]] = {
    "classification": AdaptiveClassifier,
    "regression": AdaptiveRegressor,
}


@dataclass(frozen=True)
class Prepared:
    """A table that is ready for training.

    `X` and `y` are all rows besides the test rows: the estimator itself holds some of them out for validation. `rows`
    are the labels of all rows of the file. `notes` are for the user; the first one describes the task.
    """

    task: Task
    classes: list[str] | None
    X: pd.DataFrame
    y: pd.Series
    X_test: pd.DataFrame
    y_test: pd.Series
    rows: pd.Index
    options: dict[str, Any]
    notes: list[str]


def prepare_table(table: str | Path, settings: TableSettings) -> Prepared:
    """Read and split the table, infer the task, and check the options."""
    kinds = _kinds(settings)
    frame = read_table(table, as_text=[name for name, kind in kinds.items() if kind == "category"], by_line=True)
    features, wanted, notes = split_target(frame, settings.target)
    columns = decide_columns(features, kinds)  # decided again on the training rows; here, errors in any row are found
    guess = guess_task(wanted, settings.task)
    classifies = guess.task == "classification"
    X, X_test, y, y_test = _split(features, as_classes(wanted) if classifies else wanted, guess.task, settings)
    classes = [str(label) for label in sorted(y.unique())] if classifies else None
    says = describe_target(settings.target, guess.task, classes, guess.reason)
    notes += [note for note in [describe_imbalance(y) if classifies else ""] if note]
    notes += find_leaks(X, y, guess.task, columns)
    options = _usable(guess.task, _with_settled_kinds(settings.options, columns, features), y)
    return Prepared(guess.task, classes, X, y, X_test, y_test, frame.index, options, [says, *notes])


def _kinds(settings: TableSettings) -> Mapping[str, ColumnKind]:
    """The kinds of columns in the options, if they are a mapping: other values are refused with the other options."""
    kinds = settings.options.get("kinds") or {}
    if not isinstance(kinds, Mapping):
        return {}
    if settings.target in kinds:
        raise ArgumentError(f"{settings.target!r} is the target, so it has no kind. The task decides how it is read.")
    return kinds


def _with_settled_kinds(
    options: Mapping[str, Any], columns: Sequence[Column], features: pd.DataFrame
) -> Mapping[str, Any]:
    """The options with the kinds of columns that fewer rows may show as booleans: "yes", "no" and a rare third word."""
    settled = {}
    for column, name in zip(columns, features, strict=True):
        if column.kind == "category":
            found = {str(word).strip().lower() for word in features[name].unique()}
            if any(found >= set(pair) for pair in BOOLEAN_PAIRS):
                settled[column.name] = "category"
    return {**options, "kinds": {**settled, **(options.get("kinds") or {})}} if settled else options


def _split(features: pd.DataFrame, target: pd.Series, task: Task, settings: TableSettings) -> list[Any]:
    """The training and test rows, then their targets."""
    counts, share = target.value_counts(), settings.test_size
    stratify = target if task == "classification" and counts.min() > 1 else None
    try:
        parts: list[Any] = train_test_split(
            features, target, test_size=share, stratify=stratify, random_state=settings.seed
        )
    except ValueError as error:
        raise TableError(f"{len(features)} rows are too few for a test set of {share:.0%}: {error}") from None
    rows, test_rows = len(parts[0]), len(parts[1])
    if min(rows, test_rows) < 2:
        raise TableError(
            f"{len(features)} rows are too few: a test set of {share:.0%} leaves {rows} for training and "
            f"{test_rows} for testing, and both need at least 2."
        )
    return parts


def _usable(task: Task, options: Mapping[str, Any], target: pd.Series) -> dict[str, Any]:
    """The options, checked, with the keys of `class_weight` (strings in JSON) replaced by the table's own labels."""
    check_options(ESTIMATORS[task], options)
    weights = options.get("class_weight")
    if not isinstance(weights, Mapping):
        return dict(options)
    labels = {str(label): label for label in target.unique()}
    return {**options, "class_weight": {labels.get(str(name), name): weight for name, weight in weights.items()}}
