"""Plain values: the types of JSON, which are numbers, text, booleans, null, lists and dicts."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import Tensor


def to_plain(
    value: Any,
    *,
    digits: int | None = None,
    nonfinite: Literal["text", "null"] = "text",
    kinds: bool = False,
    other: Callable[[Any], Any] = str,
) -> Any:
    """Convert a value to the types of JSON: dataclasses and mappings to dicts, tuples and tensors to lists.

    `digits` rounds floats to that many significant digits. NaN and infinity, which JSON lacks, become the text "nan",
    "inf" or "-inf", or None with `nonfinite="null"`. `kinds` adds the class name of every dataclass as "kind". A value
    of any other type is passed to `other`.

    >>> to_plain({"score": math.nan, "widths": (231, 12), "ratio": Tensor([1 / 3])}, digits=3)
    {'score': 'nan', 'widths': [231, 12], 'ratio': [0.333]}
    """

    def convert(value: Any) -> Any:
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, numbers.Real):
            number = float(value)
            if not math.isfinite(number):
                return str(number) if nonfinite == "text" else None
            return number if digits is None else short(number, digits)
        if dataclasses.is_dataclass(value):
            fields = {own.name: convert(getattr(value, own.name)) for own in dataclasses.fields(value)}
            return {"kind": type(value).__name__, **fields} if kinds else fields
        if isinstance(value, Mapping):
            return {str(key): convert(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [convert(entry) for entry in value]
        return convert(value.tolist()) if isinstance(value, Tensor) else other(value)

    return convert(value)


def to_numbers(value: Any) -> Any:
    """Undo `to_plain` for nested numbers: "nan", "inf" and "-inf" become floats again.

    >>> to_numbers({"score": [0.5, "-inf"]})
    {'score': [0.5, -inf]}
    """
    if isinstance(value, Mapping):
        return {key: to_numbers(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [to_numbers(entry) for entry in value]
    return float(value) if isinstance(value, str) else value


def short(number: float, digits: int) -> float:
    """Round a number to significant digits.

    >>> short(1234.5678, 3), short(1 / 3, 3)
    (1230.0, 0.333)
    """
    return float(f"{number:.{digits}g}")
