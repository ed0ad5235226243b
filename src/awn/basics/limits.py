"""Limits on the files that awn reads, checked before anything of that size is allocated."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass

from awn.errors import ArgumentError


@dataclass(frozen=True)
class Limits:
    """The largest file of each kind that awn reads.

    - `json_bytes`: the size of a JSON file, or of the description in a tensor file.
    - `nesting`: the depth of lists and objects in JSON.
    - `tensors`: the number of tensors in a file.
    - `layers`: the number of learned widths of a model.
    - `units`: the number of units of a layer; single precision counts no further.
    - `table_bytes`: the size of a table's file after decompression.
    - `table_ratio`: the size of a table after decompression over that of its file, if it has more than 2²⁸ bytes.
    - `table_cells`: the rows of a table times its columns.
    - `table_columns`: the columns of a table.
    """

    json_bytes: int = 2**28
    nesting: int = 128
    tensors: int = 100_000
    layers: int = 10_000
    units: int = 2**24
    table_bytes: int = 2**32
    table_ratio: int = 200
    table_cells: int = 500_000_000
    table_columns: int = 1_000_000


def limits() -> Limits:
    """The limits in force: the defaults, or the values of environment variables such as AWN_MAX_TABLE_BYTES.

    >>> limits().nesting
    128
    """
    given = {own.name: os.environ.get(variable(own.name)) for own in dataclasses.fields(Limits)}
    return Limits(**{name: _number(name, value) for name, value in given.items() if value is not None})


def variable(name: str) -> str:
    """The environment variable that replaces a limit.

    >>> variable("table_bytes")
    'AWN_MAX_TABLE_BYTES'
    """
    return f"AWN_MAX_{name.upper()}"


def raise_it(name: str) -> str:
    """The advice at the end of an error about a limit.

    >>> raise_it("tensors")
    'If you trust the file, raise the limit: AWN_MAX_TENSORS=…'
    """
    return f"If you trust the file, raise the limit: {variable(name)}=…"


def _number(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ArgumentError(f"{variable(name)} must be a whole number of at least 1, got {value!r}.")
    return int(value)
