"""Export to ONNX."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from awn.basics.extra import needs_extra
from awn.export.call import Call, Free, plain_copy
from awn.export.check import ExportError, check_same, reason
from awn.files.write import write_files


def onnx(
    model: nn.Module,
    path: str | Path,
    example_input: Any,
    *,
    any_rows: bool = True,
    any_length: bool = False,
    round_to: int = 1,
    tolerance: float = 1e-4,
) -> None:
    """Write a model, adaptive or plain, as an ONNX file, after comparing its outputs in onnxruntime.

    `example_input` is a tensor, a tuple of arguments, or a dict of named arguments. With `any_rows`, the first
    dimension of each tensor is variable. With `any_length`, the second one is too: the length of sequences.
    `round_to=8` rounds widths up to multiples of 8, which suit hardware.

    >>> import awn, onnxruntime, tempfile
    >>> path = Path(tempfile.mkdtemp(), "model.onnx")
    >>> awn.export.onnx(awn.AdaptiveMLP(2, 3), path, torch.randn(4, 2))
    >>> onnxruntime.InferenceSession(path).run(None, {"input": torch.zeros(7, 2).numpy()})[0].shape
    (7, 3)
    """
    plain = plain_copy(model, round_to)
    sizes = {"any_rows": any_rows, "any_length": any_length}
    write_files({Path(path): onnx_bytes(plain, example_input, **sizes, tolerance=tolerance)})


def onnx_bytes(
    module: nn.Module, example_input: Any, *, any_rows: bool = True, any_length: bool = False, tolerance: float = 1e-4
) -> bytes:
    """The content of an ONNX file, checked with onnxruntime on the example and at other sizes.

    >>> import awn, onnxruntime
    >>> plain = awn.finalize(awn.AdaptiveMLP(2, 3)).eval()
    >>> session = onnxruntime.InferenceSession(onnx_bytes(plain, torch.randn(4, 2)))
    >>> session.run(None, {"input": torch.zeros(7, 2).numpy()})[0].shape
    (7, 3)
    """
    packages = ("onnx", "onnxruntime", "onnxscript")
    with needs_extra("exporting to ONNX needs onnxruntime and onnxscript", "onnx", *packages):
        import onnxruntime
        import onnxscript  # noqa: F401  what torch's exporter needs
    call, free = Call.of(example_input), Free(any_rows, any_length)
    content = _export(module, call, free)
    for one in [call, *call.others(free)]:
        try:
            session = onnxruntime.InferenceSession(content)
            inputs = [given.name for given in session.get_inputs()]
            rows = {name: tensor.numpy() for name, tensor in zip(one.names(), one.tensors(), strict=True)}
            results = session.run(None, {name: rows[name] for name in inputs})
        except Exception as error:
            raise ExportError(
                f"onnxruntime cannot run the ONNX file{free}: {reason(error)}. Nothing was written."
            ) from error
        for got, expected in zip(results, one.outputs(module), strict=True):
            check_same(torch.from_numpy(got), expected, "ONNX file", tolerance)
    return content


def _export(module: nn.Module, call: Call, free: Free) -> bytes:
    log = logging.getLogger("torch.onnx")
    level = log.level
    outputs = len(call.check(module.eval()))
    with warnings.catch_warnings():
        # Warnings of torch's exporter about itself.
        warnings.simplefilter("ignore")
        log.setLevel(logging.ERROR)
        try:
            program = torch.onnx.export(
                module.eval(),
                call.args,
                kwargs=call.kwargs or None,
                input_names=call.names(),
                output_names=["output"] if outputs == 1 else [f"output_{place}" for place in range(outputs)],
                dynamic_shapes=call.dynamic_shapes(free),
                dynamo=True,
                verbose=False,
            )
        except Exception as error:
            raise ExportError(f"torch cannot export this model to ONNX{free}: {reason(error)}.") from error
        finally:
            log.setLevel(level)
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content
