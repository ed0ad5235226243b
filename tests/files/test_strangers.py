"""Files from strangers: read, or refused by one kind of error, within limits."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import awn
from awn.errors import FileError, ResizeError
from awn.files.read import read_json, read_tensors
from awn.files.write import json_file, tensor_file
from awn.tabular.folder import load_estimator
from awn.tabular.read.table import read_table

ROOT = Path(__file__).parents[2]
OLD = Path(__file__).parent / "format_1"


def edited(folder: Path, change: Callable[[Any], Any], tensors: dict[str, torch.Tensor] | None = None) -> Path:
    """A model folder with an edited description, in both files."""
    awn.save(awn.AdaptiveMLP(3, 2, importance=awn.Exponential.for_units(6)), folder)
    own, config = read_tensors(folder / "model.safetensors")
    change(config)
    (folder / "config.json").write_bytes(json_file(config))
    (folder / "model.safetensors").write_bytes(tensor_file({**own, **(tensors or {})}, config))
    return folder


EDITS: dict[str, Callable[[Any], Any]] = {
    "in_features": lambda config: config["model"]["options"].update(in_features=10**9),
    "hidden_layers": lambda config: config["model"]["options"].update(hidden_layers=10**5),
    "block": lambda config: config["groups"][0]["width"].update(block=0),
    "quantile": lambda config: config["groups"][0]["width"].update(quantile=2),
    "max_units": lambda config: config["groups"][0]["width"].update(max_units=-1),
    "no family": lambda config: config["groups"][0].pop("family"),
    "a format of the future": lambda config: config.update(format=99),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_description_is_refused(edit: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=str(tmp_path)):
        awn.load(edited(tmp_path / "model", EDITS[edit]))


def test_an_empty_tensor_cannot_ask_for_memory(tmp_path: Path) -> None:
    def widen(config: Any) -> None:
        config["model"]["options"]["in_features"] = 10**9

    with pytest.raises(FileError):
        awn.load(edited(tmp_path / "model", widen, {"hidden.0.weight": torch.empty(0, 10**9)}))


@pytest.mark.parametrize("lost", [{"betas": None}, {"betas": ...}, {"initial_lr": ...}, {"lr": "0.1"}], ids=str)
def test_a_checkpoint_without_an_option_of_its_optimizer_is_refused(lost: dict[str, Any], tmp_path: Path) -> None:
    model = awn.AdaptiveMLP(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.param_groups[0]["initial_lr"] = 0.1
    awn.save_run(tmp_path / "run", model, optimizer)
    assert awn.resume_run_(tmp_path / "run", model, optimizer) is None
    other = torch.optim.Adam(model.parameters())
    for name, value in lost.items():
        other.param_groups[0].update({"initial_lr": 0.1, name: value})
        if value is ...:
            del other.param_groups[0][name]
    awn.save_run(tmp_path / "run", model, other)
    with pytest.raises(FileError, match=next(iter(lost))):
        awn.resume_run_(tmp_path / "run", model, optimizer)


def test_json_nested_too_deep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 10**5 + "]" * 10**5)
    with pytest.raises(FileError, match="nested deeper than 128 levels"):
        read_json(path)


def test_too_many_tensors_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.safetensors"
    path.write_bytes(tensor_file({str(number): torch.empty(0) for number in range(11)}, None))
    assert len(read_tensors(path)[0]) == 11
    monkeypatch.setenv("AWN_MAX_TENSORS", "10")
    with pytest.raises(FileError, match="holds 11 tensors, more than 10"):
        read_tensors(path)


def test_a_table_that_is_too_large_when_unpacked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 10**5))
    assert len(read_table(path)) == 10**5
    monkeypatch.setenv("AWN_MAX_TABLE_BYTES", "100000")
    with pytest.raises(FileError, match="more than 100,000 bytes when it is decompressed"):
        read_table(path)


def test_300_000_empty_tensors_are_refused(tmp_path: Path) -> None:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({"__metadata__": {"awn": "{}"}, **{str(number): empty for number in range(300_000)}}).encode()
    (tmp_path / "many.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(FileError, match="holds 300,000 tensors, more than 100,000"):
        read_tensors(tmp_path / "many.safetensors")


def test_a_small_file_that_grows_a_thousandfold_is_refused(tmp_path: Path) -> None:
    """As a bomb does, long before the limit on its size."""
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n" * 2**24) * 5)  # 320 MiB
    with pytest.raises(FileError, match=r"over 200 times as many\. .* AWN_MAX_TABLE_RATIO"):
        read_table(path)


@pytest.mark.filterwarnings("ignore")  # a damaged file may cause any
def test_no_random_change_gets_past_the_readers(tmp_path: Path) -> None:
    specification = importlib.util.spec_from_file_location("fuzz", ROOT / "benchmarks/fuzz.py")
    assert specification is not None
    assert specification.loader is not None
    fuzz = importlib.util.module_from_spec(specification)
    sys.modules["fuzz"] = fuzz
    specification.loader.exec_module(fuzz)
    counts = fuzz.run(480, seed=123, folder=tmp_path)
    assert {name: dict(count.findings) for name, count in counts.items() if count.findings} == {}
    assert sum(count.inputs for count in counts.values()) == 480


def test_folders_of_format_1_are_read() -> None:
    assert json.loads((OLD / "network/config.json").read_text())["format"] == 1
    assert awn.widths(awn.load(OLD / "network")) == {"hidden.0": 6, "hidden.1": 3}
    assert load_estimator(OLD / "estimator").widths_ == {"hidden.0": 6}


@pytest.mark.parametrize("bound", [None, 10_000])
def test_a_width_that_diverges_is_stopped_unless_it_is_bounded(bound: int | None) -> None:
    model = awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(100), max_units=bound)
    model.hidden[0].width.move_(-14.0)
    if bound is not None:
        awn.resize_(model)
        assert awn.widths(model) == {"hidden.0": bound}
        return
    with pytest.raises(ResizeError, match=r"layer 'hidden.0' would grow from 100 to .* max_units"):
        awn.resize_(model)
    assert awn.widths(model) == {"hidden.0": 100}
