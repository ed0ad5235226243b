"""Axis: one dimension of one tensor that follows a learned width, and the layout of its entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from torch import Tensor, nn

from awn.basics.checks import check_units
from awn.errors import ArgumentError

Role = Literal["producer", "consumer"]
#: Neighbouring entries of a dimension, with the width that they belong to: so many for each unit of it, or so many in
#: all if they belong to none.
#: The width is an `awn.core.width.Width` or None.
Blocks: TypeAlias = tuple[tuple[Any, int], ...]


@dataclass(frozen=True)
class Block:
    """Neighbouring entries of a dimension.

    `entries` for each unit of the width that the axis follows, or of another one (`of`), which the dimension follows as
    well; or, if they are `fixed`, so many in all. Fused queries, keys and values are three blocks, and so are the
    channels of an image after a concatenation with others.

    >>> Block(64), Block(3, fixed=True)
    (Block(entries=64, of=None, fixed=False), Block(entries=3, of=None, fixed=True))
    """

    entries: int
    of: Any = None
    fixed: bool = False

    def __post_init__(self) -> None:
        check_units("the entries of a block", self.entries)


Layout: TypeAlias = int | Sequence[Block]


@dataclass(frozen=True, eq=False)
class Axis:
    """Dimension `dim` of `module.name`, whose entries belong to the units of a learned width.

    A producer axis makes the units: a weight's rows, a bias, a batch norm's vectors. A consumer axis reads them: the
    next weight's columns. The `layout` says where the entries of the units are. A number is that of the entries per
    unit, more than one after a flatten; otherwise it is a sequence of blocks. New units are drawn at random, or start
    from the constant `fill`. `size_name` names the attributes of the module that record the size and are kept up to
    date: `out_features`, `num_features`, …
    """

    module: nn.Module
    name: str
    dim: int
    role: Role
    layout: Layout = 1
    fill: float | None = None
    size_name: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise ArgumentError(f"an axis's role is 'producer' or 'consumer', got {self.role!r}.")
        tensor = self.tensor
        dims = tensor.dim()
        if not 0 <= self.dim < dims:
            raise ArgumentError(f"{self} has dimensions 0 to {dims - 1}, so dim={self.dim} does not exist.")
        if isinstance(self.layout, int):
            check_units("layout", self.layout)
        if not any(block.of is None and not block.fixed for block in self.blocks):
            raise ArgumentError(f"the layout of {self} has no entries of the units that it follows.")

    def __str__(self) -> str:
        return f"{type(self.module).__name__}.{self.name}"

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The layout as blocks."""
        return (Block(self.layout),) if isinstance(self.layout, int) else tuple(self.layout)

    @property
    def is_plain(self) -> bool:
        """Whether all entries belong to the units, those of the first unit first."""
        return isinstance(self.layout, int) or (len(self.layout) == 1)

    @property
    def per_unit(self) -> int:
        """The entries of a unit."""
        if isinstance(self.layout, int):
            return self.layout
        return sum(block.entries for block in self.layout if block.of is None and not block.fixed)

    def blocks_of(self, width: Any) -> Blocks:
        """The blocks, with the width that each belongs to; `width` is the one that the axis follows.

        >>> from awn.core.width import Width
        >>> width = Width()
        >>> Axis(nn.Linear(8, 3), "weight", 1, "consumer", layout=2).blocks_of(width) == ((width, 2),)
        True
        """
        if isinstance(self.layout, int):
            return ((width, self.layout),)
        return tuple((None if block.fixed else block.of or width, block.entries) for block in self.layout)

    @property
    def size_names(self) -> Sequence[str]:
        """The attributes of the module that record the size."""
        return (self.size_name,) if isinstance(self.size_name, str) else self.size_name or ()

    @property
    def tensor(self) -> Tensor:
        """The stored tensor: for a gated weight, the raw Parameter."""
        tensor: Tensor | None = self.module._parameters.get(self.name)
        if tensor is None:
            tensor = self.module._buffers.get(self.name)
        if tensor is None:
            computed = isinstance(getattr(self.module, self.name, None), Tensor)
            raise ArgumentError(
                f"{self} is computed from other tensors, by a parametrization such as weight norm or by pruning, so it "
                "cannot be resized. Remove the parametrization or pruning first."
                if computed
                else f"{self} is not a tensor, so it has no axis of units."
            )
        return tensor
