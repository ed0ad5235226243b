"""Operation: one call of an ATen operation during a recording, as the rules of the table see it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from awn.adapt.terms import Term, freeze, unify


class Schema(NamedTuple):
    """The name of an operation, its arguments with their defaults, and whether torch tags it as pointwise."""

    name: str
    arguments: tuple[tuple[str, Any], ...]
    pointwise: bool


@functools.cache
def schema_of(function: Any) -> Schema:
    """The schema of an ATen operation; one that works in place has the name of the other.

    >>> schema_of(torch.ops.aten.relu_.default).name, schema_of(torch.ops.aten.relu.default).pointwise
    ('relu', True)
    """
    schema = function._schema
    name = schema.name.split("::")[-1]
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    arguments = tuple((one.name, one.default_value if one.has_default_value() else None) for one in schema.arguments)
    return Schema(name, arguments, torch.Tag.pointwise in function.tags)


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in nested containers, data classes and objects with attributes.

    >>> len(tensors_in({"a": [torch.zeros(1)], "b": (torch.zeros(2), 3)}))
    2
    """
    found: list[Tensor] = []
    _collect(value, found, set(), 0)
    return found


def _collect(value: Any, found: list[Tensor], seen: set[int], depth: int) -> None:
    if isinstance(value, Tensor):
        found.append(value)
    elif value is None or isinstance(value, int | float | str | bytes | type) or depth > 6 or id(value) in seen:
        return
    elif isinstance(value, Mapping):
        seen.add(id(value))
        for one in value.values():
            _collect(one, found, seen, depth + 1)
    elif isinstance(value, list | tuple | set):
        seen.add(id(value))
        for one in value:
            _collect(one, found, seen, depth + 1)
    elif hasattr(value, "__dict__") and not callable(value) and not isinstance(value, torch.nn.Module):
        seen.add(id(value))
        for one in vars(value).values():
            _collect(one, found, seen, depth + 1)


class Ledger(Protocol):
    """What a rule may ask and tell the recording."""

    def dims(self, tensor: Tensor) -> list[Term]:
        """The terms of a tensor's dimensions."""

    def give(self, tensor: Tensor, dims: Sequence[Term], *, moves: bool, why: str) -> None:
        """Say what a result's dimensions are."""

    def contract(self, sides: Sequence[tuple[Tensor, int]]) -> None:
        """Note a sum over a dimension of one or two tensors."""

    def reads(self, term: Term) -> None:
        """Note that a weight's dimension reads units."""


class Operation:
    """One call of an ATen operation: its arguments by name, its tensors, and what is known of their dimensions."""

    def __init__(self, ledger: Ledger, function: Any, arguments: Mapping[str, Any], result: Any, where: str) -> None:
        self._ledger, self.arguments = ledger, arguments
        self.name = schema_of(function).name
        self.inputs = [leaf for leaf in pytree.tree_leaves(dict(arguments)) if isinstance(leaf, Tensor)]
        self.outs = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        self.why = f"{self.name.lstrip('_').removeprefix('native_')} in {where}"

    @property
    def x(self) -> Tensor:
        """The first tensor."""
        return self.inputs[0]

    def __getitem__(self, argument: str) -> Any:
        return self.arguments.get(argument)

    def dims(self, tensor: Tensor) -> list[Term]:
        """The terms of a tensor's dimensions."""
        return self._ledger.dims(tensor)

    def unify(self, one: Term, two: Term) -> None:
        """Both are the same units."""
        unify(one, two, f"{self.why} joins it with something else")

    def freeze(self, *terms: Term, does: str = "mixes its units") -> None:
        """The terms cannot change; `does` says what the operation does to them."""
        for term in terms:
            freeze(term, f"{self.why} {does}")

    def fixed(self, sizes: Iterable[int]) -> list[Term]:
        """New dimensions that cannot change."""
        return [Term(size, f"{self.why} makes a fixed number of entries") for size in sizes]

    def give(self, dims: Sequence[Term], out: Tensor | None = None, *, moves: bool = False) -> None:
        """Say what a result's dimensions are; an operation that `moves` dimensions may do so in place."""
        self._ledger.give(self.outs[0] if out is None else out, dims, moves=moves, why=self.why)

    def contract(self, *sides: tuple[Tensor, int]) -> None:
        """A sum over a dimension of one tensor, or over the same dimension of a product of two."""
        if len(sides) == 2:
            (x, i), (y, j) = sides
            self.unify(self.dims(x)[i], self.dims(y)[j])
        self._ledger.contract(sides)

    def reads(self, term: Term) -> None:
        """A weight's dimension reads units."""
        self._ledger.reads(term)


Rule = Callable[[Operation], None]
