"""The size of a table, checked before it is read."""

from __future__ import annotations

from awn.basics.limits import limits, raise_it
from awn.errors import TableError


def check_size(rows: int, columns: int, table: str) -> None:
    """Refuse a table with too many columns or cells.

    >>> check_size(10, 10**9, "wide.parquet")
    Traceback (most recent call last):
    awn.errors.TableError: wide.parquet has 1,000,000,000 columns, more than 1,000,000. If you trust the file, ...
    """
    for name, number, most in (
        ("columns", columns, limits().table_columns),
        ("cells", rows * columns, limits().table_cells),
    ):
        if number > most:
            raise TableError(f"{table} has {number:,} {name}, more than {most:,}. {raise_it(f'table_{name}')}")
