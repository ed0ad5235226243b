"""Tables in memory: Polars frames and Arrow tables as DataFrames of pandas."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import pandas as pd
import pyarrow as pa


@runtime_checkable
class ArrowStream(Protocol):
    """What Arrow tables, Polars frames and others have in common."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table as a stream of Arrow's."""


def as_frame(table: Any) -> Any:
    """A Polars frame, an Arrow table or the like as a DataFrame with the same names; anything else as it is.

    >>> as_frame(pa.table({"age": [31, None], "job": ["cook", "smith"]}))
        age    job
    0  31.0   cook
    1   NaN  smith
    """
    if isinstance(table, pd.DataFrame) or not isinstance(table, ArrowStream):
        return table
    return from_arrow(pa.table(table))


def from_arrow(table: pa.Table) -> pd.DataFrame:
    """An Arrow table as a DataFrame: decimals as floats, dates as timestamps, and enumerations as categories."""
    for place, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):  # otherwise pandas holds them as Python objects
            table = table.set_column(place, field.name, table.column(place).cast(pa.float64()))
    frame: pd.DataFrame = table.to_pandas(date_as_object=False)
    return frame
