"""Hidden: an axis of units that may get a learned width, as the layers that make the units and those that read them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from awn.adapt.layers import input_axes, units_made_by
from awn.core.axes import produced_by
from awn.core.axis import Axis
from awn.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class Hidden:
    """Layers that make units, or act on each unit alone, and the layers that read them.

    The first of `producers` must have a weight; it carries the learned width. `gain` is Kaiming+'s, see
    `awn.core.initialise.gain_of`.
    """

    producers: tuple[nn.Module, ...]
    consumers: tuple[nn.Module, ...]
    gain: float = math.sqrt(2)

    @property
    def units(self) -> int:
        """The number of units that the producers make."""
        sizes = {units_made_by(layer) for layer in self.producers}
        if len(sizes) != 1:
            raise ArgumentError(f"the layers that make the units disagree on their number: {sorted(sizes)}.")
        return sizes.pop()

    def axes(self) -> list[Axis]:
        """Every tensor dimension that has the width.

        >>> hidden = Hidden((nn.Linear(2, 8),), (nn.Linear(8, 3),))
        >>> hidden.units, [str(axis) for axis in hidden.axes()]
        (8, ['Linear.weight', 'Linear.bias', 'Linear.weight'])
        """
        made = [axis for layer in self.producers for axis in produced_by(layer)]
        return made + [axis for layer in self.consumers for axis in input_axes(layer, self.units)]


@dataclass(frozen=True, eq=False)
class Refusal:
    """A layer whose width cannot be learned, and why."""

    layer: nn.Module
    reason: str
