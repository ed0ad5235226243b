"""torch.export: a plain module as a program that torch loads without its code."""

from __future__ import annotations

import io

import torch
from torch import Tensor, nn

from awn.export.check import ExportError, check_same


def program_bytes(module: nn.Module, example: Tensor, *, tolerance: float = 1e-5) -> bytes:
    """The content of a `torch.export` file, checked on `example`; `torch.export.load` reads it.

    >>> import awn, io
    >>> plain = awn.finalize(awn.AdaptiveMLP(2, 3)).eval()
    >>> program = torch.export.load(io.BytesIO(program_bytes(plain, torch.randn(4, 2))))
    >>> program.module()(torch.zeros(7, 2)).shape
    torch.Size([7, 3])
    """
    try:
        program = torch.export.export(
            module.eval(), (example,), dynamic_shapes=({0: torch.export.Dim("rows", min=1)},), strict=False
        )
    except Exception as error:
        raise ExportError(f"torch cannot export this model: {error}") from error
    content = io.BytesIO()
    torch.export.save(program, content)
    loaded = torch.export.load(io.BytesIO(content.getvalue())).module()
    with torch.no_grad():
        check_same(loaded(example), module(example), "exported program", tolerance)
    return content.getvalue()
