"""Trees: nested dicts, lists and tensors as JSON and a flat table of tensors, without pickle."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from awn.errors import CheckpointError

_KIND = "~"  # marks a JSON object that represents a type which JSON lacks


def pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """The JSON form of a value; its tensors are added to `tensors` under their paths.

    >>> tensors = {}
    >>> pack({"betas": (0.9, 0.999), 3: None}, "state", tensors)
    {'~': 'dict', 'items': [['betas', {'~': 'tuple', 'items': [0.9, 0.999]}], [3, None]]}
    """
    if value is None or type(value) in (bool, int, str) or isinstance(value, float):
        return value
    if isinstance(value, Tensor):
        while path in tensors:  # keys such as 1 and "1" look alike in a path
            path += "'"
        tensors[path] = value
        return {_KIND: "tensor", "items": path}
    if type(value) in (list, tuple):
        items = [pack(item, f"{path}.{number}", tensors) for number, item in enumerate(value)]
        return items if type(value) is list else {_KIND: "tuple", "items": items}
    if isinstance(value, dict):
        pairs = [[_pack_key(key, path), pack(item, f"{path}.{key}", tensors)] for key, item in value.items()]
        return {_KIND: "counter" if isinstance(value, Counter) else "dict", "items": pairs}
    raise CheckpointError(
        f"{path!r} is a {type(value).__name__}, which cannot be saved without pickle. "
        "Save numbers, strings, tensors, and lists and dicts of them."
    )


def _pack_key(key: Any, path: str) -> Any:
    inside: dict[str, Tensor] = {}
    form = pack(key, f"{path}.key", inside)
    if inside:
        raise CheckpointError(
            f"{path!r} has a tensor as a key, which could not be looked up again. Use numbers or strings as keys."
        )
    return form


def unpack(form: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value of a JSON form that `pack` made.

    >>> unpack({"~": "dict", "items": [[3, {"~": "tuple", "items": [0.9]}]]}, {})
    {3: (0.9,)}
    """
    if isinstance(form, list):
        return [unpack(item, tensors) for item in form]
    if not isinstance(form, dict):
        return form
    kind, items = form.get(_KIND), form.get("items")
    if kind == "tensor" and isinstance(items, str) and items in tensors:
        return tensors[items]
    if kind == "tuple" and isinstance(items, list):
        return tuple(unpack(items, tensors))
    if kind in ("dict", "counter") and isinstance(items, list):
        mapping = dict(_unpack_pair(pair, tensors) for pair in items)
        return Counter(mapping) if kind == "counter" else mapping
    raise CheckpointError(f"the state is damaged: {reprlib.repr(form)} is no tensor of the file, tuple or dict.")


def _unpack_pair(pair: Any, tensors: Mapping[str, Tensor]) -> tuple[Any, Any]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise CheckpointError(f"the state is damaged: {reprlib.repr(pair)} is no pair of a key and a value.")
    key = unpack(pair[0], tensors)
    if isinstance(key, Tensor) or not _can_be_key(key):
        raise CheckpointError(f"the state is damaged: {reprlib.repr(key)} cannot be a key.")
    return key, unpack(pair[1], tensors)


def _can_be_key(key: Any) -> bool:
    return all(map(_can_be_key, key)) if isinstance(key, tuple) else not isinstance(key, list | dict)
