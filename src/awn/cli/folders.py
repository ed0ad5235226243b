"""Where commands read and write: never over what is there, unless told to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from awn.errors import ArgumentError

if TYPE_CHECKING:
    from awn.report import ReportData


def run_folder(given: Path | None, table: Path, *, resume: bool, overwrite: bool) -> Path:
    """The folder of a run: the one given, or a new one under runs/ with the table's name."""
    folder = out_folder(given, table.name.split(".")[0] or "table", resume=resume, overwrite=overwrite)
    if resume and not (folder / "run").is_dir():
        raise ArgumentError(f"there is no run in {folder} to resume.")
    return folder


def out_folder(given: Path | None, name: str, *, resume: bool, overwrite: bool) -> Path:
    """The folder to write to: the one given, or one of that name under runs/, which is new unless it may be used."""
    folder = given or Path("runs") / name
    number = 1
    while given is None and folder.exists() and not (resume or overwrite):
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    check_free(folder, overwrite=resume or overwrite, advice="--resume or --overwrite it")
    return folder


def check_free(folder: Path, *, overwrite: bool, advice: str = "--overwrite it") -> None:
    """Refuse a folder that holds something, or a path that is none."""
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"--out {folder} is a file; name a folder.")
    if not overwrite and folder.is_dir() and any(folder.iterdir()):
        raise ArgumentError(f"{folder} is not empty; choose another --out, or {advice}.")


def find_model(folder: Path) -> Path:
    """The model folder itself, or the one inside a run's folder."""
    if (folder / "model" / "model.safetensors").is_file():
        return folder / "model"
    if (folder / "run").is_dir():
        raise ArgumentError(f"the run in {folder} is not finished; go on with it: awn fit … --out {folder} --resume.")
    return folder


def read_report(run: Path) -> ReportData:
    """What the report of a finished run shows."""
    from awn.report import ReportData

    path = run / "report.json"
    try:
        return ReportData.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{run} is not a finished run of `awn fit`: {path} cannot be read ({error}).") from None
