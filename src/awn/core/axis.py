"""Axis: one dimension of one tensor that follows a learned width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor, nn

from awn.basics.checks import check_units
from awn.errors import ArgumentError

Role = Literal["producer", "consumer"]


@dataclass(frozen=True, eq=False)
class Axis:
    """Dimension `dim` of `module.name`, whose entries belong to the units of a learned width.

    A producer axis makes the units: a weight's rows, a bias, a batch norm's vectors. A consumer axis reads them: the
    next weight's columns, with `repeat` entries per unit, more than one after a flatten. New units are drawn at random,
    or start from the constant `fill`. `size_name` names the attributes of the module that record the size and are kept
    up to date: `out_features`, `num_features`, …
    """

    module: nn.Module
    name: str
    dim: int
    role: Role
    repeat: int = 1
    fill: float | None = None
    size_name: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise ArgumentError(f"an axis's role is 'producer' or 'consumer', got {self.role!r}.")
        tensor = self.tensor
        dims = tensor.dim()
        if not 0 <= self.dim < dims:
            raise ArgumentError(f"{self} has dimensions 0 to {dims - 1}, so dim={self.dim} does not exist.")
        check_units("repeat", self.repeat)

    def __str__(self) -> str:
        return f"{type(self.module).__name__}.{self.name}"

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
