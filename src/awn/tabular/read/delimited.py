"""Text tables: fields between commas, semicolons, tabs or bars, one line of names, then one line a row."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from statistics import mode

import numpy as np
import pandas as pd

from awn.basics.names import listed
from awn.errors import TableError
from awn.tabular.read.names import check_names
from awn.tabular.read.values import parse_numbers

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_SAMPLE = 50  # records that are looked at to find the delimiter
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+")


@dataclass(frozen=True)
class Layout:
    """How a text table is written."""

    delimiter: str
    decimal: str
    names: tuple[str, ...]


def read_delimited(data: bytes, table: str, *, tabs: bool = False, as_text: Collection[str] = ()) -> pd.DataFrame:
    r"""The table in the content of a text file, which errors call `table`.

    `tabs` says that the file is named as one with tabs; the columns `as_text` are not turned into numbers.

    >>> read_delimited(b"size;price\n1;2,50\n3;4,25\n", "sales.csv").to_dict("list")
    {'size': [1, 3], 'price': [2.5, 4.25]}
    """
    try:
        layout = find_layout(data, table, tabs)
        check_names(layout.names, table)
        _check_records(data, table, layout)
        frame = pd.read_csv(
            io.BytesIO(data),
            sep=layout.delimiter,
            decimal=layout.decimal,
            encoding="utf-8-sig",
            header=0,
            names=list(layout.names),
            index_col=False,
            skipinitialspace=True,
            dtype={name: "str" for name in as_text if name in layout.names},
            low_memory=False,  # else a column's type is guessed anew in every chunk
        )
    except UnicodeDecodeError:
        raise _not_utf8(data, table) from None
    except (csv.Error, pd.errors.ParserError) as error:
        raise TableError(
            f"{table} cannot be read: {error}. Look for a quote that is opened and not closed: "
            'a quote inside a quoted field is written twice ("").'
        ) from None
    _refuse_missing_header(frame, table)
    return frame


def find_layout(data: bytes, table: str, tabs: bool = False) -> Layout:
    r"""The delimiter, decimal sign and names, from the first records.

    Every delimiter is tried with the rules of quoting, and the one is taken that cuts most records into one
    and the same number of fields, more than one.

    >>> find_layout(b'name;"a, b";c\n1;2;3\n', "sales.csv")
    Layout(delimiter=';', decimal='.', names=('name', 'a, b', 'c'))
    """
    samples = {sign: sample for sign in DELIMITERS if (sample := _sample(data, sign))}
    if not samples and next(_records(data, ","), None) is None:
        raise TableError(f"{table} is empty: it has no line of column names and no rows.")
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
    """The first records, up to one with a field longer than `csv` allows, as a line is with a wrong delimiter."""
    sample = []
    with contextlib.suppress(csv.Error):
        for _, fields in itertools.islice(_records(data, delimiter), _SAMPLE):
            sample.append(fields)  # one by one: what was read before an error is kept
    return sample


def _evenness(records: list[list[str]]) -> tuple[float, bool, int]:
    """How well a delimiter cuts: the share of records of the usual length, whether the first has it, and the length."""
    lengths = [len(fields) for fields in records]
    usual = mode(lengths)
    return (lengths.count(usual) / len(lengths), lengths[0] == usual, usual) if usual > 1 else (0.0, False, 1)


def _records(data: bytes, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The fields of each record that is not blank, and the line on which it starts."""
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
    """Refuse a table without rows, and a row that is longer or shorter than the line of names.

    pandas fills short rows with missing values and shifts long ones, both without a word.
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
                f"{table}, line {line} has {_count(len(fields), 'field')}, but the first line names "
                f"{_count(wanted, 'column')} (the delimiter is a {delimiter}). The line reads {shown!r}. "
                f"Correct it; a field that holds a {delimiter} must stand in quotes."
            )
    if not rows:
        raise TableError(f"{table} has a line of column names ({listed(layout.names)}), but no rows.")


def _refuse_other_delimiters(records: list[list[str]], table: str) -> None:
    """Refuse a single column that is really several, with a delimiter that is not read."""
    lines = [record[0] for record in records]
    for sign, word in DELIMITERS.items():
        if sign in lines[0]:
            raise TableError(
                f"{table} has one column only, named {lines[0]!r}: its lines stand in quotes as a whole, so that the "
                f"{word}s count as text. Write it again without quotes around whole lines."
            )
    for separator, word in ((None, "spaces"), (":", "colons"), ("^", "carets"), ("~", "tildes"), ("\x01", "control-A")):
        fields = {len(line.split(separator)) for line in lines}
        if len(fields) == 1 and fields != {1}:
            raise TableError(
                f"{table} has one column only, named {lines[0]!r}: its fields seem to stand between {word}. "
                f"Write it with another delimiter: {', '.join(DELIMITERS.values())} are read."
            )


def _refuse_missing_header(frame: pd.DataFrame, table: str) -> None:
    """Refuse a first line that holds values: most of its 'names' are found again among the values of their columns."""
    names = [str(name) for name in frame.columns[:100]]
    numbers = parse_numbers(names)
    steps = np.diff(numbers[~np.isnan(numbers)])
    # Columns may be named 0, 1, 2, …, or by years or wavelengths: such names rise or fall throughout.
    if len(steps) and ((steps == 1).all() or (len(steps) >= 5 and ((steps > 0).all() or (steps < 0).all()))):
        numbers = np.full_like(numbers, np.nan)
    values = sum(_is_value(frame.iloc[:, place], names[place], number) for place, number in enumerate(numbers))
    if 2 * values > len(names):
        raise TableError(
            f"{table} has no line of column names: its first line reads {listed(names)}, which look like values. "
            "Put a line of names at the top."
        )


def _is_value(column: pd.Series, name: str, number: float) -> bool:
    """Whether a name could be a value of its column."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return not np.isnan(number) and (not name.isdecimal() or bool((column == number).any()))
    return bool((column.astype("str").str.strip() == name).any())


def _not_utf8(data: bytes, table: str) -> TableError:
    """Where the text stops being UTF-8, and what it might be."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        offset = error.start
    line = len(re.findall(rb"\r\n|\r|\n", data[:offset])) + 1
    word = b"".join(re.findall(rb"[^\s,;|\"]*$", data[max(0, offset - 20) : offset])[:1])
    word += b"".join(re.findall(rb"^[^\s,;|\"]*", data[offset : offset + 20]))
    try:
        guess = f"In Windows-1252, which older programs write, the word reads {word.decode('cp1252')!r}."
    except UnicodeDecodeError:
        guess = "It is no Windows-1252 either: the table has some other encoding, or is damaged."
    return TableError(
        f"{table}, line {line}: the byte 0x{data[offset]:02x} at offset {offset:,} is not UTF-8. {guess} "
        f"Save the table as UTF-8, for example: iconv -f WINDOWS-1252 -t UTF-8 {table} > utf8.csv"
    )


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" + "s" * (number != 1)
