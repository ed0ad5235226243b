"""Attribute: a number in a module, or in its configuration, that has to follow learned widths."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from torch import nn

from awn.core.axis import Blocks
from awn.core.places import extent
from awn.errors import ArgumentError

# In front of the name of a number that is kept in `module.config`.
_CONFIG = "config."


@dataclass(frozen=True, eq=False)
class Attribute:
    """A number that a module's forward reads, such as a number of heads, and the entries that it counts.

    `name` is an attribute of the module or, after `config.`, of its configuration. `index` is the place of the number
    if the attribute is a list or a tuple. Modules share configurations, so one that changes is copied first.

    >>> from awn.core.width import Width
    >>> class Heads(nn.Module):
    ...     size = 0
    >>> module, width = Heads(), Width()
    >>> module.size = 464
    >>> Attribute(module, "size", ((width, 2),)).update_()         # as it is: two for each of 232 slots
    >>> module.size
    464
    """

    module: nn.Module
    name: str
    counts: Blocks
    index: int | None = None

    @property
    def value(self) -> Any:
        """The present number, or None if the module has no such number."""
        held = vars(self._holder).get(self.name.removeprefix(_CONFIG))
        if self.index is None:
            return held
        return held[self.index] if isinstance(held, list | tuple) and self.index < len(held) else None

    @property
    def _holder(self) -> Any:
        if not self.name.startswith(_CONFIG):
            return self.module
        config = getattr(self.module, "config", None)
        if not hasattr(config, "__dict__"):
            raise ArgumentError(f"{type(self.module).__name__} has no configuration, so it has no {self.name!r}.")
        return config

    def update_(self) -> None:
        """Set the number to what the present capacities make it."""
        self.set_(extent(self.counts))

    def set_(self, number: int) -> None:
        """Set the number."""
        if self.value == number:
            return
        name = self.name.removeprefix(_CONFIG)
        if self.name.startswith(_CONFIG):
            self.module.config = copy.copy(self.module.config)
        held = vars(self._holder)
        if self.index is None:
            held[name] = number
        else:
            several = [*held[name]]
            several[self.index] = number
            held[name] = type(held[name])(several)
