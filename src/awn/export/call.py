"""The example call for making and checking an export."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as tree

from awn.basics.example import as_call
from awn.core.groups import find_groups
from awn.export.check import ExportError, reason
from awn.parallel.unwrap import uncompiled
from awn.smaller.finalize import finalize


@dataclass(frozen=True)
class Free:
    """What may differ from the example in later calls: the number of rows, and the length of sequences."""

    rows: bool
    length: bool

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of the tensors that are variable.

        >>> Free(rows=True, length=True).dims
        (0, 1)
        """
        return tuple(dim for dim, free in enumerate((self.rows, self.length)) if free)

    def __str__(self) -> str:
        words = [
            *(["number of rows (any_rows=False supports only that of the example)"] if self.rows else []),
            *(["length (any_length=False supports only that of the example)"] if self.length else []),
        ]
        return f" for any {' and '.join(words)}" if words else ""


@dataclass(frozen=True)
class Call:
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, example_input: Any) -> Call:
        """The call of an example input: a tensor, a tuple of arguments, or a dict of named arguments."""
        return cls(*as_call(example_input))

    def tensors(self) -> list[Tensor]:
        """All tensors of the call, in order."""
        return [leaf for leaf in tree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Tensor)]

    def names(self) -> list[str]:
        """A name for each tensor: its own, or `input`, numbered if there are several."""
        numbered = len(self.args) + len(self.kwargs) > 1
        return [*(f"input_{place}" if numbered else "input" for place in range(len(self.args))), *self.kwargs]

    def others(self, free: Free) -> list[Call]:
        """The same call at other sizes: for each free dimension, a single entry, and one entry more."""
        return [
            Call(*tree.tree_map_only(Tensor, partial(change, dim=dim), (self.args, self.kwargs)))
            for dim in free.dims
            for change in (_first, _one_more)
        ]

    def dynamic_shapes(self, free: Free) -> tuple[Any, ...] | dict[str, Any] | None:
        """The dynamic shapes for torch's exporters; None if all sizes are fixed."""
        if not free.dims:
            return None
        sizes = {0: torch.export.Dim("rows", min=1), 1: torch.export.Dim("length", min=1)}
        shapes: tuple[tuple[Any, ...], dict[str, Any]] = tree.tree_map(
            lambda leaf: (
                {dim: sizes[dim] for dim in free.dims if dim < leaf.dim()} if isinstance(leaf, Tensor) else None
            ),
            (self.args, self.kwargs),
        )
        return shapes[1] if self.kwargs else shapes[0]

    def outputs(self, module: nn.Module) -> list[Tensor]:
        """All tensors that a module returns, in order."""
        with torch.no_grad():
            return [leaf for leaf in tree.tree_leaves(module(*self.args, **self.kwargs)) if isinstance(leaf, Tensor)]

    def check(self, module: nn.Module) -> list[Tensor]:
        """The outputs of a module; raises a short error if the example does not fit the model."""
        try:
            return self.outputs(module)
        except Exception as error:
            given = [f"{tuple(one.shape)} of {str(one.dtype).removeprefix('torch.')}" for one in self.tensors()]
            layers = (layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None)
            first = next(layers, module)
            raise ExportError(
                f"the model cannot be run on the example, {', '.join(given) or 'which has no tensors'}: "
                f"{reason(error)}. Its first layer is {type(first).__name__}({first.extra_repr()})."
            ) from error


def _first(tensor: Tensor, dim: int) -> Tensor:
    return tensor.narrow(dim, 0, 1) if dim < tensor.dim() else tensor


def _one_more(tensor: Tensor, dim: int) -> Tensor:
    return torch.cat([tensor, _first(tensor, dim)], dim) if dim < tensor.dim() else tensor


def plain_copy(model: nn.Module, round_to: int) -> nn.Module:
    """A finalized copy of a model in evaluation mode; a plain model is used as it is."""
    return (finalize(model, round_to=round_to) if find_groups(model) else uncompiled(model)).eval()
