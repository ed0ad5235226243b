"""A model folder is data: whatever is in it, nothing of it runs, and nothing goes out to the network."""

from __future__ import annotations

import io
import json
import os
import pickle
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import awn
from awn.errors import FileError
from awn.files.read import read_tensors
from awn.files.write import json_file, tensor_file
from cli_cases import Run

Config = dict[str, Any]


class Hostile:
    """Creates a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def as_pickle(evil: Path) -> bytes:
    return pickle.dumps({"weight": Hostile(evil)})


def as_torch_file(evil: Path) -> bytes:
    file = io.BytesIO()
    torch.save({"weight": Hostile(evil)}, file)
    return file.getvalue()


def as_numpy_file(evil: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Hostile(evil)], dtype=object), allow_pickle=True)
    return file.getvalue()


def as_zip_file(evil: Path) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("../../../evil.py", f"open({str(evil)!r}, 'w')")
    return file.getvalue()


FILES = [as_pickle, as_torch_file, as_numpy_file, as_zip_file]
files = pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)


def saved(folder: Path) -> Path:
    awn.save(awn.AdaptiveMLP(3, 2, importance=awn.Exponential.for_units(6)), folder)
    return folder


@files
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_that_would_run_code_is_refused(make: Callable[[Path], bytes], name: str, tmp_path: Path) -> None:
    folder, evil = saved(tmp_path / "model"), tmp_path / "evil"
    (folder / name).write_bytes(make(evil))
    with pytest.raises(FileError):
        awn.load(folder)
    assert not evil.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


@files
def test_a_checkpoint_that_would_run_code_is_refused(make: Callable[[Path], bytes], tmp_path: Path) -> None:
    evil, path = tmp_path / "evil", tmp_path / "run.safetensors"
    path.write_bytes(make(evil))
    model = awn.AdaptiveMLP(2, 2)
    with pytest.raises(FileError):
        awn.resume_run_(path, model, torch.optim.Adam(model.parameters()))
    assert not evil.exists()


# Python in place of names, as other formats allow: a class path, an expression, an attribute to overwrite.
CODE = "__import__('pathlib').Path('evil').touch()"
EDITS: dict[str, Callable[[Config], Any]] = {
    "class path": lambda config: config["model"].update(type="os.system"),
    "family": lambda config: config["groups"][0]["family"].update(type=CODE),
    "family of torch": lambda config: config["groups"][0]["family"].update(type="torch.load"),
    "field of the family": lambda config: config["groups"][0]["family"].update(__class__=CODE),
    "activation": lambda config: config["model"]["options"].update(activation=CODE),
    "activation by path": lambda config: config["model"]["options"].update(activation="torch.hub.load"),
    "option": lambda config: config["model"]["options"].update({CODE: 1}),
    "new units": lambda config: config["groups"][0]["width"].update(new_units=CODE),
    "name of a tensor": lambda config: config["groups"][0]["axes"][0].update(name="__class__"),
    "attribute": lambda config: config["groups"][0]["axes"][0].update(size_name="forward"),
    "module": lambda config: config["groups"][0]["axes"][0].update(module="__import__"),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("given", [False, True], ids=["rebuilt", "into a model"])
def test_a_description_names_no_code(edit: str, given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model: Any = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    folder = tmp_path / "model"
    if given:
        awn.adapt_(model)
        awn.save(model, folder)
    else:
        saved(folder)
    tensors, config = read_tensors(folder / "model.safetensors")
    if given and edit in ("class path", "activation", "activation by path", "option"):
        config["model"]["options"] = {}
    EDITS[edit](config)
    (folder / "config.json").write_bytes(json_file(config))
    (folder / "model.safetensors").write_bytes(tensor_file(tensors, config))
    fresh: Any = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    forward = type(fresh[0]).forward
    try:
        awn.load(folder, fresh if given else None)
    except FileError:
        pass
    else:  # only what the given model does not take from the folder may be wrong there
        assert given or edit in ("name of a tensor", "attribute", "module")
    assert not Path("evil").exists()
    assert type(fresh[0]).forward is forward


AUDITED = """
import sys, json
seen = []
sys.addaudithook(lambda event, args: seen.append(event) if event in WATCHED else None)
import awn, torch
seen.clear()
for folder in sys.argv[1:]:
    try:
        awn.load(folder)
    except awn.AwnError:
        pass
print(json.dumps(sorted(set(seen))))
"""
WATCHED = ["pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.fork", "socket.connect"]


def test_loading_starts_nothing_and_unpickles_nothing(tmp_path: Path) -> None:
    """By the events that Python reports of itself, for good folders and hostile ones."""
    folders = [saved(tmp_path / "good")]
    for make in FILES:
        folders.append(saved(tmp_path / make.__name__))
        (folders[-1] / "model.safetensors").write_bytes(make(tmp_path / "evil"))
    code = f"WATCHED = {WATCHED}\n" + AUDITED
    here = {**os.environ, "PYTHONPATH": str(Path(awn.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code, *folders], env=here, capture_output=True, text=True, check=True, timeout=300
    )
    assert json.loads(done.stdout) == []


# The network


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every way out of the process fails, and is noted."""
    tries: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> Any:
        tries.append(arguments)
        raise OSError("the network is off")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    return tries


def test_nothing_goes_out_to_the_network(
    run: Run, offline: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(80, 2)).round(3)
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "sold": np.where(x[:, 0] > 0, "yes", "no")}).to_csv(
        "sold.csv", index=False
    )
    Path("options.json").write_text('{"members": 1, "units": 6, "epochs": 2}')
    fit = ["fit", "sold.csv", "--target", "sold", "--out", "run", "--config", "options.json", "--no-compare"]
    for words in (fit, ["predict", "run", "sold.csv"], ["inspect", "run"], ["report", "run"], ["paper", "list"]):
        said = run(*words)
        assert said.code == 0, said.err
    awn.load(tmp_path / "run" / "model")
    assert offline == []


def test_the_fixture_sees_a_way_out(offline: list[Any]) -> None:
    with pytest.raises(OSError, match="the network is off"):
        socket.create_connection(("127.0.0.1", 9))
    assert offline
