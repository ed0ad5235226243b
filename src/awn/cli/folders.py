"""Where commands read and write: never over what is there, unless told to."""

from __future__ import annotations

from pathlib import Path

from awn.errors import ArgumentError


def run_folder(given: Path | None, table: Path, *, resume: bool, overwrite: bool) -> Path:
    """The folder of a run: the one given, or a new one under runs/ with the table's name."""
    stem = table.name.split(".")[0] or "table"
    if given is None and not resume:
        number, given = 1, Path("runs") / stem
        while given.exists() and not overwrite:
            number += 1
            given = Path("runs") / f"{stem}-{number}"
    folder = given or Path("runs") / stem
    if resume and not (folder / "run").is_dir():
        raise ArgumentError(f"there is no run in {folder} to resume.")
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
