"""Facts about the columns of a table: kind, missing values, distinct values, and counts for a histogram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from awn.report.table_data import ColumnFacts
from awn.tabular.encode.columns import Column
from awn.tabular.explain import Shuffled
from awn.tabular.read.values import dates, distinct, numbers

_BARS = 16
_TAIL = 0.01  # of the values at either end, which a histogram leaves out


def column_facts(
    frame: pd.DataFrame, columns: Sequence[Column], importances: Mapping[str, Shuffled] | None = None
) -> list[ColumnFacts]:
    """The facts about each column, the most important ones first.

    >>> table = pd.DataFrame({"age": [20, 30, None, 50], "job": ["cook", "smith", "cook", "cook"]})
    >>> for facts in column_facts(table, [Column("age", "number"), Column("job", "category")]):
    ...     print(facts.name, facts.missing, facts.levels, facts.labels)
    age 0.25 3 ['20', '50']
    job 0.0 2 ['cook', 'smith']
    """
    importances = importances or {}
    facts = [_facts(frame[column.name], column, importances.get(column.name)) for column in columns]
    return sorted(facts, key=lambda one: -np.inf if one.importance is None else one.importance, reverse=True)


def _facts(series: pd.Series, column: Column, shuffled: Shuffled | None) -> ColumnFacts:
    codes, words = distinct(series)
    known = np.array([word != "" for word in words])[codes]
    counts, labels = _bars(series, column, codes, words)
    return ColumnFacts(
        column.name,
        column.kind,
        missing=float(1 - known.mean()) if len(known) else 0.0,
        levels=len({words[code] for code in np.unique(codes)} - {""}),
        counts=counts,
        labels=labels,
        importance=None if shuffled is None else shuffled.importance,
        spread=None if shuffled is None else shuffled.spread,
    )


def _bars(series: pd.Series, column: Column, codes: NDArray[np.intp], words: list[str]) -> tuple[list[int], list[str]]:
    if column.kind == "number":
        values = numbers(series, column.number_format)
        return _histogram(values, lambda end: f"{end:.6g}")
    if column.kind == "date":
        moments = dates(series, column.date_format)
        days = (moments - np.datetime64(0, "us")) / np.timedelta64(1, "D")
        return _histogram(days, lambda end: str(np.datetime64(int(end), "D")))
    if column.kind not in ("category", "boolean"):
        return [], []
    often = np.bincount(codes % len(words), minlength=len(words))
    order = [place for place in (-often).argsort(kind="stable")[:_BARS] if often[place] and words[place]]
    return [int(often[place]) for place in order], [words[place] for place in order]


def _histogram(values: NDArray[Any], label: Any) -> tuple[list[int], list[str]]:
    """Counts of equally wide bars, and the ends of the whole range."""
    values = values[~np.isnan(values)]
    if not len(values):
        return [], []
    low, high = np.quantile(values, [_TAIL, 1 - _TAIL], method="nearest")
    if low == high:
        low, high = values.min(), values.max()
    counts, _ = np.histogram(values, bins=_BARS, range=(low, high) if low < high else None)
    return counts.tolist(), [label(low), label(high)]
