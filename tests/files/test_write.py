"""Files: written whole or not at all, read without running any code."""

from __future__ import annotations

import errno
import json
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import awn
from awn.files.read import read_tensors
from awn.files.write import json_file, tensor_file, unfinished_name, write_files
from cases import assert_same

TENSORS = {
    "weight": torch.arange(6.0).view(2, 3),
    "steps": torch.tensor(7),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "empty": torch.zeros(0, 5),
    "strided": torch.arange(6.0, dtype=torch.float64).view(2, 3).T,
}
DESCRIPTION = {"format": 1, "names": ["ν", None, 0.1], "nested": {"a": True}}


def test_tensors_and_description_come_back(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tensor_file(TENSORS, DESCRIPTION))
    tensors, description = read_tensors(tmp_path / "a")
    assert description == DESCRIPTION
    assert_same(
        {name: TENSORS[name].contiguous() for name in sorted(TENSORS)}, {n: tensors[n] for n in sorted(tensors)}
    )


def test_the_file_is_a_header_in_json_and_plain_numbers() -> None:
    """Read by hand, as the format says: a length, a JSON header, and bytes that are all accounted for."""
    content = tensor_file(TENSORS, DESCRIPTION)
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert json.loads(header.pop("__metadata__")["awn"]) == DESCRIPTION
    data = content[8 + length :]
    start, end = header["weight"]["data_offsets"]
    assert struct.unpack("<6f", data[start:end]) == (0, 1, 2, 3, 4, 5)
    assert len(data) == sum(tensor.numel() * tensor.element_size() for tensor in TENSORS.values())
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(data)


def test_what_requires_a_gradient_is_written_as_numbers(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.ones(2))
    (tmp_path / "a").write_bytes(tensor_file({"weight": weight}, None))
    tensors, _ = read_tensors(tmp_path / "a")
    assert type(tensors["weight"]) is torch.Tensor
    assert not tensors["weight"].requires_grad


whole = torch.arange(12.0)
SHARED: dict[str, dict[str, torch.Tensor]] = {
    "the same tensor twice": {"a": whole, "b": whole},
    "views of the same start": {"a": whole, "b": whole[:3]},
    "another shape": {"a": whole, "b": whole.view(3, 4), "c": whole.view(3, 4).T},
    "parts that do not overlap": {"a": whole[:3], "b": whole[3:]},
    "parts that overlap": {"a": whole[:5], "b": whole[2:]},
    "a part of a whole": {"a": whole, "b": whole[4:7]},
}


@pytest.mark.parametrize("tensors", SHARED.values(), ids=SHARED)
def test_tensors_that_share_memory_are_written_each_for_itself(
    tensors: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(tensor_file(tensors, None))
    read, _ = read_tensors(tmp_path / "a")
    assert_same({name: tensor.contiguous() for name, tensor in tensors.items()}, {name: read[name] for name in tensors})


def test_json_is_for_people_to_read() -> None:
    text = json_file({"layer": "ν", "units": 3}).decode("utf-8")
    assert text == '{\n  "layer": "ν",\n  "units": 3\n}\n'


CONTENT = tensor_file(TENSORS, DESCRIPTION)
HEADER = 8 + struct.unpack("<Q", CONTENT[:8])[0]
BAD: dict[str, bytes] = {
    "empty": b"",
    "a few bytes": CONTENT[:5],
    "a header cut short": CONTENT[: HEADER // 2],
    "no data": CONTENT[:HEADER],
    "data cut short": CONTENT[:-1],
    "more data than said": CONTENT + b"1",
    "a header that is no JSON": CONTENT[:8] + b"?" * (HEADER - 8) + CONTENT[HEADER:],
    "a length past the end": struct.pack("<Q", 2**40) + CONTENT[8:],
    "text": b"hello, this is no tensor file at all",
    "a pickle": pickle.dumps({"weight": [1.0, 2.0]}),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_damaged_file_is_reported_by_its_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(awn.AwnError, match=r"model\.safetensors cannot be read: it is damaged"):
        read_tensors(path)


@pytest.mark.parametrize("length", range(0, len(CONTENT), max(1, len(CONTENT) // 40)))
def test_a_file_cut_short_anywhere_is_reported(length: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(CONTENT[:length])
    with pytest.raises(awn.AwnError, match=r"model\.safetensors"):
        read_tensors(path)


def test_a_file_of_others_is_reported(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "a", metadata={"format": "pt"})
    with pytest.raises(awn.AwnError, match="was not written by awn"):
        read_tensors(tmp_path / "a")
    save_file({"weight": torch.zeros(2)}, tmp_path / "a")
    with pytest.raises(awn.AwnError, match="was not written by awn"):
        read_tensors(tmp_path / "a")


def test_a_description_that_is_no_json_is_reported(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "a", metadata={"awn": "{not json"})
    with pytest.raises(awn.AwnError, match="cannot be read"):
        read_tensors(tmp_path / "a")


@pytest.mark.parametrize("what", ["missing", "a folder"])
def test_no_file_is_reported(what: str, tmp_path: Path) -> None:
    with pytest.raises(awn.AwnError, match="there is no file"):
        read_tensors(tmp_path if what == "a folder" else tmp_path / "nowhere")


# Writing


def test_files_are_written_with_their_folders(tmp_path: Path) -> None:
    write_files({tmp_path / "a" / "b" / "one": b"1", tmp_path / "c" / "two": b"2"})
    assert (tmp_path / "a" / "b" / "one").read_bytes() == b"1"
    assert (tmp_path / "c" / "two").read_bytes() == b"2"
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["one", "two"]


def test_files_are_replaced(tmp_path: Path) -> None:
    for content in (b"a longer first version", b"short"):
        write_files({tmp_path / "one": content})
        assert (tmp_path / "one").read_bytes() == content


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_full_disk_leaves_the_old_files_and_no_others(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {tmp_path / name: name.encode() for name in ("one", "two", "three")}
    write_files(old)
    full_at(monkeypatch, number)
    with pytest.raises(OSError, match="No space left"):
        write_files({path: content * 9 for path, content in old.items()})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == old


def full_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The n-th file does not fit on the disk."""
    real, calls = os.fsync, []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == number:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


def test_all_files_are_on_the_disk_before_the_first_is_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        events.append("written")
        fsync(descriptor)

    def note_replace(self: Path, target: Any) -> Path:
        events.append("moved")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    write_files({tmp_path / "one": b"1", tmp_path / "two": b"2"})
    assert events == ["written", "written", "moved", "moved"]


def test_a_folder_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(OSError, match="file"):
        write_files({tmp_path / "one": b"1", tmp_path / "file" / "two": b"2"})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_unfinished_file_stands_beside_its_place(tmp_path: Path) -> None:
    beside = unfinished_name(tmp_path / "model.safetensors")
    assert beside.parent == tmp_path
    assert beside.name != "model.safetensors"


def test_a_file_in_the_place_of_a_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_files({tmp_path / "folder": b"1"})
    assert caught.value.filename == str(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
