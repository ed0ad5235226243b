"""Checks that an export computes the same as its model."""

from __future__ import annotations

import torch
from torch import Tensor

from awn.errors import AwnError


class ExportError(AwnError, RuntimeError):
    """An export that failed, or that computes something different from its model."""


def reason(error: BaseException) -> str:
    """The first line of the root cause of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip() or repr(error)).splitlines()[0].rstrip(" .")


def check_same(exported: Tensor, expected: Tensor, what: str, tolerance: float) -> None:
    """Raise if the outputs of an export differ from the model's by more than a relative tolerance."""
    if exported.shape != expected.shape or not torch.isfinite(expected).all():
        raise ExportError(
            f"the {what} could not be checked: its output has shape {tuple(exported.shape)}, the model's "
            f"{tuple(expected.shape)}. The shapes must agree, and all outputs must be finite. Nothing was written."
        )
    size = max(1.0, expected.abs().max().item())
    difference = (exported.to(expected.dtype) - expected).abs().max().item()
    if not difference <= tolerance * size:  # a NaN is a difference too
        raise ExportError(
            f"the {what} computes something different from the model: outputs differ by up to {difference:.2g}, "
            f"more than {tolerance * size:.2g}. Nothing was written."
        )
