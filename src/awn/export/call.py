"""The example call for making and checking an export."""

from __future__ import annotations

from dataclasses import dataclass
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

    def other_rows(self) -> list[Call]:
        """The same call with a single row, and with one additional row."""
        return [
            Call(*tree.tree_map_only(Tensor, change, (self.args, self.kwargs)))
            for change in (lambda rows: rows[:1], lambda rows: torch.cat([rows, rows[:1]]))
        ]

    def dynamic_shapes(self) -> tuple[Any, ...] | dict[str, Any] | None:
        """The dynamic shapes for torch's exporters: the first dimension of every tensor is variable."""
        rows = torch.export.Dim("rows", min=1)
        shapes: tuple[tuple[Any, ...], dict[str, Any]] = tree.tree_map(
            lambda leaf: {0: rows} if isinstance(leaf, Tensor) else None, (self.args, self.kwargs)
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


def plain_copy(model: nn.Module, round_to: int) -> nn.Module:
    """A finalized copy of a model in evaluation mode; a plain model is used as it is."""
    return (finalize(model, round_to=round_to) if find_groups(model) else uncompiled(model)).eval()
