"""Cell values: the values of one column as numbers, booleans, dates or words. Errors name the row of a wrong value.

An empty cell, NaN, None, NaT and words such as ? or n/a count as missing.
"""

from __future__ import annotations

import shlex
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types

from awn.errors import TableError
from awn.tabular.read.lines import LINE
from awn.tabular.read.written import Floats as Floats
from awn.tabular.read.written import NumberFormat, parse_alike, parse_numbers

Dates = npt.NDArray[np.datetime64]

MISSING_WORDS = frozenset(
    ["", "?", "-", "--", ".", "na", "n/a", "#n/a", "<na>", "nan", "nat", "nil", "null", "none", "missing", "unknown"]
)
BOOLEAN_PAIRS = (("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"), ("off", "on"))
LARGEST = 1e30  # larger than any measured quantity: a mistake, or a code for a missing value
_BOOLEANS = {word: float(value) for pair in (*BOOLEAN_PAIRS, ("0", "1")) for value, word in enumerate(pair)}


def distinct(column: pd.Series) -> tuple[npt.NDArray[np.intp], list[str]]:
    """The position of each row's value in the list of distinct values, and that list as words, '' for missing.

    >>> codes, words = distinct(pd.Series(["a ", "?", "b", 3.0, None]))
    >>> [words[code] for code in codes]
    ['a', '', 'b', '3', '']
    """
    try:
        codes, values = pd.factorize(column)
    except TypeError:
        held = next((type(value).__name__ for value in column if types.is_list_like(value)), "object")
        option = f"--ignore {shlex.quote(str(column.name))} (in Python, kinds={{{column.name!r}: 'ignored'}})"
        raise TableError(
            f"Column {column.name!r} holds values of type {held}. Put their elements into separate columns, or leave "
            f"the column out: {option}."
        ) from None
    return codes, [*map(_word, values), ""]  # a missing value has the code -1, which is the last


def words(column: pd.Series) -> npt.NDArray[np.object_]:
    """The column as words, '' where missing.

    >>> words(pd.Series([1.0, float("nan"), 2.5])).tolist()
    ['1', '', '2.5']
    """
    codes, values = distinct(column)
    return np.array(values, dtype=object)[codes]


def numbers(column: pd.Series, number_format: NumberFormat | None = None) -> Floats:
    """The column as numbers, NaN where missing; text is read in the given format.

    >>> numbers(pd.Series(["1.5", "?", " 2"]))
    array([1.5, nan, 2. ])
    """
    if is_plain_number(column) or is_plain_boolean(column):
        values: Floats = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        codes, found = distinct(column)
        parsed = parse_numbers(found, number_format) if number_format else parse_alike(found)
        _refuse_unread(column, codes, found, np.isnan(parsed), "a number", _NUMBER_ADVICE)
        values = parsed[codes]
    _refuse_extremes(column, values)
    return values


def booleans(column: pd.Series) -> Floats:
    """The column as 0 and 1, NaN where missing.

    >>> booleans(pd.Series(["yes", "No", None]))
    array([ 1.,  0., nan])
    """
    if is_plain_boolean(column):
        values: Floats = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return values
    codes, found = distinct(column)
    parsed = np.array([_BOOLEANS.get(word.lower(), np.nan) for word in found])
    _refuse_unread(column, codes, found, np.isnan(parsed), "true or false", "Use true and false, or yes and no.")
    return parsed[codes]


def dates(column: pd.Series, date_format: str | None = None) -> Dates:
    """The column as timestamps in UTC, NaT where missing.

    >>> dates(pd.Series(["31.01.2024", "?"]), "%d.%m.%Y")
    array(['2024-01-31T00:00:00.000000', 'NaT'], dtype='datetime64[us]')
    """
    if is_plain_date(column):
        values = column.dt.tz_convert(None) if column.dt.tz is not None else column
        moments: Dates = values.to_numpy().astype("datetime64[us]")
        return moments
    codes, found = distinct(column)
    parsed = parse_dates(found, date_format or "ISO8601")
    wanted = f"a date like {_as_written(date_format)}"
    _refuse_unread(column, codes, found, np.isnat(parsed), wanted, "Correct it, or leave the cell empty.")
    return parsed[codes]


def parse_dates(texts: list[str], date_format: str) -> Dates:
    """Each word as a timestamp in UTC, NaT if it does not have this format."""
    parsed = pd.to_datetime(pd.Series(texts, dtype=object), format=date_format, errors="coerce", utc=True)
    moments: Dates = parsed.dt.tz_convert(None).to_numpy().astype("datetime64[us]")
    return moments


def is_plain_number(column: pd.Series) -> bool:
    """Whether pandas holds the column as numbers."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype) or types.is_bool_dtype(dtype) or types.is_complex_dtype(dtype):
        return False
    return bool(types.is_numeric_dtype(dtype))


def is_plain_boolean(column: pd.Series) -> bool:
    """Whether pandas holds the column as booleans."""
    return bool(types.is_bool_dtype(column.dtype)) and not isinstance(column.dtype, pd.CategoricalDtype)


def is_plain_date(column: pd.Series) -> bool:
    """Whether pandas holds the column as dates."""
    return bool(types.is_datetime64_any_dtype(column.dtype))


def row_name(column: pd.Series, position: int) -> str:
    """The name of a row in errors: its line in the file, or its label in the table.

    >>> row_name(pd.Series([1, 2]), 1), row_name(pd.Series([1, 2], index=pd.RangeIndex(2, 4, name="line")), 1)
    ('row 1 (counting from 0)', 'line 3')
    """
    label = column.index[position]
    if column.index.name == LINE:
        return f"line {label}"
    return f"row {label} (counting from 0)" if isinstance(label, (int, np.integer)) else f"row {label!r}"


_NUMBER_ADVICE = (
    "Write numbers like 1234.5, without units or thousands separators, and leave the cells of missing values empty."
)


def _word(value: Any) -> str:
    if isinstance(value, str):
        text = value.strip()
        return "" if text.lower() in MISSING_WORDS else text
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))  # a missing value turns a column of integers into floats
    return str(value)


def _as_written(date_format: str | None) -> str:
    return "2024-01-31" if date_format in (None, "ISO8601") else pd.Timestamp("2024-01-31").strftime(str(date_format))


def _refuse_unread(
    column: pd.Series,
    codes: npt.NDArray[np.intp],
    found: list[str],
    unread: npt.NDArray[np.bool_],
    wanted: str,
    advice: str,
) -> None:
    """Refuse words that could not be parsed and do not mean a missing value."""
    wrong = unread & np.array([word != "" for word in found])
    if wrong.any():
        rows = np.flatnonzero(wrong[codes])
        refuse_word(column, int(rows[0]), found[codes[rows[0]]], len(rows), wanted, advice)


def refuse_word(column: pd.Series, position: int, word: str, count: int, wanted: str, advice: str) -> NoReturn:
    """Raise an error for a word in a column of another kind."""
    more = f" ({count:,} such values in {len(column):,} rows)" if count > 1 else ""
    raise TableError(f"Column {column.name!r}, {row_name(column, position)}: {word!r} is not {wanted}{more}. {advice}")


def _refuse_extremes(column: pd.Series, values: Floats) -> None:
    extreme = np.flatnonzero(np.abs(values) > LARGEST)
    if extreme.size:
        value = values[extreme[0]]
        what = f"{value:g} is beyond ±{LARGEST:g}, more than any measured quantity"
        if np.isinf(value):
            what = f"the value is {'infinity' if value > 0 else 'minus infinity'}, which a network cannot use"
        raise TableError(
            f"Column {column.name!r}, {row_name(column, int(extreme[0]))}: {what}. "
            "Correct it, or leave the cell empty if the value is unknown."
        )
