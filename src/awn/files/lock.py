"""FolderLock: one process at a time writes to a folder."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from awn.errors import ArgumentError

#: The file in a folder that is being written to. The system releases its lock if the process ends in any way.
LOCK = ".lock"


@contextmanager
def folder_lock(folder: str | Path) -> Iterator[None]:
    """Inside the block, no other process can lock the folder: it is refused at once.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "run"
    >>> with folder_lock(folder), folder_lock(folder):
    ...     pass
    Traceback (most recent call last):
    awn.errors.ArgumentError: Another process is writing to .../run. Wait until it ends, or choose another folder.
    >>> folder.exists()
    False
    """
    folder = Path(folder)
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    with path.open("ab") as file:
        if not _lock(file) or not _is_still(file, path):
            raise ArgumentError(
                f"Another process is writing to {folder}. Wait until it ends, or choose another folder."
            )
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
                for one in made:
                    one.rmdir()  # fails if the block left something in it


if sys.platform == "win32":
    import msvcrt

    def _lock(file: BinaryIO) -> bool:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(file: BinaryIO) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True


def _is_still(file: BinaryIO, path: Path) -> bool:
    """Whether the locked file is still the one in the folder: its former owner removes it at the end."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
