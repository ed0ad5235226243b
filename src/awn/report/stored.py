"""Stored runs: the folders that `awn fit` wrote, found below a folder and read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from awn.basics.schema import anything, entries, maybe, number, record, text, whole
from awn.errors import ArgumentError, CheckpointError, FileError
from awn.files.read import read_json
from awn.report.data import ReportData

_SUMMARY = record(
    {
        "table": text(),
        "target": text(),
        "score_name": text(),
        "scores": entries(maybe(number())),
        "widths": entries(whole(0)),
        "parameters": whole(0),
        "seconds": number(),
        "from": record({}, {"date": text(), "seed": maybe(whole())}, others=anything()),
    },
    others=anything(),
)
_MOST_FOLDERS = 20_000


@dataclass(frozen=True)
class StoredRun:
    """A finished run: its folder, relative to the one that was searched, and the key figures of its summary."""

    name: str
    folder: Path
    summary: dict[str, Any]

    @property
    def date(self) -> str:
        """When it was made."""
        return str(self.summary["from"].get("date", ""))


def read_report_data(run: Path) -> ReportData:
    """The data behind the report of a finished run."""
    path = run / "report.json"
    try:
        return ReportData.from_json(read_json(path))
    except (FileError, ArgumentError) as error:
        raise CheckpointError(f"{run} is not a finished run of `awn fit`: {path} cannot be read ({error}).") from None


def find_runs(root: Path) -> dict[str, StoredRun]:
    """The finished runs in a folder and the folders below it, by name, the newest first.

    >>> import tempfile
    >>> find_runs(Path(tempfile.mkdtemp()))
    {}
    """
    if not root.is_dir():
        raise ArgumentError(f"{root} is not a folder. Pass one that holds runs of `awn fit`, such as runs.")
    found = [run for folder in _folders(root) if (run := _read(root, folder)) is not None]
    return {run.name: run for run in sorted(found, key=lambda run: run.date, reverse=True)}


def _folders(root: Path) -> Iterator[Path]:
    """The folder and those below it, without links, hidden ones and those inside a run."""
    for seen, (here, below, files) in enumerate(os.walk(root)):
        is_run = "report.json" in files and "summary.json" in files
        below[:] = [] if is_run or seen > _MOST_FOLDERS else sorted(name for name in below if not name.startswith("."))
        if is_run:
            yield Path(here)


def _read(root: Path, folder: Path) -> StoredRun | None:
    try:
        summary = read_json(folder / "summary.json", _SUMMARY)
    except FileError:  # of another program, damaged, or being written
        return None
    return StoredRun(folder.relative_to(root).as_posix(), folder, summary)
