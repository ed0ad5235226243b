"""Where data sets lie: files under the folders that AWN_DATA names, fetched if need be, and checked by their hash."""

from __future__ import annotations

import gzip
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from awn.errors import DataError
from awn.files.write import write_files
from awn_paper.data.fetch import fetch


@dataclass(frozen=True)
class Source:
    """A file of a data set: its place under a data folder, its usual home, and the hash of its unpacked content.

    A `path` that ends in .gz may lie there unpacked, too. A file that is missing is fetched from its `url`, where it
    may be a `member` of an archive; `md5` is that of what is sent. `home` is where a person finds it.
    """

    path: str
    home: str
    sha256: str | None = None
    url: str = ""
    member: str = ""
    md5: str | None = None

    def read(self) -> bytes:
        """The unpacked content, checked."""
        place = self.find()
        content = gzip.decompress(place.read_bytes()) if place.suffix == ".gz" else place.read_bytes()
        self._check(content, str(place))
        return content

    def find(self) -> Path:
        """Where the file lies, fetched if need be."""
        names = [self.path, self.path.removesuffix(".gz")]
        places = [folder / name for folder in data_folders() for name in names]
        for place in places:
            if place.is_file():
                return place
        try:
            return self._fetch(places[1])
        except DataError as error:
            raise DataError(
                f"{places[0]} is missing, and {error} Get it from {self.home}, and put it there; "
                "the environment variable AWN_DATA names another data folder, or several."
            ) from None

    def _fetch(self, place: Path) -> Path:
        if not self.url:
            raise DataError("it has no address of its own to be fetched from.")
        content = fetch(self.url, self.member, self.md5)
        self._check(content, self.url)
        try:
            write_files({place: content})
        except OSError as error:
            raise DataError(f"{place.parent} cannot be written to: {error.strerror}.") from None
        return place

    def _check(self, content: bytes, where: str) -> None:
        found = hashlib.sha256(content).hexdigest()
        if self.sha256 is not None and found != self.sha256:
            raise DataError(
                f"{where} is not the file that is meant: its content has the SHA-256 {found}, not {self.sha256}. "
                f"Get it again from {self.home}."
            )


def data_folders() -> list[Path]:
    """The folders of data sets: those in AWN_DATA, as in PATH, or `awn` in the user's cache."""
    named = [folder for folder in os.environ.get("AWN_DATA", "").split(os.pathsep) if folder]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return [Path(folder) for folder in named] or [cache / "awn"]
