"""Tensor files with a JSON description, written atomically."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from awn.files.read import DESCRIPTION, is_panic


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
    try:
        return save(own, metadata={DESCRIPTION: json_text(description)})
    except BaseException as error:
        if not is_panic(error):
            raise
        size = sum(tensor.nbytes for tensor in own.values())
        raise MemoryError(f"a file of {size:,} bytes cannot be prepared in memory") from None


def json_file(content: Any) -> bytes:
    r"""The content of an indented JSON file.

    >>> json_file({"accuracy": 1.0})
    b'{\n  "accuracy": 1.0\n}\n'
    """
    return json_text(content, indent=2).encode() + b"\n"


def json_text(content: Any, *, indent: int | None = None) -> str:
    r"""JSON with every character as it is, except the bytes of a file name that is not UTF-8, which become text.

    >>> print(json_text("R² of a\udcff.csv"))
    "R² of a\\xff.csv"
    """
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda half: rf"\\x{ord(half[0]) & 0xFF:02x}", text)


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write all files or none: under temporary names first, renamed once all are on disk.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_files({folder / "a": b"1", folder / "b": b"2"})
    >>> sorted(path.name for path in folder.iterdir())
    ['a', 'b']
    """
    unfinished = {path: unfinished_name(path) for path in contents}
    for path in contents:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with names_file(path), unfinished[path].open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        for beside in unfinished.values():
            beside.unlink(missing_ok=True)
        raise
    # From here on all contents are on disk, and what is interrupted can be completed.
    for path, beside in unfinished.items():
        beside.replace(path)


@contextmanager
def names_file(path: Path) -> Iterator[None]:
    """Inside the block, an error of the file system names the file, even if it occurs while writing."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def unfinished_name(path: Path) -> Path:
    """The temporary name of a file that is being written."""
    return path.with_name(path.name + ".unfinished")
