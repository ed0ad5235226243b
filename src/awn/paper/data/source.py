"""Where data sets lie: files under the folder AWN_DATA, checked by their hash."""

from __future__ import annotations

import gzip
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from awn.errors import DataError


@dataclass(frozen=True)
class Source:
    """A file of a data set: its place under the data folder, its usual home, and the hash of its unpacked content.

    A `path` that ends in .gz may lie there unpacked, too.
    """

    path: str
    home: str
    sha256: str | None = None

    def read(self) -> bytes:
        """The unpacked content, checked."""
        place = data_folder() / self.path
        plain = place.with_suffix("") if place.suffix == ".gz" else place
        if place.is_file():
            content = gzip.decompress(place.read_bytes()) if place.suffix == ".gz" else place.read_bytes()
        elif plain.is_file():
            content = plain.read_bytes()
        else:
            raise DataError(
                f"{place} is missing. Get it from {self.home}, and put it there; "
                "the environment variable AWN_DATA names another data folder."
            )
        found = hashlib.sha256(content).hexdigest()
        if self.sha256 is not None and found != self.sha256:
            raise DataError(
                f"{place} is not the file that is meant: its content has the SHA-256 {found}, not {self.sha256}. "
                f"Get it again from {self.home}."
            )
        return content


def data_folder() -> Path:
    """The folder of all data sets: AWN_DATA, or `awn` in the user's cache."""
    if "AWN_DATA" in os.environ:
        return Path(os.environ["AWN_DATA"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "awn"
