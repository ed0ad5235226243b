"""`export_model`: write a table's model as ONNX, torch.export or safetensors, for use without awn."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd
import torch
from torch import Tensor, nn

from awn.basics.names import listed
from awn.errors import ArgumentError
from awn.export import onnx_bytes, program_bytes
from awn.export.check import check_same
from awn.files.write import tensor_file, write_files
from awn.tabular.encode.preprocess import NumericPieces
from awn.tabular.encode.scaling import FARTHEST
from awn.tabular.estimators import AdaptiveClassifier
from awn.tabular.folder import Estimator, load_estimator, read_about

ExportFormat = Literal["onnx", "torch", "safetensors"]
_EXAMPLE_ROWS = 16
_TOLERANCE = 1e-4  # of a network in single precision


def export_model(model: Path, path: Path, export_format: str) -> str:
    """Write the network of a model folder to a file; returns a description of its inputs and outputs.

    If all columns of the table are numeric, ONNX and torch files take these columns in double precision, with NaN for
    missing values. Otherwise they take the encoded columns. Their output is class probabilities, or predictions in the
    unit of the target.
    """
    if export_format not in get_args(ExportFormat):
        raise ArgumentError(
            f"format must be one of {', '.join(get_args(ExportFormat))}; got {export_format!r}.", argument="format"
        )
    estimator, about = load_estimator(model), read_about(model)
    if path.is_dir():
        raise ArgumentError(f"{path} is a folder. Pass a file to write.")
    if export_format == "safetensors":
        network = estimator.to_torch()
        description: dict[str, Any] = {"layers": [str(layer) for layer in network.children()], "about": about}
        if isinstance(estimator, AdaptiveClassifier):
            description["temperature"] = estimator.temperature_
        write_files({path: tensor_file(dict(network.state_dict()), description)})
        return f"Weights of {', '.join(description['layers'])}."
    whole = TableNetwork(estimator)
    example = whole.example_rows(_EXAMPLE_ROWS)
    check_same(whole(example).detach(), _outputs(estimator, whole, example), "whole network", _TOLERANCE)
    content = onnx_bytes(whole, example) if export_format == "onnx" else program_bytes(whole, example)
    write_files({path: content})
    kind = "the table's columns" if whole.pieces is not None else "the encoded columns"
    number = str(example.dtype).removeprefix("torch.")
    return f"Input: {kind} as {number}, {listed(whole.input_names, most=8)}. Output: {whole.output}."


def _outputs(estimator: Estimator, whole: TableNetwork, example: Tensor) -> Tensor:
    """The estimator's own predictions for the rows."""
    encoded = example.numpy()
    if whole.pieces is not None:
        encoded = estimator.preprocessor_.transform(pd.DataFrame(encoded, columns=whole.input_names))
    out: Tensor = estimator.network_(torch.from_numpy(encoded).double())
    if isinstance(estimator, AdaptiveClassifier):
        return (out / estimator.temperature_).softmax(1)
    return out * torch.from_numpy(estimator.target_scale_) + torch.from_numpy(estimator.target_mean_)


class TableNetwork(nn.Module):
    """Encoding, network and output transformation as one module."""

    medians: Tensor
    scales: Tensor
    bin_columns: Tensor
    bin_lows: Tensor
    bin_widths: Tensor
    target_mean: Tensor
    target_scale: Tensor

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        self.network = estimator.to_torch().eval()
        self.pieces: NumericPieces | None = estimator.preprocessor_.numeric_pieces()
        self.classifies = isinstance(estimator, AdaptiveClassifier)
        if self.pieces is not None:
            for name in ("medians", "scales", "bin_columns", "bin_lows", "bin_widths"):
                self.register_buffer(name, torch.from_numpy(getattr(self.pieces, name)))
            self.indicators: list[int] = self.pieces.indicators.tolist()
            self.limit = self.pieces.limit
            self.input_names = list(self.pieces.columns)
            self.booleans = [column.kind == "boolean" for column in estimator.preprocessor_.columns if column.used]
        else:
            self.input_names = estimator.preprocessor_.feature_names
        if not isinstance(estimator, AdaptiveClassifier):
            self.register_buffer("target_mean", torch.as_tensor(estimator.target_mean_, dtype=torch.float32))
            self.register_buffer("target_scale", torch.as_tensor(estimator.target_scale_, dtype=torch.float32))
            self.output = "the prediction"
        else:
            self.temperature = estimator.temperature_
            self.output = f"the probabilities of {listed(map(str, estimator.classes_))}"

    def forward(self, x: Tensor) -> Tensor:
        """[rows, columns] → [rows, classes or targets]."""
        if self.pieces is not None:
            x = self._encode(x.double())
        out: Tensor = self.network(x.float())
        return (out / self.temperature).softmax(1) if self.classifies else out * self.target_scale + self.target_mean

    def _encode(self, x: Tensor) -> Tensor:
        missing = torch.isnan(x)
        filled = torch.where(missing, self.medians, x)
        scaled = ((filled - self.medians) / self.scales).clamp(-FARTHEST, FARTHEST)
        parts = [scaled / (1 + (scaled / self.limit).square()).sqrt()]
        if self.indicators:
            parts.append(missing[:, self.indicators].double())
        if len(self.bin_columns):
            parts.append(((filled[:, self.bin_columns] - self.bin_lows) / self.bin_widths).clamp(0.0, 1.0))
        return torch.cat(parts, dim=1)

    def example_rows(self, rows: int) -> Tensor:
        """Random rows like those of the table, the first with missing values where the table has them."""
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(rows, len(self.input_names), generator=generator)
        if self.pieces is None:
            return noise
        example = noise.double() * self.scales + self.medians
        example[:, self.booleans] = (noise[:, self.booleans] > 0).double()
        example[0, self.indicators] = torch.nan
        return example
