"""Files from anywhere: read within limits, compared with a schema, and refused by one kind of error."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

from torch import Tensor

from awn.basics.limits import limits, raise_it
from awn.basics.schema import Schema, find_fault
from awn.errors import AwnError, CheckpointError

#: The key of the description in the header of a safetensors file.
DESCRIPTION = "awn"
_LENGTH_BYTES = 8  # a safetensors file begins with the length of its header
_DEEPER = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NOT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))


def read_json(path: Path, schema: Schema | None = None) -> Any:
    """The content of a JSON file that has the schema.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.json"
    >>> _ = path.write_text("[" * 1000 + "]" * 1000)
    >>> read_json(path)
    Traceback (most recent call last):
    awn.errors.CheckpointError: ...a.json is nested deeper than 128 levels. If you trust the file, raise the limit: ...
    """
    try:
        if not path.is_file():
            raise CheckpointError(f"there is no file {path}.")
        _check_size(path.stat().st_size, str(path))
        content = parse_json(path.read_bytes(), str(path))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from None
    if schema is not None:
        check_content(content, schema, str(path))
    return content


def parse_json(data: bytes | str, source: str) -> Any:
    """JSON within the limits; `source` names it in errors."""
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    _check_size(len(data), source)
    deepest = limits().nesting
    if _nesting(data) > deepest:
        raise CheckpointError(f"{source} is nested deeper than {deepest} levels. {raise_it('nesting')}")
    try:
        content = json.loads(data.decode("utf-8"))
        if re.search(rb"\\u[dD][89a-fA-F]", data):  # perhaps half of a pair, which no file and no terminal accepts
            json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{source} is damaged, or not JSON: {_first_line(error)}.") from None
    return content


def check_content(content: Any, schema: Schema, source: str, where: str = "") -> None:
    """Raise unless a value has a schema; `source` names the file, `where` the part of it that the value is."""
    fault = find_fault(content, schema, where)
    if fault is not None:
        raise CheckpointError(f"{source} was edited or is damaged: {fault}. Restore the file.")


def read_tensors(path: Path, device: str = "cpu") -> tuple[dict[str, Tensor], Any]:
    """The tensors and the description of a file with the content of `awn.files.write.tensor_file`."""
    from safetensors import safe_open

    if not path.is_file():
        raise CheckpointError(f"there is no file {path}.")
    try:
        _check_header(path)
        if not _is_utf8(path):
            tensors, metadata = _read_bytes(path, device)
        else:
            with safe_open(path, framework="pt", device=device) as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dict
    except AwnError:
        raise
    except BaseException as error:
        # Besides its own error, safetensors passes on those of torch, and panics of Rust, which are no Exceptions.
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise CheckpointError(
            f"{path} cannot be read: it is damaged, or not a safetensors file: {_first_line(error)}"
        ) from None
    if DESCRIPTION not in metadata:
        raise CheckpointError(f"{path} was not written by awn: its header has no entry {DESCRIPTION!r}.")
    return tensors, parse_json(metadata[DESCRIPTION], f"{path} cannot be read: its description")


def _is_utf8(path: Path) -> bool:
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


def _read_bytes(path: Path, device: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a file whose name is not UTF-8, which safetensors cannot open, from memory."""
    from safetensors.torch import load

    data = path.read_bytes()
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    header = parse_json(data[_LENGTH_BYTES : _LENGTH_BYTES + length], f"the header of {path}")
    return {name: tensor.to(device) for name, tensor in load(data).items()}, header.get("__metadata__", {})


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of Rust code, which safetensors raises if it runs out of memory."""
    return type(error).__name__ == "PanicException"


def _check_header(path: Path) -> None:
    """Refuse a header that is too long, or lists too many tensors, before it is parsed."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > size - _LENGTH_BYTES:
            raise ValueError("its header is longer than the file")
        _check_size(length, f"the header of {path}")
        tensors, most = file.read(length).count(b'"data_offsets"'), limits().tensors
    if tensors > most:
        raise CheckpointError(f"{path} holds {tensors:,} tensors, more than {most:,}. {raise_it('tensors')}")


def _check_size(size: int, source: str) -> None:
    most = limits().json_bytes
    if size > most:
        raise CheckpointError(f"{source} has {size:,} bytes, more than {most:,}. {raise_it('json_bytes')}")


def _nesting(data: bytes) -> int:
    """The depth of the brackets in JSON, outside strings.

    >>> _nesting(b'{"a]": [1, [2, "[[["]]}')
    3
    """
    without_escapes = re.sub(rb"\\.", b"", data, flags=re.DOTALL)
    brackets = re.sub(rb'"[^"]*"', b"", without_escapes.translate(None, _NOT_BRACKETS)).replace(b'"', b"")
    return max(itertools.accumulate(map(_DEEPER.__getitem__, brackets)), default=0)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
