"""Tensor files with a JSON description: written atomically, read without running any code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from awn.errors import CheckpointError

_DESCRIPTION = "awn"  # the key of the description in a safetensors file's header


def tensor_file(tensors: dict[str, Tensor], description: Any) -> bytes:
    """The content of a safetensors file with a JSON description in its header."""
    from safetensors.torch import save

    own = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    seen: set[int] = set()
    for name, tensor in own.items():
        memory = tensor.untyped_storage().data_ptr()
        if tensor.numel() and memory in seen:  # tied weights: the format does not allow shared memory
            own[name] = tensor.clone()
        seen.add(memory)
    return save(own, metadata={_DESCRIPTION: json.dumps(description)})


def json_file(content: Any) -> bytes:
    r"""The content of an indented JSON file.

    >>> json_file({"accuracy": 1.0})
    b'{\n  "accuracy": 1.0\n}\n'
    """
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def read_tensors(path: Path, device: str = "cpu") -> tuple[dict[str, Tensor], Any]:
    """The tensors and the description of a file with the content of `tensor_file`."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CheckpointError(f"there is no file {path}.")
    try:
        with safe_open(path, framework="pt", device=device) as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
        if _DESCRIPTION not in metadata:
            raise CheckpointError(f"{path} was not written by awn: its header has no entry {_DESCRIPTION!r}.")
        return tensors, json.loads(metadata[_DESCRIPTION])
    except (SafetensorError, ValueError, OSError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} cannot be read: it is damaged, or not a safetensors file: {error}") from None


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write all files or none: under temporary names first, renamed once all are on disk.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_files({folder / "a": b"1", folder / "b": b"2"})
    >>> sorted(path.name for path in folder.iterdir())
    ['a', 'b']
    """
    unfinished = {path: unfinished_name(path) for path in contents}
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished[path].open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        for beside in unfinished.values():
            beside.unlink(missing_ok=True)
        raise
    for path, beside in unfinished.items():
        beside.replace(path)


def unfinished_name(path: Path) -> Path:
    """The temporary name of a file that is being written."""
    return path.with_name(path.name + ".unfinished")
