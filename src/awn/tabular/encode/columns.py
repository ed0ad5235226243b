"""Column kinds: number, boolean, category or date, inferred from the values; text and identifiers are left out."""

from __future__ import annotations

import itertools
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

import numpy as np
import pandas as pd

from awn.basics.names import listed, near
from awn.errors import ArgumentError, ColumnWarning, TableError
from awn.tabular.encode.blocks import column_blocks, numpy_numbers
from awn.tabular.read.names import with_names
from awn.tabular.read.values import (
    BOOLEAN_PAIRS,
    LARGEST,
    MISSING_WORDS,
    Floats,
    booleans,
    dates,
    distinct,
    is_plain_boolean,
    is_plain_date,
    is_plain_number,
    numbers,
    parse_dates,
    refuse_word,
    words,
)
from awn.tabular.read.written import NumberFormat, find_number_format, parse_numbers

ColumnKind = Literal["number", "boolean", "category", "date", "constant", "empty", "text", "id", "ignored"]
USED = ("number", "boolean", "category", "date")

_NEARLY_ALL = 0.95  # with this share of numbers, a column is numeric, and its other values are mistakes
_DAYS = ("%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_FORMATS = ("ISO8601", *("".join(parts) for parts in itertools.product(_DAYS, _TIMES)))
_CODE = re.compile(r"0\d+")  # 007 is a code, not a number
_LIKE_A_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4})?([ T].*)?")
_NAMED_ID = re.compile(r"(?i:[pr]?id|[ug]uid|.*[^a-z]id)|.*[a-z]ID")  # id, PID, user_id, customerID
_FEWEST_IDS = 20  # in fewer rows, a different integer in each of them means nothing


@dataclass(frozen=True)
class Column:
    """A column of a table, its kind, and a note for the user if the kind is not obvious.

    Columns of the kinds "constant", "empty", "text", "id" and "ignored" are not used. `date_format` and
    `number_format` are those of dates and numbers that the table holds as text.
    """

    name: str
    kind: ColumnKind
    note: str = ""
    date_format: str | None = None
    number_format: NumberFormat | None = None

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

    Strings are categories, unless most of them differ: such free text is left out, and so are identifiers.
    """
    frame = with_names(frame)
    names = frame.columns.tolist()
    kinds = dict(kinds or {})
    _check_kinds(kinds, names)
    columns = []
    ordinary = _ordinary_numbers(
        frame, [place for place, name in enumerate(names) if name not in kinds and not _NAMED_ID.fullmatch(name)]
    )
    for place, name in enumerate(names):
        if place in ordinary:
            columns.append(Column(name, "number"))
            continue
        series = frame.iloc[:, place]
        columns.append(_stated(series, kinds[name]) if name in kinds else _decide(series, max_levels))
    if not any(column.used for column in columns):  # a row number alone may still be a time
        columns = [
            Column(one.name, "number") if one.kind == "id" and is_plain_number(frame[one.name]) else one
            for one in columns
        ]
    if not any(column.used for column in columns):
        why = "; ".join(f"{column.name!r} {column.note or 'ignored'}" for column in columns[:5])
        raise TableError(f"The table has no usable column: {why or 'it has no columns'}.")
    return tuple(columns)


def warn_of_columns(columns: Iterable[Column]) -> None:
    """Warn of columns that are left out although nobody asked for it.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_columns([Column("name", "text", "left out as text"), Column("age", "number")])
    >>> print(caught[0].message)
    'name': left out as text. Set kinds={'name': 'ignored'} to leave it out without a warning.
    """
    left_out = [column for column in columns if column.kind in ("text", "id")]
    if left_out:
        notes = "; ".join(f"{column.name!r}: {column.note}" for column in left_out)
        kinds = {column.name: "ignored" for column in left_out}
        them = "it" if len(left_out) == 1 else "them"
        warnings.warn(f"{notes}. Set {kinds=} to leave {them} out without a warning.", ColumnWarning, stacklevel=5)


def _ordinary_numbers(frame: pd.DataFrame, places: list[int]) -> set[int]:
    """The columns of numbers that `_decide` would keep without a note, found for many columns at once."""
    rows, plain, ordinary = len(frame), np.array(numpy_numbers(frame, places), dtype=np.intp), set[int]()
    for block in column_blocks(rows, len(plain) if rows else 0):
        values = frame.iloc[:, plain[block]].to_numpy(dtype=np.float64)
        low, high = np.fmin.reduce(values), np.fmax.reduce(values)  # NaN if every value is missing
        missing = np.isnan(values).any(0)
        numbered = (rows >= _FEWEST_IDS) & (rows - 1 <= high - low) & (high - low <= 2 * rows)
        plausible = (np.maximum(-low, high) <= LARGEST) & (missing | ((low < high) & ~numbered))
        ordinary.update(plain[block][plausible].tolist())
    return ordinary


def _check_kinds(kinds: Mapping[str, ColumnKind], names: Sequence[str]) -> None:
    """Refuse a kind that does not exist, and one for a column that does not exist."""
    for name, kind in kinds.items():
        if name not in names:
            wanted = " to leave out" if kind == "ignored" else ", whose kind is given"
            raise ArgumentError(f"The table has no column {name!r}{wanted}.{near(name, names)}")
        if kind not in (*USED, "ignored"):
            raise ArgumentError(f"The kind of column {name!r} must be {', '.join(USED)} or ignored, got {kind!r}.")


def _stated(series: pd.Series, kind: ColumnKind) -> Column:
    """The column with the kind that the user set, checked."""
    name = str(series.name)
    if kind == "ignored":
        return Column(name, "ignored")
    if not _levels(series)[0]:
        return _empty(series)
    if kind == "number":
        plain = is_plain_number(series) or is_plain_boolean(series)
        number_format = None if plain else find_number_format(list(_levels(series)[0]))
        numbers(series, number_format)
        return Column(name, "number", number_format=number_format)
    if kind == "boolean":
        booleans(series)
    if kind == "date":
        date_format = None if is_plain_date(series) else _date_format(list(_levels(series)[0]))[0]
        dates(series, date_format)
        return Column(name, "date", date_format=date_format)
    return Column(name, kind)


def _decide(series: pd.Series, max_levels: int) -> Column:
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
        number_format = find_number_format(list(levels))
        if number_format:
            return _decide_formatted_numbers(series, number_format)
        share = _share_of_numbers(levels)
        if share >= _NEARLY_ALL and not any(map(_CODE.fullmatch, levels)):
            return _decide_written_numbers(series, levels, share)
        if any({word.lower() for word in levels} <= set(pair) for pair in BOOLEAN_PAIRS):
            return Column(name, "boolean")
        date_format, note = _date_format(list(levels))
        if date_format:
            return Column(name, "date", note, date_format)
        _check_stray_words(series, levels)
        note = f"treated as categories: only {share:.0%} of the values are numbers" if 0 < share < 1 else ""
    if len(levels) > max(max_levels, sum(levels.values()) / 2):
        return _text(series, levels)
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
    if len(values) >= _FEWEST_IDS and not missing.any() and _identifies_rows(str(series.name), values, high - low):
        return _identifier(series, "a different integer in every row", "number")
    return Column(str(series.name), "number")


def _identifies_rows(name: str, values: Floats, span: float) -> bool:
    """Whether integers number the rows, or differ in every row of a column that is named as an identifier."""
    rows = len(values)
    numbered = rows - 1 <= span <= 2 * rows
    if not (numbered or _NAMED_ID.fullmatch(name)):
        return False
    return bool((values % 1 == 0).all() and len(np.unique(values)) == rows)


def _decide_written_numbers(series: pd.Series, levels: Counter[str], share: float) -> Column:
    """A column of numbers that the table holds as text, usually because of a word for missing values."""
    if share < 1:
        wrong = {word for word, value in zip(levels, parse_numbers(list(levels)), strict=True) if np.isnan(value)}
        _refuse_unlike_others(series, wrong, "a number")
    column = _decide_numbers(pd.Series(numbers(series), index=series.index, name=series.name))
    written = {str(value).strip() for value in series.dropna().unique()}
    markers = sorted(word for word in written if word.lower() in MISSING_WORDS)
    if column.kind != "number" or not markers:
        return column
    return Column(column.name, "number", f"numbers, with missing values written as {listed(markers)}")


def _check_stray_words(series: pd.Series, levels: Counter[str]) -> None:
    """Raise if nearly all values are dates or formatted numbers, and the others are words without a digit."""
    stray = {word for word in levels if not any(sign.isdigit() for sign in word)}
    rest = [word for word in levels if word not in stray]
    share = sum(levels[word] for word in rest) / sum(levels.values())
    if not stray or len(rest) < 2 or share < _NEARLY_ALL:
        return
    if find_number_format(rest):
        _refuse_unlike_others(series, stray, "a number")
    if _date_format(rest)[0]:
        _refuse_unlike_others(series, stray, "a date")


def _refuse_unlike_others(series: pd.Series, wrong: set[str], what: str) -> NoReturn:
    found = words(series)
    rows = [row for row, word in enumerate(found) if word in wrong]
    refuse_word(
        series,
        rows[0],
        found[rows[0]],
        len(rows),
        f"{what}, unlike nearly all values of the column",
        "Correct it, or leave the cell empty if the value is missing. If the column holds codes, use "
        f"{_option(str(series.name), 'category')} (in Python, kinds={{{series.name!r}: 'category'}}).",
    )


def _decide_formatted_numbers(series: pd.Series, number_format: NumberFormat) -> Column:
    """A column of numbers such as 12.5%, $1,200 or 1.200,50."""
    values = numbers(series, number_format)
    column = _decide_numbers(pd.Series(values, index=series.index, name=series.name))
    if column.kind != "number":
        return column
    shown = int(np.nanargmax(np.abs(values)))
    note = f"numbers: {words(series)[shown]!r} is read as {values[shown]:.15g}"
    return Column(column.name, "number", note, number_format=number_format)


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


def _text(series: pd.Series, levels: Counter[str]) -> Column:
    """Strings of which most differ: an identifier if all of them do and none has a space, otherwise text."""
    known, example = sum(levels.values()), next(iter(levels))
    if len(levels) == known and not any(" " in word for word in levels):
        return _identifier(series, f"a different value in every row, such as {_shortened(example)!r}", "category")
    note = f"left out as text: {len(levels):,} distinct values in {known:,} rows, such as {_shortened(example)!r}"
    return Column(str(series.name), "text", f"{note}; {_option(str(series.name), 'category')} uses it")


def _identifier(series: pd.Series, why: str, kind: ColumnKind) -> Column:
    name = str(series.name)
    return Column(name, "id", f"left out as an identifier: {why}; {_option(name, kind)} uses it")


def _option(name: str, kind: ColumnKind) -> str:
    return f"--kind {shlex.quote(f'{name}={kind}')}"


def _shortened(word: str) -> str:
    return word if len(word) <= 40 else word[:40] + "…"
