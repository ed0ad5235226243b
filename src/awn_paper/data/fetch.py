"""Fetching: a file from its home on the web, out of the archive that it may be in."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import tarfile
import zipfile
from http.client import HTTPException
from urllib.request import urlopen

from awn.errors import DataError

_PATIENCE = 60  # seconds without a byte


def fetch(url: str, member: str = "", md5: str | None = None) -> bytes:
    """The unpacked content at an address, or of one file in the archive there; `md5` is that of what is sent."""
    sent = _download(url)
    found = hashlib.md5(sent, usedforsecurity=False).hexdigest()
    if md5 is not None and found != md5:
        raise DataError(f"{url} is not the file that is meant: it has the MD5 {found}, not {md5}.")
    try:
        return _unpacked(sent, member)
    except (OSError, EOFError, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        what = f"{member} in " if member else ""
        raise DataError(f"{what}{url} cannot be unpacked: {error}.") from None


@functools.lru_cache(maxsize=1)  # the files of an archive are read one after the other
def _download(url: str) -> bytes:
    from rich.console import Console
    from rich.progress import wrap_file

    try:
        with urlopen(url, timeout=_PATIENCE) as answer:
            size = int(answer.headers.get("Content-Length") or 0)
            with wrap_file(answer, size, description=url, console=Console(stderr=True), transient=True) as file:
                return bytes(file.read())
    except (OSError, HTTPException) as error:  # URLError is an OSError
        raise DataError(f"it cannot be fetched from {url}: {getattr(error, 'reason', error)}.") from None


def _unpacked(sent: bytes, member: str) -> bytes:
    if not member:
        return gzip.decompress(sent) if sent.startswith(b"\x1f\x8b") else sent
    if zipfile.is_zipfile(io.BytesIO(sent)):
        with zipfile.ZipFile(io.BytesIO(sent)) as archive:
            return archive.read(member)
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        part = archive.extractfile(member)
        if part is None:
            raise KeyError(f"{member} is not a file")
        return part.read()
