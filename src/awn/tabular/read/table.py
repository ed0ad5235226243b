"""Tables from files: CSV, TSV and Parquet, compressed or not. A file that cannot be used is refused with the reason."""

from __future__ import annotations

import bz2
import difflib
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from awn.basics.names import listed
from awn.errors import TableError
from awn.tabular.read.delimited import read_delimited
from awn.tabular.read.names import check_names

_TEXT = {".csv": False, ".txt": False, ".tsv": True, ".tab": True}  # whether the name says that there are tabs
_PARQUET = (".parquet", ".pq")
_READ = "CSV, TSV and Parquet are read (.csv, .tsv, .parquet), also with .gz, .bz2, .xz, .zst or .zip behind"
_ADVICE = {
    ".data": "Such a file usually has no line of column names: put one at the top, and name the file .csv.",
    ".xlsx": "Save the sheet as CSV (UTF-8).",
    ".xls": "Save the sheet as CSV (UTF-8).",
    ".json": "Write it as CSV or Parquet, for example with pandas.",
    ".feather": "Write it as Parquet, for example with pandas.",
    ".arrow": "Write it as Parquet, for example with pandas.",
}
# What a file of another kind starts with.
_STARTS = {
    b"PAR1": "a Parquet file: name it .parquet",
    b"\x1f\x8b": "a gzip file: name it .csv.gz",
    b"BZh": "a bzip2 file: name it .csv.bz2",
    b"\xfd7zXZ": "an xz file: name it .csv.xz",
    b"\x28\xb5\x2f\xfd": "a zstandard file: name it .csv.zst",
    b"PK\x03\x04": "a zip file or an Excel sheet: name the one .csv.zip, save the other as CSV",
    b"\xff\xfe": "text in UTF-16: save it as UTF-8, for example: iconv -f UTF-16 -t UTF-8 old.csv > new.csv",
    b"\xfe\xff": "text in UTF-16: save it as UTF-8, for example: iconv -f UTF-16 -t UTF-8 old.csv > new.csv",
}
_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r"))


def read_table(path: str | Path, *, as_text: Collection[str] = ()) -> pd.DataFrame:
    r"""The table in a CSV, TSV or Parquet file; the delimiter is found.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sales.csv"
    >>> _ = path.write_text('shop,"size, m²"\nnorth,120\nsouth,\n', encoding="utf-8")
    >>> read_table(path)
        shop  size, m²
    0  north     120.0
    1  south       NaN

    The columns in `as_text` that a text file has are left as they are written: a code such as 007 is then no number.
    """
    path = Path(path)
    _check_file(path)
    ending, packed = _endings(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror}.") from None
    if not data:
        raise TableError(f"{path} is empty: it has no bytes at all.")
    if ending in _PARQUET:
        # A Parquet file is packed inside; names like .parquet.gz are also given to those that are not packed again.
        return _read_parquet(data if data.startswith(b"PAR1") else _unpack(data, packed, path), str(path))
    data = _unpack(data, packed, path)
    _refuse_binary(data, path)
    return read_delimited(data, str(path), tabs=_TEXT[ending], as_text=as_text)


def _endings(path: Path) -> tuple[str, str]:
    """The ending that tells the kind of table, and the one of the packing, if any."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes.pop() if suffixes and suffixes[-1] in _UNPACK else ""
    ending = suffixes[-1] if suffixes else ""
    if ending not in _TEXT and ending not in _PARQUET:
        named = f"has the ending {ending!r}" if ending else "has no ending that tells what kind of table it is"
        raise TableError(f"{path} {named}: {_READ}. {_ADVICE.get(ending, 'Rename or convert it.')}")
    return ending, packed


def _check_file(path: Path) -> None:
    if path.is_dir():
        tables = sorted(child.name for child in path.iterdir() if {*child.suffixes} & {*_TEXT, *_PARQUET})
        inside = f" The tables in it: {listed(tables)}." if tables else ""
        raise TableError(f"{path} is a folder, not a table. Pass a file.{inside}")
    if not path.exists():
        others = [child.name for child in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, others, n=3)
        meant = f" In the same folder: {listed(close)}." if close else ""
        raise TableError(f"There is no file {path}.{meant}")


def _unpack(data: bytes, packed: str, path: Path) -> bytes:
    try:
        return _UNPACK[packed](data)
    except (OSError, EOFError, ValueError, RuntimeError, lzma.LZMAError, zipfile.BadZipFile, zlib.error) as error:
        raise TableError(
            f"{path} cannot be unpacked: it is cut off or damaged, or no plain {packed} file ({error}). "
            "Fetch it again, or unpack it yourself."
        ) from None


def _refuse_binary(data: bytes, path: Path) -> None:
    for start, kind in _STARTS.items():
        if data.startswith(start):
            raise TableError(f"{path} is no plain text, but {kind}.")
    head = data[:4096]
    if b"\0" in data or len(head) - len(head.translate(None, _CONTROL)) > len(head) // 100:
        raise TableError(f"{path} is no table: it holds bytes that no text has. {_READ}.")


def _read_parquet(data: bytes, table: str) -> pd.DataFrame:
    try:
        content = pq.ParquetFile(pa.BufferReader(data)).read()
        check_names(content.column_names, table)
        for place, field in enumerate(content.schema):
            if pa.types.is_decimal(field.type):  # else they become Python objects
                content = content.set_column(place, field.name, content.column(place).cast(pa.float64()))
        frame = content.to_pandas(date_as_object=False)
    except (pa.ArrowException, OSError) as error:
        first = str(error).splitlines()[0]
        raise TableError(f"{table} is damaged or no Parquet file: {first} Fetch or write it again.") from None
    # An index with a name is a column of the file; one without only numbers the rows.
    named = [name for name in frame.index.names if name is not None]
    frame = frame.reset_index(named).reset_index(drop=True)
    if frame.empty:
        raise TableError(f"{table} has columns ({listed(map(str, frame.columns))}), but no rows.")
    return frame


def _unzip(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
        if len(files) != 1:
            raise ValueError(f"it must hold one table, and holds {listed(files) or 'none'}")
        return archive.read(files[0])


def _unzstd(data: bytes) -> bytes:
    return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())


_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zst": _unzstd,
    ".zip": _unzip,
    ".brotli": lambda data: data,  # only ever the packing inside a Parquet file
}
