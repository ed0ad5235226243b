"""The target: the column to predict, without missing values, and the task that follows from its values."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from pandas.api import types

from awn.basics.names import listed, near
from awn.errors import ArgumentError, TableError
from awn.tabular.read.names import with_names
from awn.tabular.read.values import (
    Floats,
    distinct,
    is_plain_boolean,
    is_plain_date,
    is_plain_number,
    numbers,
    words,
)
from awn.tabular.read.written import find_number_format, parse_numbers

Task = Literal["classification", "regression"]

_MOST_PLAUSIBLE_CLASSES = 100
_MOST_CLASSES = 20  # more distinct integers than this are a quantity
_FEW_WORDS = 0.05  # of a target: at most this share of words among numbers is taken for mistakes


class Split(NamedTuple):
    """A table without its target, the target, and notes for the user."""

    features: pd.DataFrame
    target: pd.Series
    notes: list[str]


class Guess(NamedTuple):
    """An inferred task, and the reason for it."""

    task: Task
    reason: str


def split_target(frame: pd.DataFrame, target: str) -> Split:
    """Separate the target from the other columns. Rows without a target are dropped, with a note.

    >>> table = pd.DataFrame({"age": [20, 30, 40], "buys": ["yes", "?", "no"]})
    >>> features, buys, notes = split_target(table, "buys")
    >>> buys.tolist(), notes
    (['yes', 'no'], ["dropped 1 of 3 rows, because the target 'buys' is missing"])
    """
    frame = with_names(frame)
    names = frame.columns.tolist()
    if target not in names:
        raise TableError(f"The table has no column {target!r}.{near(target, names)} It has {listed(names, most=20)}.")
    if len(names) == 1:
        raise TableError(f"The target {target!r} is the only column of the table: there is nothing to predict it from.")
    column = _clean(frame[target])
    known = column.notna().to_numpy()
    dropped = int((~known).sum())
    if len(frame) and not known.any():
        raise TableError(f"The target {target!r} is missing in all {len(frame):,} rows. Choose another column.")
    rows = int(known.sum())
    if rows < 2:
        left = f" with a known target {target!r}" if dropped else ""
        raise TableError(
            f"The table has {rows or 'no'} row{'s' * (rows != 1)}{left}. At least two are required; use hundreds."
        )
    column = column[known]
    if types.is_float_dtype(column.dtype) and (dropped or column.dtype != frame[target].dtype):
        column = _whole(column)
    if column.nunique() == 1:
        raise TableError(
            f"The target {target!r} is {str(column.iloc[0])!r} in all {rows:,} rows. "
            "With a single class or value, there is nothing to learn."
        )
    notes = [f"dropped {dropped:,} of {len(frame):,} rows, because the target {target!r} is missing"] if dropped else []
    features = frame.drop(columns=target)
    return Split(features[known] if dropped else features, column, notes)


def _whole(column: pd.Series) -> pd.Series:
    """Integers as such, if only a missing value had made them floats."""
    values = numbers(column)
    return column.astype("int64") if (values % 1 == 0).all() and (np.abs(values) < 2**53).all() else column


def guess_task(target: pd.Series, task: Task | None = None) -> Guess:
    """Infer classification or regression from the values; a given `task` is checked instead.

    >>> guess_task(pd.Series(["cat", "dog", "cat"], name="pet"))
    Guess(task='classification', reason="'pet' has 2 distinct strings")
    >>> guess_task(pd.Series([1.5, 2.25, 8.0], name="price"))
    Guess(task='regression', reason="'price' has decimal numbers")
    >>> guess_task(pd.Series([0, 1, 2, 0, 1, 2], name="grade"), "regression")
    Guess(task='regression', reason='as specified')
    """
    check_task(task)
    name = repr(target.name)
    if is_plain_date(target):
        raise TableError(
            f"The target {name} holds dates. Convert them to numbers first, such as days since a fixed date."
        )
    if not is_plain_number(target):
        if task == "regression":
            numbers(target)  # raises an error that names the first other value
            return Guess(task, "as specified")
        classes, rows = target.nunique(), int(target.notna().sum())
        if classes > max(_MOST_CLASSES, rows / 2):
            if np.isnan(parse_numbers(list(words(target)))).mean() <= _FEW_WORDS:
                numbers(target)  # raises an error that names the first other value
            raise TableError(
                f"The target {name} holds free text ({classes:,} distinct values in {rows:,} rows), which is neither "
                "a class nor a number. Choose another column."
            )
        reason = f"{name} has booleans" if is_plain_boolean(target) else f"{name} has {classes} distinct strings"
        return Guess("classification", "as specified" if task else reason)
    values = numbers(target.dropna())
    if task == "classification":
        _check_few(name, values)
    return Guess(task, "as specified") if task else _guess_from_numbers(name, values)


def check_task(task: str | None) -> None:
    """Refuse a task that is neither classification nor regression; None leaves it open.

    >>> check_task("ranking")
    Traceback (most recent call last):
    awn.errors.ArgumentError: task must be 'classification' or 'regression', got 'ranking'.
    """
    if task not in (None, *get_args(Task)):
        raise ArgumentError(f"task must be 'classification' or 'regression', got {task!r}.", argument="task")


def as_classes(target: pd.Series) -> pd.Series:
    """The classes of a target; decimal numbers become strings, since scikit-learn takes them for a quantity.

    >>> as_classes(pd.Series([0.5, 1.0, 0.5])).tolist(), as_classes(pd.Series([0, 1, 0])).tolist()
    (['0.5', '1', '0.5'], [0, 1, 0])
    """
    if not is_plain_number(target) or (numbers(target) % 1 == 0).all():
        return target
    return pd.Series(words(target), index=target.index, name=target.name)


def _check_few(name: str, values: Floats) -> None:
    """Refuse too many distinct numbers as classes."""
    distinct = np.unique(values)
    most = _MOST_CLASSES if (distinct % 1 != 0).any() else max(_MOST_CLASSES, len(values) / 2)
    if len(distinct) > most:
        raise TableError(
            f"The target {name} has {len(distinct):,} distinct numbers in {len(values):,} rows, too many for classes. "
            "Set the task to regression, or group the values into a few classes first."
        )


def _guess_from_numbers(name: str, values: Floats) -> Guess:
    distinct = np.unique(values)
    count, span = len(distinct), distinct[-1] - distinct[0] + 1
    if count == 2 and len(values) >= 4:
        return Guess("classification", f"{name} has two distinct values, {distinct[0]:g} and {distinct[1]:g}")
    if (distinct % 1 != 0).any():
        return Guess("regression", f"{name} has decimal numbers")
    if count > min(_MOST_CLASSES, len(values) / 2):
        classes = (
            "; if they are classes, use --task classification" if _may_be_classes(count, span, len(values)) else ""
        )
        return Guess("regression", f"{name} has {count:,} distinct integers in {len(values):,} rows{classes}")
    # Classes are numbered 0, 1, 2, … with few gaps; 0, 10, 20, … are quantities.
    if span > 2 * count:
        return Guess("regression", f"{name} has integers with gaps, from {distinct[0]:g} to {distinct[-1]:g}")
    return Guess("classification", f"{name} has {count} distinct integers from {distinct[0]:g} to {distinct[-1]:g}")


def _may_be_classes(count: int, span: float, rows: int) -> bool:
    """Whether integers have few gaps and occur several times each, as numbered classes do."""
    return count <= _MOST_PLAUSIBLE_CLASSES and span <= 2 * count and rows >= 5 * count


def _clean(column: pd.Series) -> pd.Series:
    """The target with numbers parsed, strings stripped, and words such as n/a as missing values."""
    if is_plain_number(column):
        numbers(column)  # refuses infinity
        return column
    if is_plain_boolean(column) or is_plain_date(column):
        return column
    codes, levels = distinct(column)
    known = [level for level in levels if level]
    number_format = find_number_format(known)
    written = known and (number_format or not np.isnan(parse_numbers(known)).any())
    if written and not isinstance(column.dtype, pd.CategoricalDtype):
        return pd.Series(numbers(column, number_format), index=column.index, name=column.name)
    found = np.array([level or None for level in levels], dtype=object)[codes]
    return pd.Series(found, index=column.index, name=column.name, dtype=object)
