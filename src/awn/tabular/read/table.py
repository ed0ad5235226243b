"""`read_table`: a table from a CSV, TSV or Parquet file, compressed or not."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from pathlib import Path

import pandas as pd
import pyarrow as pa

from awn.basics.limits import limits, raise_it
from awn.basics.names import listed
from awn.errors import TableError
from awn.tabular.read.delimited import read_delimited
from awn.tabular.read.lines import line_index
from awn.tabular.read.parquet import read_parquet
from awn.tabular.read.unpack import PACKED, unpack

_TEXT = {".csv": False, ".txt": False, ".tsv": True, ".tab": True}  # whether the extension means tabs
_PARQUET = (".parquet", ".pq")
_SUPPORTED = "Supported are CSV, TSV and Parquet (.csv, .tsv, .parquet), also compressed (.gz, .bz2, .xz, .zst, .zip)."
_ADVICE = {
    ".data": "Such a file usually has no header: add one, and rename the file to .csv.",
    ".xlsx": "Save the sheet as CSV (UTF-8).",
    ".xls": "Save the sheet as CSV (UTF-8).",
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "Convert it to CSV or Parquet, for example with pandas."),
    ".feather": "Convert it to Parquet, for example with pandas.",
    ".arrow": "Convert it to Parquet, for example with pandas.",
}
# The first bytes of files that are not plain text.
_STARTS = {
    b"PAR1": "a Parquet file: rename it to .parquet",
    b"\x1f\x8b": "a gzip file: rename it to .csv.gz",
    b"BZh": "a bzip2 file: rename it to .csv.bz2",
    b"\xfd7zXZ": "an xz file: rename it to .csv.xz",
    b"\x28\xb5\x2f\xfd": "a zstandard file: rename it to .csv.zst",
    b"PK\x03\x04": "a zip file (rename it to .csv.zip) or an Excel sheet (save it as CSV)",
    b"\xff\xfe": "text in UTF-16: convert it to UTF-8, for example: iconv -f UTF-16 -t UTF-8 old.csv > new.csv",
    b"\xfe\xff": "text in UTF-16: convert it to UTF-8, for example: iconv -f UTF-16 -t UTF-8 old.csv > new.csv",
}
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r"))


def read_table(path: str | Path, *, as_text: Collection[str] = (), by_line: bool = False) -> pd.DataFrame:
    r"""Read a CSV, TSV or Parquet file, compressed or not; the delimiter is detected.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sales.csv"
    >>> _ = path.write_text('shop,"size, m²"\nnorth,120\nsouth,\n', encoding="utf-8")
    >>> read_table(path)
        shop  size, m²
    0  north     120.0
    1  south       NaN

    With `by_line`, the index has the line of every row of a text file, for errors. Columns of a text file that are
    listed in `as_text` are read as strings, so that a code such as 007 stays one.
    """
    path = Path(path)
    _check_file(path)
    frame = _read(path, as_text, by_line)
    pa.default_memory_pool().release_unused()  # Arrow would keep more than the size of the table for later use
    return frame


def _read(path: Path, as_text: Collection[str], by_line: bool) -> pd.DataFrame:
    ending, packed = _endings(path)
    try:
        size, most = path.stat().st_size, limits().table_bytes
        if size > most:
            raise TableError(f"{path} has {size:,} bytes, more than {most:,}. {raise_it('table_bytes')}")
        data = path.read_bytes()
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror}.") from None
    if not data:
        raise TableError(f"{path} is empty: it has no content.")
    if ending in _PARQUET:
        # Parquet compresses internally, so a file named .parquet.gz may be an ordinary Parquet file.
        return read_parquet(data if data.startswith(b"PAR1") else unpack(data, packed, path), str(path))
    data = unpack(data, packed, path)
    _refuse_binary(data, path)
    frame = read_delimited(data, str(path), tabs=_TEXT[ending], as_text=as_text)
    return frame.set_axis(line_index(data, len(frame)), axis=0) if by_line else frame


def _endings(path: Path) -> tuple[str, str]:
    """The extension of the table format, and that of the compression, if any."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes.pop() if suffixes and suffixes[-1] in PACKED else ""
    ending = suffixes[-1] if suffixes else ""
    if ending not in _TEXT and ending not in _PARQUET:
        named = f"the unsupported file extension {ending!r}" if ending else "no file extension"
        raise TableError(f"{path} has {named}. {_SUPPORTED} {_ADVICE.get(ending, 'Rename or convert the file.')}")
    return ending, packed


def _check_file(path: Path) -> None:
    if path.is_dir():
        tables = sorted(child.name for child in path.iterdir() if {*child.suffixes} & {*_TEXT, *_PARQUET})
        inside = f" Tables in this folder: {listed(tables)}." if tables else ""
        raise TableError(f"{path} is a folder. Pass a file.{inside}")
    if not path.exists():
        others = [child.name for child in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, others, n=3)
        meant = f" Similar names in the folder: {listed(close)}." if close else ""
        raise TableError(f"There is no file {path}.{meant}")


def _refuse_binary(data: bytes, path: Path) -> None:
    for start, kind in _STARTS.items():
        if data.startswith(start):
            raise TableError(f"{path} is not plain text, but {kind}.")
    head = data[:4096]
    if b"\0" in data or len(head) - len(head.translate(None, _CONTROL)) > len(head) // 100:
        raise TableError(f"{path} is not a table: it contains binary data. {_SUPPORTED}")
