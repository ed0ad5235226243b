"""Blocks: a wide or long table in slices of columns or rows, each computed at once, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

_VALUES = 1 << 22  # of a block, 32 MB in double precision


def column_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the columns of a table, each with at most a few million values, or a single column.

    >>> list(column_blocks(2_000_000, 3)), list(column_blocks(100, 50_000))
    ([slice(0, 2, None), slice(2, 3, None)], [slice(0, 41943, None), slice(41943, 50000, None)])
    """
    size = max(1, _VALUES // max(1, rows))
    for start in range(0, columns, size):
        yield slice(start, min(start + size, columns))


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the rows of a table, each with at most a few million values, or a single row.

    >>> list(row_blocks(100_000, 100))
    [slice(0, 41943, None), slice(41943, 83886, None), slice(83886, 100000, None)]
    """
    return column_blocks(columns, rows)


def numpy_numbers(frame: pd.DataFrame, places: Sequence[int]) -> list[int]:
    """Those of some columns, given by position, that the table holds as NumPy's numbers, which form a matrix at once.

    >>> numpy_numbers(pd.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [0.5, None]}), [0, 1, 2])
    [0, 2]
    """
    numeric = {kind for kind in set(frame.dtypes) if isinstance(kind, np.dtype) and kind.kind in "iuf"}
    kinds = frame.dtypes.tolist()
    return [place for place in places if kinds[place] in numeric]
