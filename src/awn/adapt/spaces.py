"""Spaces: sets of units that tracing finds, joined where two of them turn out to be the same units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from awn.adapt.hidden import Hidden, Refusal
from awn.adapt.shapes import from_end
from awn.core.axes import is_depthwise, layout_of


class Space:
    """Units, the layers that make them, act on them one by one, and read them; and why their number cannot change."""

    def __init__(self, units: int) -> None:
        self.units = units
        self.makers: list[nn.Module] = []
        self.readers: list[nn.Module] = []
        self.gain = math.sqrt(2)
        self.reason: str | None = None
        self._joined_to: Space | None = None

    @property
    def root(self) -> Space:
        """The space that this one has become a part of, or itself."""
        space = self
        while space._joined_to is not None:
            space = space._joined_to
        return space

    @property
    def dtype(self) -> torch.dtype:
        """The kind of number that the units are."""
        tensors = (tensor for maker in self.root.makers for tensor in maker.parameters())
        return next(tensors, torch.empty(0)).dtype

    def fix(self, reason: str) -> None:
        """The number of units must stay as it is; the first reason is kept."""
        self.root.reason = self.root.reason or reason

    def join(self, other: Space, where: str) -> Space:
        """These units and the other's are the same, unit by unit.

        >>> conv, shortcut = Space(16), Space(16)
        >>> shortcut.fix("it is the output")
        >>> conv.join(shortcut, "add").root.reason
        'it is the output'
        """
        one, two = self.root, other.root
        if one is two:
            return one
        if one.units != two.units:
            for space, by in ((one, two), (two, one)):
                space.fix(f"{where} joins its {space.units} units with {by.units} others, so they are not the same")
            return one
        one.makers += two.makers
        one.readers += two.readers
        one.reason = one.reason or two.reason
        two._joined_to = one
        return one

    def found(self, order: Mapping[nn.Module, int]) -> list[Hidden | Refusal]:
        """What came of it: a hidden axis, layers whose width stays fixed, or nothing if no layer makes the units.

        `order` is the place of each module in the model: the first that makes units gives them their name.
        """
        makers = sorted(self.makers, key=order.__getitem__)
        weighted = [layer for layer in makers if layout_of(layer) and not is_depthwise(layer)]
        if not weighted:
            return []
        if self.reason is None and not self.readers:
            self.fix("no layer reads its units")
        if self.reason is not None:
            return [Refusal(layer, self.reason) for layer in dict.fromkeys(weighted)]
        made_by, read_by = dict.fromkeys([weighted[0], *makers]), dict.fromkeys(self.readers)
        return [Hidden(tuple(made_by), tuple(read_by), self.gain)]


@dataclass(frozen=True)
class Units:
    """An activation that carries units along dimension `dim`, counted from the end.

    `flat`: the dimension holds an equal number of entries for each unit, after a flatten. `rank` is the number
    of dimensions, if it is known. `rest` is what stands in the room for units to come, if that is known.
    """

    space: Space
    dim: int
    rank: int | None = None
    flat: bool = False
    rest: float | None = 0.0

    @property
    def stirred(self) -> Units:
        """The same after an operation that leaves zeros, but perhaps no other number."""
        return self if self.rest == 0 else replace(self, rest=None)

    def may_lie_at(self, index: Any) -> bool:
        """Whether an index into the shape may name the dimension of the units."""
        if isinstance(index, int):
            dims = from_end(index, self.rank)
            return dims is None or dims == [self.dim]
        if self.rank is not None and isinstance(index, slice):
            return self.rank + self.dim in range(self.rank)[index]
        return bool(index != slice(None, -1, None)) or self.dim < -1


@dataclass(frozen=True)
class Other:
    """An activation whose width nobody learns: the input, or what an unknown operation made."""

    what: str
    shape: tuple[int, ...] | None = None

    @property
    def rank(self) -> int | None:
        """The number of dimensions, if it is known."""
        return None if self.shape is None else len(self.shape)

    def broadcasts(self, dim: int) -> bool:
        """Whether it has one entry along the dimension of units, for all of them the same."""
        return self.shape is not None and (len(self.shape) < -dim or self.shape[dim] == 1)


@dataclass(frozen=True)
class Pair:
    """Values that carry units, and beside them the places where they were found."""

    of: Units


@dataclass(frozen=True)
class Sizes:
    """The shape of an activation, which a forward has asked for."""

    of: Units | Other


@dataclass(frozen=True)
class Count:
    """A number that a forward took from a shape: of units, or of samples if there is no space."""

    space: Space | None
