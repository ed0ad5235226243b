"""Text tables: a header and rows, with fields separated by commas, semicolons, tabs or bars."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
from collections.abc import Collection, Iterator
from statistics import mode

import numpy as np
import pandas as pd

from awn.basics.names import listed
from awn.errors import TableError
from awn.tabular.read.names import check_names
from awn.tabular.read.parse import Layout, parse_by_arrow, parse_by_pandas
from awn.tabular.read.size import check_size
from awn.tabular.read.written import parse_numbers

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_SAMPLE = 50  # records that decide the delimiter
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+")


def read_delimited(data: bytes, table: str, *, tabs: bool = False, as_text: Collection[str] = ()) -> pd.DataFrame:
    r"""Parse the content of a text file; `table` names it in errors.

    `tabs` prefers tabs as the delimiter. Columns in `as_text` are read as strings.

    >>> read_delimited(b"size;price\n1;2,50\n3;4,25\n", "sales.csv").to_dict("list")
    {'size': [1, 3], 'price': [2.5, 4.25]}
    """
    try:
        layout = find_layout(data, table, tabs)
        check_size(_newlines(data), len(layout.names), table)
        check_names(layout.names, table)
        frame = parse_by_arrow(data, layout, as_text)
        if frame is None:
            _check_records(data, table, layout)
            frame = parse_by_pandas(data, layout, as_text)
    except UnicodeDecodeError:
        raise _not_utf8(data, table) from None
    except (csv.Error, pd.errors.ParserError) as error:
        raise TableError(
            f"{table} cannot be parsed: {error}. Check for an unclosed quote; "
            'a quote inside a quoted field must be doubled ("").'
        ) from None
    _refuse_missing_header(frame, table)
    return frame


def find_layout(data: bytes, table: str, tabs: bool = False) -> Layout:
    r"""Find the delimiter, the decimal sign and the column names from the first records.

    The delimiter is the one that splits the most records into the same number of fields, more than one, with quotes
    respected.

    >>> find_layout(b'name;"a, b";c\n1;2;3\n', "sales.csv")
    Layout(delimiter=';', decimal='.', names=('name', 'a, b', 'c'))
    """
    samples = {sign: sample for sign in DELIMITERS if (sample := _sample(data, sign))}
    if not samples and next(_records(data, ","), None) is None:
        raise TableError(f"{table} is empty: it has neither a header nor rows.")
    named_so = tabs and "\t" in samples and len(samples["\t"][0]) > 1
    found = "\t" if named_so else max(samples, key=lambda sign: _evenness(samples[sign]))
    records = samples[found]
    if len(records[0]) == 1:
        _refuse_other_delimiters(records, table)
    fields = [field for record in records[1:] for field in record]
    comma = (
        found != "," and any(map(_DECIMAL_COMMA.fullmatch, fields)) and not any(map(_DECIMAL_POINT.fullmatch, fields))
    )
    return Layout(found, "," if comma else ".", tuple(name.strip() for name in records[0]))


def _sample(data: bytes, delimiter: str) -> list[list[str]]:
    """The first records; fewer if a field is longer than `csv` allows, as can happen with the wrong delimiter."""
    sample = []
    with contextlib.suppress(csv.Error):
        for _, fields in itertools.islice(_records(data, delimiter), _SAMPLE):
            sample.append(fields)  # one by one, to keep the records before an error
    return sample


def _evenness(records: list[list[str]]) -> tuple[float, bool, int]:
    """How evenly a delimiter splits: the share of records of the usual length, whether the header has it, its value."""
    lengths = [len(fields) for fields in records]
    usual = mode(lengths)
    return (lengths.count(usual) / len(lengths), lengths[0] == usual, usual) if usual > 1 else (0.0, False, 1)


def _records(data: bytes, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The first line and the fields of each record that is not blank."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="")
    reader = csv.reader(text, delimiter=delimiter, skipinitialspace=True)
    start = 1
    try:
        for fields in reader:
            if len(fields) > 1 or any(field.strip() for field in fields):
                yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        raise csv.Error(f"line {start}: {error}") from None


def _check_records(data: bytes, table: str, layout: Layout) -> None:
    """Refuse a table without rows, and a row that is longer or shorter than the header.

    pandas silently fills short rows with missing values and shifts long ones. This goes through every field in Python,
    so it is left to tables that Arrow does not read.
    """
    records = _records(data, layout.delimiter)
    next(records)
    wanted, rows = len(layout.names), 0
    for line, fields in records:
        rows += 1
        if len(fields) != wanted:
            shown = layout.delimiter.join(fields)
            shown = shown if len(shown) <= 60 else shown[:60] + "…"
            delimiter = DELIMITERS[layout.delimiter]
            raise TableError(
                f"{table}, line {line} has {_count(len(fields), 'field')}, but the header names "
                f"{_count(wanted, 'column')} (delimiter: {delimiter}). The line reads {shown!r}. "
                f"Correct it; a field that contains a {delimiter} must be quoted."
            )
    if not rows:
        raise TableError(f"{table} has a header ({listed(layout.names)}) but no rows.")


def _newlines(data: bytes) -> int:
    """At least the number of rows."""
    return max(data.count(b"\n"), data.count(b"\r"))


def _refuse_other_delimiters(records: list[list[str]], table: str) -> None:
    """Refuse a single column that is really several, with a delimiter that is not supported."""
    lines = [record[0] for record in records]
    for sign, word in DELIMITERS.items():
        if sign in lines[0]:
            raise TableError(
                f"{table} has only one column, named {lines[0]!r}: every line is quoted as a whole, so its {word}s do "
                "not separate fields. Remove the quotes around the lines."
            )
    for separator, word in ((None, "spaces"), (":", "colons"), ("^", "carets"), ("~", "tildes"), ("\x01", "control-A")):
        fields = {len(line.split(separator)) for line in lines}
        if len(fields) == 1 and fields != {1}:
            raise TableError(
                f"{table} has only one column, named {lines[0]!r}: its fields seem to be separated by {word}. "
                f"Use one of the supported delimiters: {', '.join(DELIMITERS.values())}."
            )


def _refuse_missing_header(frame: pd.DataFrame, table: str) -> None:
    """Refuse a first line of values: most of its 'names' also occur among the values of their columns."""
    names = [str(name) for name in frame.columns[:100]]
    numbers = parse_numbers(names)
    steps = np.diff(numbers[~np.isnan(numbers)])
    # Columns may be named 0, 1, 2, …, or after years or wavelengths: such names rise or fall throughout.
    if len(steps) and ((steps == 1).all() or (len(steps) >= 5 and ((steps > 0).all() or (steps < 0).all()))):
        numbers = np.full_like(numbers, np.nan)
    values = sum(_is_value(frame.iloc[:, place], names[place], number) for place, number in enumerate(numbers))
    if 2 * values > len(names):
        raise TableError(
            f"{table} has no header: its first line reads {listed(names)}, which look like values. "
            "Add a line of column names at the top."
        )


def _is_value(column: pd.Series, name: str, number: float) -> bool:
    """Whether a name could be a value of its column."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return not np.isnan(number) and (not name.isdecimal() or bool((column == number).any()))
    return bool((column.astype("str").str.strip() == name).any())


def _not_utf8(data: bytes, table: str) -> TableError:
    """The error for a file that is not UTF-8, with the place and a guess at the encoding."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        offset = error.start
    line = len(re.findall(rb"\r\n|\r|\n", data[:offset])) + 1
    word = b"".join(re.findall(rb"[^\s,;|\"]*$", data[max(0, offset - 20) : offset])[:1])
    word += b"".join(re.findall(rb"^[^\s,;|\"]*", data[offset : offset + 20]))
    try:
        guess = f"In Windows-1252, the word reads {word.decode('cp1252')!r}."
    except UnicodeDecodeError:
        guess = "It is not valid Windows-1252 either, so the file has another encoding or is damaged."
    return TableError(
        f"{table}, line {line}: the byte 0x{data[offset]:02x} at offset {offset:,} is not UTF-8. {guess} "
        f"Convert the file to UTF-8, for example: iconv -f WINDOWS-1252 -t UTF-8 {table} > utf8.csv"
    )


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" + "s" * (number != 1)
