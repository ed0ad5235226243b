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


def unpack(data: bytes, packed: str, path: Path) -> bytes:
    """The content of a file that is compressed as its extension `packed` says; "" is a file that is not.

    >>> unpack(gzip.compress(b"a,b"), ".gz", Path("table.csv.gz"))
    b'a,b'
    """
    open_stream = PACKED[packed]
    if open_stream is None:
        return data
    most, content = limits().table_bytes, bytearray()
    try:
        with open_stream(data) as stream:
            while piece := stream.read(_PIECE):
                content += piece
                if len(content) > most:
                    raise TableError(
                        f"{path} has more than {most:,} bytes when it is decompressed. {raise_it('table_bytes')}"
                    )
    except TableError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, lzma.LZMAError, zipfile.BadZipFile, zlib.error) as error:
        raise TableError(
            f"{path} cannot be decompressed: it is truncated or damaged, or not a {packed} file ({error}). "
            "Download it again, or decompress it yourself."
        ) from None
    return bytes(content)


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
