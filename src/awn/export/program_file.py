"""Export with torch.export: a program that torch loads without the model's code."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from torch import nn

from awn.export.call import Call, Free, plain_copy
from awn.export.check import ExportError, check_same, reason
from awn.files.write import write_files


def program(
    model: nn.Module,
    path: str | Path,
    example_input: Any,
    *,
    any_rows: bool = True,
    any_length: bool = False,
    round_to: int = 1,
    tolerance: float = 1e-5,
) -> None:
    """Write a model, adaptive or plain, as a `torch.export` file, after comparing its outputs.

    The options are those of `awn.export.onnx`.

    >>> import awn, tempfile
    >>> path = Path(tempfile.mkdtemp(), "model.pt2")
    >>> awn.export.program(awn.AdaptiveMLP(2, 3), path, torch.randn(4, 2))
    >>> torch.export.load(path).module()(torch.zeros(7, 2)).shape
    torch.Size([7, 3])
    """
    plain = plain_copy(model, round_to)
    sizes = {"any_rows": any_rows, "any_length": any_length}
    write_files({Path(path): program_bytes(plain, example_input, **sizes, tolerance=tolerance)})


def program_bytes(
    module: nn.Module, example_input: Any, *, any_rows: bool = True, any_length: bool = False, tolerance: float = 1e-5
) -> bytes:
    """The content of a `torch.export` file, checked on the example and at other sizes.

    >>> import awn, io
    >>> plain = awn.finalize(awn.AdaptiveMLP(2, 3)).eval()
    >>> program = torch.export.load(io.BytesIO(program_bytes(plain, torch.randn(4, 2))))
    >>> program.module()(torch.zeros(7, 2)).shape
    torch.Size([7, 3])
    """
    call, free = Call.of(example_input), Free(any_rows, any_length)
    call.check(module.eval())
    try:
        exported = torch.export.export(
            module,
            call.args,
            call.kwargs,
            dynamic_shapes=call.dynamic_shapes(free),
            strict=False,
        )
    except Exception as error:
        raise ExportError(f"torch cannot export this model{free}: {reason(error)}.") from error
    content = io.BytesIO()
    torch.export.save(exported, content)
    loaded = torch.export.load(io.BytesIO(content.getvalue())).module()
    for one in [call, *call.others(free)]:
        for got, expected in zip(one.outputs(loaded), one.outputs(module), strict=True):
            check_same(got, expected, "exported program", tolerance)
    return content.getvalue()
