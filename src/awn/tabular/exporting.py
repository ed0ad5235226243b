"""`export_model`: write a table's model as ONNX, torch.export or safetensors, for use without awn."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from awn.basics.extra import needs_extra
from awn.basics.names import listed
from awn.errors import ArgumentError
from awn.export import onnx_bytes, program_bytes
from awn.export.check import check_same
from awn.export.columns import Words, with_columns
from awn.files.write import tensor_file, write_files
from awn.tabular.estimators import AdaptiveClassifier
from awn.tabular.folder import Estimator, load_estimator, read_about
from awn.tabular.read.values import MISSING_WORDS
from awn.tabular.table_network import ColumnNetwork, MatrixNetwork

ExportFormat = Literal["onnx", "torch", "safetensors"]
_EXAMPLE_ROWS = 16
_TOLERANCE = 1e-4  # of a network in single precision


def export_model(model: Path, path: Path, export_format: str) -> str:
    """Write the network of a model folder to a file; returns a description of its inputs and outputs.

    If all columns of the table are numbers, ONNX and torch files take a matrix of them in double precision, with NaN
    for missing values. Otherwise an ONNX file has an input for each column: strings for categories, "" if missing, and
    numbers for the rest. A torch file takes the encoded columns then. Their output is class probabilities, or
    predictions in the unit of the target.
    """
    if export_format not in get_args(ExportFormat):
        raise ArgumentError(
            f"format must be one of {', '.join(get_args(ExportFormat))}; got {export_format!r}.", argument="format"
        )
    estimator, about = load_estimator(model), read_about(model)
    if path.is_dir():
        raise ArgumentError(f"{path} is a folder. Pass a file to write.")
    if export_format == "safetensors":
        return _export_weights(estimator, about, path)
    if export_format == "onnx" and ColumnNetwork.takes(estimator):
        return _export_columns(estimator, path)
    whole = MatrixNetwork(estimator)
    example = whole.example_rows(_EXAMPLE_ROWS)
    check_same(whole(example).detach(), _outputs(estimator, whole, example), "whole network", _TOLERANCE)
    content = onnx_bytes(whole, example) if export_format == "onnx" else program_bytes(whole, example)
    write_files({path: content})
    kind = "the table's columns" if whole.pieces is not None else "the encoded columns"
    number = str(example.dtype).removeprefix("torch.")
    return f"Input: {kind} as {number}, {listed(whole.input_names, most=8)}. Output: {_output(estimator)}."


def _export_weights(estimator: Estimator, about: dict[str, Any], path: Path) -> str:
    network = estimator.to_torch()
    description: dict[str, Any] = {"layers": [str(layer) for layer in network.children()], "about": about}
    if isinstance(estimator, AdaptiveClassifier):
        description["temperature"] = estimator.temperature_
    write_files({path: tensor_file(dict(network.state_dict()), description)})
    return f"Weights of {', '.join(description['layers'])}."


def _export_columns(estimator: Estimator, path: Path) -> str:
    """Write an ONNX file with an input for each column, checked against the estimator's own predictions."""
    whole = ColumnNetwork(estimator)
    words = [
        Words(name, _with_missing_words(own.codes), own.unknown)
        for name, own in zip(whole.categories, estimator.preprocessor_.category_codes(), strict=True)
    ]
    content = with_columns(onnx_bytes(whole, whole.example(_EXAMPLE_ROWS)), whole.numbers, words)
    frame = whole.example_frame(_EXAMPLE_ROWS)
    for rows in (frame, frame.head(1)):
        got = run_columns(content, whole, rows)
        every = estimator.preprocessor_.select(rows)  # with the columns that are not used
        own = estimator.predict_proba(every) if isinstance(estimator, AdaptiveClassifier) else estimator.predict(every)
        wanted = torch.from_numpy(np.asarray(own, dtype=np.float64).reshape(len(rows), -1))
        check_same(torch.from_numpy(got), wanted, "ONNX file", _TOLERANCE)
    write_files({path: content})
    says = [f"strings for {listed(whole.categories, most=8)}"] if whole.categories else []
    plain = [name for name in whole.numbers if name not in whole.dates]
    says += [f"float64 for {listed(plain, most=8)}, NaN if missing"] if plain else []
    says += [f"float64 days since 1970-01-01 for {listed(whole.dates, most=8)}"] if whole.dates else []
    missing = ' A missing category is "".' if whole.categories else ""
    return (
        f"Inputs: one for each column, [rows, 1]: {'; '.join(says)}.{missing} Output: {_output(estimator)}. "
        "Checked against the model's predictions."
    )


def run_columns(content: bytes, whole: ColumnNetwork, frame: pd.DataFrame) -> Any:
    """The output of an ONNX file for the rows of a table, in onnxruntime."""
    with needs_extra("running ONNX needs onnxruntime", "onnx", "onnxruntime"):
        import onnxruntime

    session = onnxruntime.InferenceSession(content)
    return session.run(None, whole.inputs_of(frame))[0]


def _with_missing_words(codes: dict[str, int]) -> dict[str, int]:
    """The codes of levels, and of every word for a missing value if that is a level."""
    if "" not in codes:
        return codes
    missing = {form for word in MISSING_WORDS for form in (word, word.upper(), word.capitalize())} | {"NaN", "<NA>"}
    return {**dict.fromkeys(sorted(missing), codes[""]), **codes}


def _output(estimator: Estimator) -> str:
    if isinstance(estimator, AdaptiveClassifier):
        return f"the probabilities of {listed(map(str, estimator.classes_))}"
    return "the prediction"


def _outputs(estimator: Estimator, whole: MatrixNetwork, example: Tensor) -> Tensor:
    """The estimator's own predictions for the rows."""
    encoded = example.numpy()
    if whole.pieces is not None:
        encoded = estimator.preprocessor_.transform(pd.DataFrame(encoded, columns=whole.input_names))
    out: Tensor = estimator.network_(torch.from_numpy(encoded).double())
    if isinstance(estimator, AdaptiveClassifier):
        return (out / estimator.temperature_).softmax(1)
    return out * torch.from_numpy(estimator.target_scale_) + torch.from_numpy(estimator.target_mean_)
