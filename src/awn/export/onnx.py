"""ONNX: a plain module as a file for onnxruntime and others."""

from __future__ import annotations

import logging
import warnings

import torch
from torch import Tensor, nn

from awn.errors import MissingExtraError
from awn.export.check import ExportError, check_same


def onnx_bytes(module: nn.Module, example: Tensor, *, tolerance: float = 1e-4) -> bytes:
    """The content of an ONNX file, checked with onnxruntime on `example` and on another number of rows.

    >>> import awn, onnxruntime
    >>> plain = awn.finalize(awn.AdaptiveMLP(2, 3)).eval()
    >>> session = onnxruntime.InferenceSession(onnx_bytes(plain, torch.randn(4, 2)))
    >>> session.run(None, {"input": torch.zeros(7, 2).numpy()})[0].shape
    (7, 3)
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  what torch's exporter needs
    except ImportError:
        raise MissingExtraError('exporting to ONNX needs onnxruntime and onnxscript: pip install "awn[onnx]"') from None
    content = _export(module, example)
    for rows in (example, example[:1], torch.cat([example, example[:1]])):
        with torch.no_grad():
            expected = module(rows)
        try:
            got = onnxruntime.InferenceSession(content).run(None, {"input": rows.numpy()})[0]
        except Exception as error:
            raise ExportError(f"onnxruntime cannot run the ONNX file: {error} Nothing was written.") from error
        check_same(torch.from_numpy(got), expected, "ONNX file", tolerance)
    return content


def _export(module: nn.Module, example: Tensor) -> bytes:
    log = logging.getLogger("torch.onnx")
    level = log.level
    with warnings.catch_warnings():
        # What torch's exporter has to say about itself.
        warnings.simplefilter("ignore")
        log.setLevel(logging.ERROR)
        try:
            program = torch.onnx.export(
                module.eval(),
                (example,),
                input_names=["input"],
                output_names=["output"],
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                dynamo=True,
                verbose=False,
            )
        except Exception as error:
            raise ExportError(f"torch cannot export this model to ONNX: {error}") from error
        finally:
            log.setLevel(level)
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content
