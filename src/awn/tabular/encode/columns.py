"""Column kinds: number, boolean, category or date, inferred from the values of each column."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from awn.basics.names import listed, near
from awn.errors import ArgumentError, TableError
from awn.tabular.encode.blocks import column_blocks, numpy_numbers
from awn.tabular.read.names import with_names
from awn.tabular.read.values import (
    BOOLEAN_PAIRS,
    LARGEST,
    MISSING_WORDS,
    booleans,
    dates,
    distinct,
    is_plain_boolean,
    is_plain_date,
    is_plain_number,
    numbers,
    parse_dates,
    parse_numbers,
    refuse_word,
    words,
)

ColumnKind = Literal["number", "boolean", "category", "date", "constant", "empty", "ignored"]
USED = ("number", "boolean", "category", "date")

_NEARLY_ALL = 0.95  # with this share of numbers, a column is numeric, and its other values are mistakes
_DAYS = ("%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_FORMATS = ("ISO8601", *("".join(parts) for parts in itertools.product(_DAYS, _TIMES)))
_CODE = re.compile(r"0\d+")  # 007 is a code, not a number
_LIKE_A_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4})?([ T].*)?")


@dataclass(frozen=True)
class Column:
    """A column of a table, its kind, and a note for the user if the kind is not obvious.

    Columns of the kinds "constant", "empty" and "ignored" are not used. `date_format` is the format of dates that the
    table holds as text.
    """

    name: str
    kind: ColumnKind
    note: str = ""
    date_format: str | None = None

    @property
    def used(self) -> bool:
        """Whether the network uses the column.

        >>> Column("id", "ignored").used
        False
        """
        return self.kind in USED


def decide_columns(
    frame: pd.DataFrame, kinds: Mapping[str, ColumnKind] | None = None, max_levels: int = 50
) -> tuple[Column, ...]:
    """Infer the kind of each column; `kinds` sets those of some columns, by name.

    >>> for column in decide_columns(pd.DataFrame({"age": [31, 52], "job": ["cook", "smith"], "land": ["at", "at"]})):
    ...     print(column.name, column.kind, column.note)
    age number
    job category
    land constant dropped: every value is 'at'

    Strings are categories, unless nearly all of them differ: such free text is refused.
    """
    frame = with_names(frame)
    names = frame.columns.tolist()
    kinds = dict(kinds or {})
    _check_kinds(kinds, names)
    columns, text = [], []
    ordinary = _ordinary_numbers(frame, [place for place, name in enumerate(names) if name not in kinds])
    for place, name in enumerate(names):
        if place in ordinary:
            columns.append(Column(name, "number"))
            continue
        series = frame.iloc[:, place]
        column = _stated(series, kinds[name]) if name in kinds else _decide(series, max_levels)
        if column is None:
            text.append(name)
        else:
            columns.append(column)
    if text:
        raise _text_error(frame, text)
    if not any(column.used for column in columns):
        why = "; ".join(f"{column.name!r} {column.note or 'ignored'}" for column in columns[:5])
        raise TableError(f"The table has no usable column: {why or 'it has no columns'}.")
    return tuple(columns)


def _ordinary_numbers(frame: pd.DataFrame, places: list[int]) -> set[int]:
    """The columns of numbers about which `_decide` has nothing to say, found for many columns at once."""
    rows, plain, ordinary = len(frame), np.array(numpy_numbers(frame, places), dtype=np.intp), set[int]()
    for block in column_blocks(rows, len(plain) if rows else 0):
        values = frame.iloc[:, plain[block]].to_numpy(dtype=np.float64)
        low, high = np.fmin.reduce(values), np.fmax.reduce(values)  # NaN if every value is missing
        missing = np.isnan(values).any(0)
        numbered = (rows >= 20) & (rows - 1 <= high - low) & (high - low <= 2 * rows)
        plausible = (np.maximum(-low, high) <= LARGEST) & (missing | ((low < high) & ~numbered))
        ordinary.update(plain[block][plausible].tolist())
    return ordinary


def _check_kinds(kinds: Mapping[str, ColumnKind], names: list[str]) -> None:
    for name, kind in kinds.items():
        if name not in names:
            raise ArgumentError(f"kinds has an entry {name!r}, but the table has no such column.{near(name, names)}")
        if kind not in (*USED, "ignored"):
            allowed = ", ".join(repr(one) for one in (*USED, "ignored"))
            raise ArgumentError(f"kinds[{name!r}] must be one of {allowed}, got {kind!r}.")


def _stated(series: pd.Series, kind: ColumnKind) -> Column:
    """The column with the kind that the user set, checked."""
    name = str(series.name)
    if kind == "ignored":
        return Column(name, "ignored")
    if not _levels(series)[0]:
        return _empty(series)
    if kind == "number":
        numbers(series)
    elif kind == "boolean":
        booleans(series)
    elif kind == "date":
        date_format = None if is_plain_date(series) else _date_format(list(_levels(series)[0]))[0]
        dates(series, date_format)
        return Column(name, "date", date_format=date_format)
    return Column(name, kind)


def _decide(series: pd.Series, max_levels: int) -> Column | None:
    """The column, or None if it holds free text."""
    name = str(series.name)
    if pd.api.types.is_timedelta64_dtype(series.dtype):
        raise TableError(
            f"Column {name!r} holds durations. Convert them to numbers, for example with .dt.total_seconds()."
        )
    if is_plain_number(series):
        return _decide_numbers(series)
    if is_plain_boolean(series) or is_plain_date(series):
        if series.isna().all():
            return _empty(series)
        if series.nunique(dropna=False) == 1:
            return _constant(series, str(series.iloc[0]))
        return Column(name, "boolean" if is_plain_boolean(series) else "date")
    levels, missing = _levels(series)
    if not levels:
        return _empty(series)
    if len(levels) == 1 and not missing:
        return _constant(series, repr(next(iter(levels))))
    note = ""
    if not isinstance(series.dtype, pd.CategoricalDtype):  # a categorical dtype is deliberate
        share = _share_of_numbers(levels)
        if share >= _NEARLY_ALL and not any(map(_CODE.fullmatch, levels)):
            return _decide_written_numbers(series, levels, share)
        if any({word.lower() for word in levels} <= set(pair) for pair in BOOLEAN_PAIRS):
            return Column(name, "boolean")
        date_format, note = _date_format(list(levels))
        if date_format:
            return Column(name, "date", note, date_format)
        note = f"treated as categories: only {share:.0%} of the values are numbers" if 0 < share < 1 else ""
    if len(levels) > max(max_levels, sum(levels.values()) / 2):
        return None
    note = f"{len(levels):,} levels: the rarest are grouped" if len(levels) > max_levels else note
    return Column(name, "category", note)


def _levels(series: pd.Series) -> tuple[Counter[str], int]:
    """How often each word occurs, and how many values are missing."""
    codes, found = distinct(series)
    levels: Counter[str] = Counter()
    for word, count in zip(found, np.bincount(codes % len(found), minlength=len(found)).tolist(), strict=True):
        levels[word] += count
    missing = levels.pop("")
    return levels, missing


def _share_of_numbers(levels: Counter[str]) -> float:
    is_number = ~np.isnan(parse_numbers(list(levels)))
    return float(np.array(list(levels.values()))[is_number].sum() / sum(levels.values()))


def _decide_numbers(series: pd.Series) -> Column:
    values = numbers(series)
    missing = np.isnan(values)
    if missing.all():
        return _empty(series)
    low, high = values[~missing].min(), values[~missing].max()
    if low == high and not missing.any():
        return _constant(series, f"{low:g}")
    rows, note = len(values), ""
    if rows >= 20 and rows - 1 <= high - low <= 2 * rows and not missing.any():
        whole = (values % 1 == 0).all() and len(np.unique(values)) == rows
        note = "has a different integer in every row: remove it if it is only a row number" if whole else ""
    return Column(str(series.name), "number", note)


def _decide_written_numbers(series: pd.Series, levels: Counter[str], share: float) -> Column:
    """A column of numbers that the table holds as text, usually because of a word for missing values."""
    if share < 1:
        found = words(series)
        wrong = {word for word, value in zip(levels, parse_numbers(list(levels)), strict=True) if np.isnan(value)}
        rows = [row for row, word in enumerate(found) if word in wrong]
        refuse_word(
            series,
            rows[0],
            found[rows[0]],
            len(rows),
            "a number, unlike nearly all values of the column",
            "Correct it, or leave the cell empty if the value is missing. "
            "If the column holds codes, convert it to pandas' dtype 'category'.",
        )
    column = _decide_numbers(pd.Series(numbers(series), index=series.index, name=series.name))
    written = {str(value).strip() for value in series.dropna().unique()}
    markers = sorted(word for word in written if word.lower() in MISSING_WORDS)
    if column.kind != "number" or not markers:
        return column
    return Column(column.name, "number", f"numbers, with missing values written as {listed(markers)}")


def _date_format(texts: list[str]) -> tuple[str | None, str]:
    """The format in which every word is a date, and a note if another format fits too."""
    if not all(_LIKE_A_DATE.fullmatch(word) for word in texts):
        return None, ""
    fits = [one for one in _FORMATS if not np.isnat(parse_dates(texts[:100], one)).any()]
    fits = [one for one in fits if not np.isnat(parse_dates(texts, one)).any()]
    note = f"ambiguous dates, read as {fits[0]}; {fits[1]} fits too" if len(fits) > 1 else ""
    return (fits[0], note) if fits else (None, "")


def _empty(series: pd.Series) -> Column:
    return Column(str(series.name), "empty", "dropped: every value is missing")


def _constant(series: pd.Series, value: str) -> Column:
    return Column(str(series.name), "constant", f"dropped: every value is {value}")


def _text_error(frame: pd.DataFrame, text: list[str]) -> TableError:
    series = frame[text[0]]
    example = next(iter(_levels(series)[0]))
    example = example if len(example) <= 40 else example[:40] + "…"
    return TableError(
        f"Column{'s' * (len(text) > 1)} {listed(text)} hold{'s' * (len(text) == 1)} free text: {text[0]!r} has "
        f"{series.nunique():,} distinct values in {len(series):,} rows, such as {example!r}. A network cannot use it. "
        "Remove it, or turn it into numbers or a few categories first. Write dates like 2024-01-31."
    )
