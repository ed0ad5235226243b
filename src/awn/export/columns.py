"""Columns of a table as inputs of an ONNX file: a number or a word each, with the codes of words inside the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from awn.basics.extra import needs_extra

_INSIDE = "network/"  # before every name of the network, so that none is that of a column


@dataclass(frozen=True)
class Words:
    """A column of words: the code of each known word, and that of all others."""

    name: str
    codes: Mapping[str, int]
    unknown: int


def with_columns(content: bytes, numbers: Sequence[str], words: Sequence[Words]) -> bytes:
    """An ONNX file whose inputs are columns, [rows, 1], made from one with the inputs `numbers` and `codes`.

    Columns of numbers are float64, those of words are strings, which the file itself turns into codes. A network
    without either kind of column has no such input. The output keeps its name, unless a column has it.
    """
    with needs_extra("exporting to ONNX needs onnx", "onnx", "onnx"):
        import onnx
        from onnx import TensorProto, compose, helper

    model = compose.add_prefix(onnx.load_from_string(content), _INSIDE)
    graph: Any = model.graph
    (made,) = graph.output
    names = {*numbers, *(column.name for column in words)}
    output = next(name for name in ("output", "prediction", "awn output") if name not in names)
    before, inputs = [], []
    for column in words:
        inputs.append(helper.make_tensor_value_info(column.name, TensorProto.STRING, ["rows", 1]))
        before.append(
            helper.make_node(
                "LabelEncoder",
                [column.name],
                [f"{_INSIDE}code of {column.name}"],
                domain="ai.onnx.ml",
                keys_strings=list(column.codes),
                values_int64s=list(column.codes.values()),
                default_int64=column.unknown,
            )
        )
    inputs += [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["rows", 1]) for name in numbers]
    joined = {"codes": [f"{_INSIDE}code of {column.name}" for column in words], "numbers": list(numbers)}
    before += [helper.make_node("Concat", own, [_INSIDE + name], axis=1) for name, own in joined.items() if own]
    nodes = [*before, *graph.node, helper.make_node("Identity", [made.name], [output])]
    changed = helper.make_graph(
        nodes,
        "table",
        inputs,
        [
            helper.make_tensor_value_info(
                output, TensorProto.FLOAT, ["rows", made.type.tensor_type.shape.dim[1].dim_value]
            )
        ],
        initializer=list(graph.initializer),
        value_info=list(graph.value_info),
    )
    opsets = [*model.opset_import, *([helper.make_opsetid("ai.onnx.ml", 3)] if words else [])]
    whole = helper.make_model(
        changed, opset_imports=opsets, functions=list(model.functions), ir_version=model.ir_version
    )
    onnx.checker.check_model(whole)
    return bytes(whole.SerializeToString())
