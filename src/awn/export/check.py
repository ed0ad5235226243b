"""An export must compute what its model computes."""

from __future__ import annotations

import torch
from torch import Tensor

from awn.errors import AwnError


class ExportError(AwnError, RuntimeError):
    """An export that could not be made, or that computes something else than its model."""


def reason(error: BaseException) -> str:
    """Why something failed, in one line: the first of the error that the others come from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip() or repr(error)).splitlines()[0].rstrip(" .")


def for_rows(any_rows: bool) -> str:
    """For which numbers of rows an export is made, in words.

    >>> for_rows(any_rows=False)
    ''
    """
    return " for any number of rows (any_rows=False asks for the example's alone)" if any_rows else ""


def check_same(exported: Tensor, expected: Tensor, what: str, tolerance: float) -> None:
    """Refuse an export whose outputs differ from the model's by more than the tolerance, relative to their size."""
    if exported.shape != expected.shape or not torch.isfinite(expected).all():
        raise ExportError(
            f"the {what} could not be checked: its output has shape {tuple(exported.shape)}, the model's "
            f"{tuple(expected.shape)}, and all of that must be finite. Nothing was written."
        )
    size = max(1.0, expected.abs().max().item())
    difference = (exported.to(expected.dtype) - expected).abs().max().item()
    if not difference <= tolerance * size:  # a NaN is a difference too
        raise ExportError(
            f"the {what} computes something else than the model: outputs differ by up to {difference:.2g}, "
            f"more than {tolerance * size:.2g}. Nothing was written."
        )
