"""Example inputs of a model: a tensor, a tuple of arguments, or a dict of named arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from awn.errors import ArgumentError


def as_call(example_input: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the named arguments of a call.

    >>> as_call((1, 2)), as_call({"mask": None})
    (((1, 2), {}), ((), {'mask': None}))
    """
    if isinstance(example_input, Mapping):
        return (), dict(example_input)
    if isinstance(example_input, tuple | list):
        return tuple(example_input), {}
    if not isinstance(example_input, Tensor):
        raise ArgumentError(
            "example_input must be a tensor, a tuple of arguments, or a dict of named arguments; "
            f"got {type(example_input).__name__}."
        )
    return (example_input,), {}
