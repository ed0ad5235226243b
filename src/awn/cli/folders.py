"""Folders that commands read from and write to; nothing is overwritten unless the user asks for it."""

from __future__ import annotations

from pathlib import Path

from awn.errors import ArgumentError
from awn.files.lock import LOCK


def run_folder(given: Path | None, table: Path, *, resume: bool, overwrite: bool) -> Path:
    """The folder of a run: the given one, or a new one in runs/ named after the table."""
    folder = out_folder(given, table.name.split(".")[0] or "table", resume=resume, overwrite=overwrite)
    if resume and not (folder / "run").is_dir():
        raise ArgumentError(f"There is no run to resume in {folder}.")
    return folder


def out_folder(given: Path | None, name: str, *, resume: bool, overwrite: bool) -> Path:
    """The output folder: the given one, or runs/`name`, numbered if it exists and may not be used."""
    folder = given or Path("runs") / name
    number = 1
    while given is None and folder.exists() and not (resume or overwrite):
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    check_free(folder, overwrite=resume or overwrite, options="--resume or --overwrite")
    return folder


def check_free(folder: Path, *, overwrite: bool, options: str = "--overwrite") -> None:
    """Refuse a file, and a folder that is not empty; `options` would allow the latter."""
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"--out {folder} is a file. Pass a folder.")
    if not overwrite and folder.is_dir() and any(child.name != LOCK for child in folder.iterdir()):
        raise ArgumentError(f"The folder {folder} is not empty. Pass another --out, or add {options}.")


def find_model(folder: Path) -> Path:
    """The model folder itself, or the one inside a run's folder."""
    if (folder / "model" / "model.safetensors").is_file():
        return folder / "model"
    if (folder / "run").is_dir():
        raise ArgumentError(f"The run in {folder} is not finished. Resume it first: awn fit … --out {folder} --resume.")
    return folder


def check_out_file(path: Path, endings: tuple[str, ...], *, model: Path | None = None) -> None:
    """Refuse a folder, a file of another kind that exists, and any file of the model."""
    if path.is_dir():
        raise ArgumentError(f"--out {path} is a folder. Pass a file to write.")
    if model is not None and path.resolve().is_relative_to(model.resolve()):
        raise ArgumentError(f"--out {path} lies in the folder of the model. Pass another file.")
    if path.exists() and path.suffix.lower() not in endings:
        raise ArgumentError(f"--out {path} exists, and is no {' or '.join(endings)} file. Pass another file.")
