"""Compressed files: unpacked as a stream, which stops at the limit."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa

from awn.basics.limits import limits, raise_it
from awn.basics.names import listed
from awn.errors import TableError

_PIECE = 1 << 22  # bytes
# Below this size, a file may be compressed to any fraction.
_SMALL = 2**28  # bytes


def unpack(data: bytes, packed: str, path: Path) -> bytes:
    """The content of a file that is compressed as its extension `packed` says; "" is a file that is not.

    >>> unpack(gzip.compress(b"a,b"), ".gz", Path("table.csv.gz"))
    b'a,b'
    """
    open_stream = PACKED[packed]
    if open_stream is None:
        return data
    content = io.BytesIO()  # hands its content over without a copy
    try:
        with open_stream(data) as stream:
            while piece := stream.read(_PIECE):
                _check_growth(content.tell() + len(piece), len(data), path)
                content.write(piece)
    except TableError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, lzma.LZMAError, zipfile.BadZipFile, zlib.error) as error:
        raise TableError(
            f"{path} cannot be decompressed: it is truncated or damaged, or not a {packed} file ({error}). "
            "Download it again, or decompress it yourself."
        ) from None
    return content.getvalue()


def _check_growth(size: int, packed: int, path: Path) -> None:
    """Refuse a file that has reached a size when it is too large, or too large for what it was compressed to."""
    bounds = limits()
    if size > bounds.table_bytes:
        raise TableError(
            f"{path} has more than {bounds.table_bytes:,} bytes when it is decompressed. {raise_it('table_bytes')}"
        )
    if size > max(_SMALL, bounds.table_ratio * packed):
        raise TableError(
            f"{path} has {packed:,} bytes, and more than {size:,} when it is decompressed: over {bounds.table_ratio} "
            f"times as many. {raise_it('table_ratio')}"
        )


def _unzip(data: bytes) -> AbstractContextManager[Any]:
    archive = zipfile.ZipFile(io.BytesIO(data))
    files = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
    if len(files) != 1:
        raise ValueError(f"it must contain one table, but contains {listed(files) or 'none'}")
    return archive.open(files[0])


#: How to open a compressed file as a stream, by its extension; None if there is nothing to unpack.
PACKED: dict[str, Callable[[bytes], AbstractContextManager[Any]] | None] = {
    "": None,
    ".gz": lambda data: gzip.open(io.BytesIO(data)),  # noqa: SIM115
    ".bz2": lambda data: bz2.open(io.BytesIO(data)),  # noqa: SIM115
    ".xz": lambda data: lzma.open(io.BytesIO(data)),  # noqa: SIM115
    ".zst": lambda data: pa.CompressedInputStream(pa.BufferReader(data), "zstd"),
    ".zip": _unzip,
    ".brotli": None,  # only the internal compression of a Parquet file
}
