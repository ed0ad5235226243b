"""The two parsers of text tables: Arrow for well-formed files, pandas for everything else. Both give the same table."""

from __future__ import annotations

import io
import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

# The words that pandas reads as missing values.
_MISSING = ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"]
_MISSING += ["NA", "NULL", "NaN", "None", "n/a", "nan", "null"]
# Arrow needs time and memory for every column of every block, so pandas is faster beyond this number.
_MOST_COLUMNS = 5_000
_BLOCK = 1 << 23  # bytes
# All that pandas may read as a number or a boolean, and more: such a column is left to pandas.
_NUMBER_OR_BOOLEAN = r"^[\s\v]*([+-]?[\d.,]*([eE][+-]?\d*)?|(?i:[+-]?inf(inity)?|[+-]?nan|true|false))[\s\v]*$"
_VALUES_SEEN = 100  # one of them that is neither a number nor a boolean makes a column text


@dataclass(frozen=True)
class Layout:
    """The delimiter, decimal sign and column names of a text table."""

    delimiter: str
    decimal: str
    names: tuple[str, ...]


def parse_by_pandas(
    data: bytes, layout: Layout, as_text: Collection[str] = (), only: Collection[str] | None = None
) -> pd.DataFrame:
    r"""The table, or some of its columns. pandas does not notice rows that are too short.

    >>> parse_by_pandas(b"a,b\n1,2\n3\n", Layout(",", ".", ("a", "b"))).to_dict("list")
    {'a': [1, 3], 'b': [2.0, nan]}
    """
    texts = {name: "str" for name in as_text if name in layout.names and (only is None or name in only)}
    frame: pd.DataFrame = pd.read_csv(
        io.BytesIO(data),
        sep=layout.delimiter,
        decimal=layout.decimal,
        encoding="utf-8-sig",
        header=0,
        names=list(layout.names),
        usecols=None if only is None else list(only),
        index_col=False,
        skipinitialspace=True,
        dtype=texts or None,  # with an empty dict, pandas is twice as slow for many columns
        low_memory=False,  # otherwise pandas infers the type of a column in every chunk
    )
    return frame.copy()  # in few blocks: pandas gives every column its own, which slows down all that follows


def parse_by_arrow(data: bytes, layout: Layout, as_text: Collection[str] = ()) -> pd.DataFrame | None:
    r"""The table as `parse_by_pandas` reads it, or None if Arrow cannot read it, or reads it differently.

    Every row has a field for each column: Arrow refuses other rows. Columns that Arrow and pandas may read differently,
    such as dates and booleans, are read by pandas.

    >>> layout = Layout(",", ".", ("a", "b"))
    >>> parse_by_arrow(b"a,b\n1,x\n3,y\n", layout).to_dict("list")
    {'a': [1, 3], 'b': ['x', 'y']}
    >>> parse_by_arrow(b"a,b\n1,2\n3\n", layout)
    """
    if not 1 < len(layout.names) <= _MOST_COLUMNS:  # in a single column, blank lines are ambiguous
        return None
    table = _arrow_table(data, layout)
    if table is None or table.num_columns != len(layout.names) or not table.num_rows:
        return None
    table = table.rename_columns(list(layout.names))
    rows = table.num_rows
    agrees = {name: _reads_as_pandas(table[name], name in as_text) for name in layout.names}
    other = [name for name in layout.names if not agrees[name]]
    table = table.drop_columns(other)
    for place, field in enumerate(table.schema):
        if pa.types.is_null(field.type):  # pandas holds a column without values as floats
            table = table.set_column(place, field.name, table.column(place).cast(pa.float64()))
    frame: pd.DataFrame = table.to_pandas()
    if not other:
        return frame
    rest = parse_by_pandas(data, layout, as_text, other)
    if len(rest) != rows:
        return None
    return pd.concat([frame, rest], axis=1)[list(layout.names)] if table.num_columns else rest


def _arrow_table(data: bytes, layout: Layout) -> pa.Table | None:
    sign = layout.delimiter.encode()
    quoted = b'"' in data
    if b' "' in data and re.search(rb"[\r\n" + re.escape(sign) + rb'] +"', data):
        return None  # Arrow does not skip spaces before a quote
    # Arrow accepts a quote that is still open at the end of the file. It would swallow this row of empty fields.
    end = b"\n" + sign * (len(layout.names) - 1) + b"\n" if quoted else b""
    try:
        table = csv.read_csv(
            pa.BufferReader(data + end),
            read_options=csv.ReadOptions(block_size=_BLOCK),
            parse_options=csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=quoted),
            convert_options=csv.ConvertOptions(
                null_values=_MISSING,
                strings_can_be_null=True,
                true_values=[],
                false_values=[],
                decimal_point=layout.decimal,
            ),
        )
    except pa.ArrowInvalid:
        return None
    if not end:
        return table
    kept = max(table.num_rows - 1, 0)
    closed = all(column.null_count for column in table.slice(kept).columns)
    return table.slice(0, kept) if closed else None


def _reads_as_pandas(column: pa.ChunkedArray, as_text: bool) -> bool:
    """Whether the values of a column certainly are those that pandas reads."""
    if pa.types.is_string(column.type):
        if pc.any(pc.match_substring_regex(column, r"^\s")).as_py():  # pandas skips spaces after a delimiter
            return False
        seen = pc.match_substring_regex(column.drop_null().slice(0, _VALUES_SEEN), _NUMBER_OR_BOOLEAN)
        return as_text or not pc.all(seen).as_py()
    if as_text:
        return False
    if pa.types.is_floating(column.type):
        values = column.drop_null().to_numpy()
        # pandas reads 'NAN' as text, +1 as an integer, and large integers as such.
        return bool((np.abs(values) < 2.0**63).all() and (values % 1 != 0).any())
    return bool(pa.types.is_integer(column.type) or pa.types.is_null(column.type))
