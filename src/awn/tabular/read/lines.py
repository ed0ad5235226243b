"""Lines of a text table: where each row begins in the file, so that errors can say it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

Places = npt.NDArray[np.intp]
#: The name of an index whose labels are lines of a file.
LINE = "line"
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
_LONGEST_BLANK = 3  # characters


def line_index(data: bytes, rows: int) -> pd.Index:
    r"""The line of the file at which each row begins, or the rows' numbers if the lines cannot be told.

    >>> line_index(b"a,b\n1,2\n3,4\n", rows=2)
    RangeIndex(start=2, stop=4, step=1, name='line')
    >>> line_index(b'a,b\n"two\nlines",2\n\n3,4', rows=2).tolist()
    [2, 5]
    """
    letters = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(letters == (_NEWLINE if b"\n" in data else _RETURN))
    if b'"' in data:
        quotes = np.cumsum(letters == _QUOTE, dtype=np.uint8)  # wraps around, which keeps it odd or even
        inside = quotes[ends] % 2 == 1
    else:
        inside = np.zeros(len(ends), dtype=bool)
    starts = np.concatenate([[0], ends[~inside] + 1])
    stops = np.concatenate([ends[~inside], [len(letters)]])
    lines = np.concatenate([[1], np.flatnonzero(~inside) + 2])
    lines = lines[~_are_blank(data, starts, stops)][1:]  # without the header
    if len(lines) != rows:
        return pd.RangeIndex(rows)
    if rows and lines[0] == 2 and lines[-1] == rows + 1:
        return pd.RangeIndex(2, rows + 2, name=LINE)
    return pd.Index(lines, name=LINE)


def _are_blank(data: bytes, starts: Places, stops: Places) -> npt.NDArray[np.bool_]:
    """Which records are blank: readers skip them. Longer ones are not looked at, since they would take long."""
    short = np.flatnonzero(stops - starts <= _LONGEST_BLANK)
    blank = np.zeros(len(starts), dtype=bool)
    places = zip(starts[short].tolist(), stops[short].tolist(), strict=True)
    blank[short] = [not data[start:stop].strip() for start, stop in places]
    return blank
