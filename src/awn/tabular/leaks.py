"""Leaks: columns that give the target away, which are probably not known when the model is used."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from awn.tabular.encode.columns import Column
from awn.tabular.read.target import Task
from awn.tabular.read.values import distinct, numbers

Array = NDArray[Any]
_ROWS = 2000  # a sample of more rows
_FEWEST_ROWS = 50
_BIN = 25  # rows with neighbouring numbers, which predict each other
_NEARLY_ALL: dict[Task, float] = {"classification": 0.9, "regression": 0.95}  # of what a constant leaves unexplained
_EXACT = 1e-6  # of the target's standard deviation
_MOST_NUMBERS = 200  # columns among which a sum is searched
_BY_CHANCE = 1e-9


def find_leaks(frame: pd.DataFrame, target: pd.Series, task: Task, columns: Sequence[Column]) -> list[str]:
    """A note for every column, and for a sum of columns, that gives the target away.

    >>> rows = np.arange(100.0)
    >>> frame = pd.DataFrame({"casual": rows % 7, "registered": rows % 11, "wind": rows % 5})
    >>> kinds = [Column(name, "number") for name in frame]
    >>> print(*find_leaks(frame, (frame["casual"] + frame["registered"]).rename("count"), "regression", kinds))
    'casual', 'registered' together give the target exactly: leave out with --ignore casual --ignore registered what ...
    """
    if len(frame) < _FEWEST_ROWS:
        return []
    rows = np.random.default_rng(0).permutation(len(frame))[:_ROWS]
    frame, used = frame.iloc[rows], [column for column in columns if column.used]
    wanted = numbers(target.iloc[rows]) if task == "regression" else distinct(target.iloc[rows])[0]
    terms = _exact_terms(frame, wanted, used) if task == "regression" else []
    notes = [_note(terms, f"{'together give' if len(terms) > 1 else 'gives'} the target exactly")] if terms else []
    for column in used:
        says = "" if column.name in terms else _alone(frame[column.name], wanted, task, column)
        notes += [_note([column.name], says)] if says else []
    return notes


def _note(names: Sequence[str], says: str) -> str:
    options = " ".join(f"--ignore {shlex.quote(name)}" for name in names)
    return (
        f"{', '.join(map(repr, names))} {says}: leave out with {options} what is not known at the time of a prediction"
    )


def _exact_terms(frame: pd.DataFrame, wanted: Array, used: Sequence[Column]) -> list[str]:
    """The fewest columns of numbers of which the target is exactly a linear combination; none if there are none."""
    plain = [column for column in used if column.kind == "number"]
    if not plain or len(plain) > min(_MOST_NUMBERS, len(frame) // 2):
        return []
    matrix = np.column_stack([numbers(frame[column.name], column.number_format) for column in plain])
    known = ~np.isnan(matrix).any(1)
    if known.sum() < max(_FEWEST_ROWS, 2 * len(plain)):
        return []
    matrix, wanted = matrix[known] - matrix[known].mean(0), wanted[known] - wanted[known].mean()
    scale = matrix.std(0)
    matrix = matrix / np.where(scale > 0, scale, 1.0)

    def is_exact(kept: list[int]) -> bool:
        weights = np.linalg.lstsq(matrix[:, kept], wanted, rcond=None)[0]
        return bool(np.abs(matrix[:, kept] @ weights - wanted).max() <= _EXACT * max(wanted.std(), 1e-300))

    kept = list(range(len(plain)))
    if not is_exact(kept):
        return []
    for place in list(kept):
        fewer = [other for other in kept if other != place]
        if fewer and is_exact(fewer):
            kept = fewer
    return [plain[place].name for place in kept]


def _alone(series: pd.Series, wanted: Array, task: Task, column: Column) -> str:
    """What a single column tells of the target, if that is nearly everything; otherwise ''."""
    groups, missing = _groups(series, column)
    explained = _classes_explained(groups, wanted) if task == "classification" else _spread_explained(groups, wanted)
    if explained >= _NEARLY_ALL[task]:
        return "alone predicts the target almost perfectly"
    if task == "classification":
        shares = np.bincount(wanted) / len(wanted)
        for rows, when in ((missing, "missing"), (~missing, "known")):
            own = np.bincount(wanted[rows], minlength=len(shares)) if rows.any() and not rows.all() else shares
            # As many rows of one class would hardly happen by chance.
            if (own > 0).sum() == 1 and shares[own.argmax()] ** own.sum() < _BY_CHANCE:
                return f"is {when} only in rows of one class"
    return ""


def _groups(series: pd.Series, column: Column) -> tuple[Array, Array]:
    """A group for each row, of the same level or of neighbouring numbers, and which rows are missing."""
    if column.kind != "number":
        codes, words = distinct(series)
        return codes % len(words), np.array([word == "" for word in words])[codes]
    values = numbers(series, column.number_format)
    missing = np.isnan(values)
    groups = np.empty(len(values), dtype=np.intp)
    levels, places = np.unique(values, return_inverse=True)
    if len(levels) <= len(values) // _BIN:
        return places, missing
    groups[np.argsort(values, kind="stable")] = np.arange(len(values)) // _BIN
    groups[missing] = len(values)
    return groups, missing


def _classes_explained(groups: Array, wanted: Array) -> float:
    """The share of a constant's mistakes that the most frequent class of the other rows of a group avoids."""
    number = int(wanted.max()) + 1
    counts = np.bincount(groups * number + wanted, minlength=(int(groups.max()) + 1) * number).reshape(-1, number)
    others = counts[groups]
    others[np.arange(len(wanted)), wanted] -= 1
    right = float(((others.argmax(1) == wanted) & (others.max(1) > 0)).mean())
    constant = float(np.bincount(wanted).max() / len(wanted))
    return (right - constant) / (1 - constant) if constant < 1 else 0.0


def _spread_explained(groups: Array, wanted: Array) -> float:
    """The share of the target's variance that the mean of the other rows of a group explains."""
    counts, sums = np.bincount(groups)[groups], np.bincount(groups, wanted)[groups]
    predicted = np.where(counts > 1, (sums - wanted) / np.maximum(counts - 1, 1), wanted.mean())
    spread = wanted.var()
    return 1 - float(((wanted - predicted) ** 2).mean() / spread) if spread > 0 else 0.0
