"""Where data sets lie: files under the folders that AWN_DATA names, checked by their hash."""

from __future__ import annotations

import gzip
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from awn.errors import DataError


@dataclass(frozen=True)
class Source:
    """A file of a data set: its place under a data folder, its usual home, and the hash of its unpacked content.

    A `path` that ends in .gz may lie there unpacked, too.
    """

    path: str
    home: str
    sha256: str | None = None

    def read(self) -> bytes:
        """The unpacked content, checked."""
        place = self.find()
        content = gzip.decompress(place.read_bytes()) if place.suffix == ".gz" else place.read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if self.sha256 is not None and found != self.sha256:
            raise DataError(
                f"{place} is not the file that is meant: its content has the SHA-256 {found}, not {self.sha256}. "
                f"Get it again from {self.home}."
            )
        return content

    def find(self) -> Path:
        """Where the file lies."""
        names = [self.path, self.path.removesuffix(".gz")]
        places = [folder / name for folder in data_folders() for name in names]
        for place in places:
            if place.is_file():
                return place
        raise DataError(
            f"{places[0]} is missing. Get it from {self.home}, and put it there; "
            "the environment variable AWN_DATA names another data folder, or several."
        )


def data_folders() -> list[Path]:
    """The folders of data sets: those in AWN_DATA, as in PATH, or `awn` in the user's cache."""
    named = [folder for folder in os.environ.get("AWN_DATA", "").split(os.pathsep) if folder]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return [Path(folder) for folder in named] or [cache / "awn"]
