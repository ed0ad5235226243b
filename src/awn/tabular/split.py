"""The split of a table: which rows are for training, validation and the test. It is kept with the model."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from awn.errors import CheckpointError
from awn.files.write import write_files

TRAIN, VALIDATION, TEST, UNUSED = PARTS = ("train", "validation", "test", "unused")
_FILE = "split.csv"


def row_parts(rows: pd.Index, **labels: pd.Index) -> NDArray[Any]:
    """The part of every row of a table, given the labels of the rows in each part; rows in none are unused.

    >>> row_parts(pd.RangeIndex(4), train=pd.Index([0, 3]), test=pd.Index([1])).tolist()
    ['train', 'test', 'unused', 'train']
    """
    parts = np.full(len(rows), UNUSED, dtype=object)
    for part, own in labels.items():
        parts[rows.get_indexer(own)] = part
    return parts


def table_hash(table: Path) -> str:
    """The SHA-256 of a table's file, to recognise the table that a model was trained on."""
    return hashlib.sha256(table.read_bytes()).hexdigest()


def write_split(model: Path, parts: NDArray[Any]) -> None:
    r"""Write the part of every row to a model folder, as a CSV file with one line for each row of the table.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_split(folder, np.array(["train", "test"]))
    >>> (folder / "split.csv").read_text()
    'part\ntrain\ntest\n'
    """
    write_files({model / _FILE: "\n".join(["part", *parts.tolist(), ""]).encode()})


def read_split(model: Path, about: dict[str, Any], table: Path, rows: int) -> NDArray[Any] | None:
    """The part of every row, if the table is the one that the model was trained on; otherwise None."""
    path = model / _FILE
    if not path.is_file() or about.get("table_sha256") != table_hash(table):
        return None
    head, *parts = path.read_text(encoding="utf-8", errors="replace").splitlines()[: rows + 2] or [""]
    if head != "part" or len(parts) != rows or not set(parts) <= set(PARTS):
        raise CheckpointError(
            f"{path} does not have a part for each of the {rows:,} rows of {table}: it was edited or damaged. "
            "Restore it from a copy, or remove it to use all rows."
        )
    return np.array(parts, dtype=object)
