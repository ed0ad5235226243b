"""Export to ONNX and torch.export; each file is checked against the model before it is written."""

from awn.export.onnx_file import onnx, onnx_bytes
from awn.export.program_file import program, program_bytes

__all__ = ["onnx", "onnx_bytes", "program", "program_bytes"]
