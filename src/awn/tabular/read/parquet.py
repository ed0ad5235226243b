"""Parquet files."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from awn.basics.limits import limits, raise_it
from awn.basics.names import listed
from awn.errors import TableError
from awn.tabular.read.frames import from_arrow
from awn.tabular.read.names import check_names
from awn.tabular.read.size import check_size


def read_parquet(data: bytes, table: str) -> pd.DataFrame:
    """Parse the content of a Parquet file; `table` names it in errors."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        check_size(file.metadata.num_rows, file.metadata.num_columns, table)
        _check_bytes(file.metadata, table)
        content = file.read()
        check_names(content.column_names, table)
        frame = from_arrow(content)
        # A named index is a column of the file; an unnamed one only numbers the rows.
        named = [name for name in frame.index.names if name is not None]
        frame = frame.reset_index(named).reset_index(drop=True)
    except TableError:
        raise
    except Exception as error:  # pyarrow and pandas raise errors of many types for damaged metadata
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise TableError(f"{table} is damaged or not a Parquet file: {first} Download or write it again.") from None
    if frame.empty:
        raise TableError(f"{table} has columns ({listed(map(str, frame.columns))}) but no rows.")
    return frame


def _check_bytes(metadata: pq.FileMetaData, table: str) -> None:
    """Refuse a file whose columns would be too large when they are decompressed."""
    size = sum(metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups))
    most = limits().table_bytes
    if size > most:
        raise TableError(f"{table} has {size:,} bytes when decompressed, more than {most:,}. {raise_it('table_bytes')}")
