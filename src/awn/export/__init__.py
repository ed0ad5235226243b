"""Exports: models for use without awn, each checked against the original before it is written."""

from awn.export.onnx import onnx_bytes
from awn.export.program import program_bytes

__all__ = ["onnx_bytes", "program_bytes"]
