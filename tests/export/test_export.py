"""Exports of models that were made adaptive: the files compute what the models compute, at any number of rows."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn

import awn

needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")


def convolutions() -> tuple[nn.Module, Any]:
    layers = [
        nn.Conv2d(1, 20, 3),
        nn.BatchNorm2d(20),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(80, 3),
    ]
    return nn.Sequential(*layers), torch.randn(4, 1, 8, 8)


def encoder() -> tuple[nn.Module, Any]:
    layer = nn.TransformerEncoderLayer(8, 2, 20, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), torch.randn(4, 5, 8)


def bert() -> tuple[nn.Module, Any]:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20)
    ids = torch.randint(0, 30, (4, 6))
    return BertForSequenceClassification(config), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


CASES = [
    pytest.param(convolutions, id="convolutions"),
    pytest.param(encoder, id="encoder"),
    pytest.param(bert, id="bert", marks=needs_transformers),
]


def narrowed(make: Callable[[], tuple[nn.Module, Any]]) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model, example = make()
    awn.adapt_(model.eval())
    awn.advanced.set_units_(model, {group.name: 13 for group in awn.advanced.find_groups(model)}, optimizer=None)
    return model, example


@pytest.mark.parametrize("make", CASES)
def test_onnx(make: Callable[[], tuple[nn.Module, Any]], tmp_path: Path) -> None:
    model, example = narrowed(make)
    awn.export.onnx(model, tmp_path / "model.onnx", example, round_to=8)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    given = {"input": example} if isinstance(example, torch.Tensor) else example
    got = session.run(None, {name: tensor[:2].numpy() for name, tensor in given.items()})[0]
    few = {name: tensor[:2] for name, tensor in given.items()}
    expected = model(few["input"]) if "input" in few else model(**few).logits
    torch.testing.assert_close(torch.from_numpy(got), expected.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", CASES[:2])
def test_program(make: Callable[[], tuple[nn.Module, Any]], tmp_path: Path) -> None:
    model, example = narrowed(make)
    awn.export.program(model, tmp_path / "model.pt2", example)
    program = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(program(example[:3]), model(example[:3]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", CASES[1:])
@pytest.mark.parametrize("any_rows", [True, False])
def test_sequences_of_any_length(make: Callable[[], tuple[nn.Module, Any]], any_rows: bool, tmp_path: Path) -> None:
    model, example = narrowed(make)
    awn.export.onnx(model, tmp_path / "model.onnx", example, any_rows=any_rows, any_length=True)
    given = {"input": example} if isinstance(example, torch.Tensor) else example
    longer = {name: torch.cat([tensor, tensor], dim=1) for name, tensor in given.items()}
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    got = session.run(None, {name: tensor.numpy() for name, tensor in longer.items()})[0]
    expected = model(longer["input"]) if "input" in longer else model(**longer).logits
    torch.testing.assert_close(torch.from_numpy(got), expected.detach(), rtol=1e-4, atol=1e-4)


def test_a_length_that_the_model_fixes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(awn.AwnError, match="any_length=False supports only that of the example"):
        awn.export.onnx(nn.Linear(5, 2), tmp_path / "model.onnx", torch.randn(4, 5), any_length=True)
    assert not list(tmp_path.iterdir())


def test_several_outputs_at_a_fixed_number_of_rows(tmp_path: Path) -> None:
    rnn = awn.nn.AdaptiveRNN(2, 4, importance=awn.Exponential.for_units(6))
    example = torch.randn(3, 2, 2)
    awn.export.onnx(rnn, tmp_path / "rnn.onnx", example, any_rows=False)
    session = onnxruntime.InferenceSession(tmp_path / "rnn.onnx")
    assert [output.name for output in session.get_outputs()] == ["output_0", "output_1"]


@pytest.mark.parametrize("round_to", [1, 8, 64])
def test_rounded_widths_compute_the_same(round_to: int) -> None:
    model, example = narrowed(convolutions)
    plain = awn.finalize(model, round_to=round_to)
    assert plain[0].out_channels == {1: 13, 8: 16, 64: 64}[round_to]
    torch.testing.assert_close(plain(example), model(example))


def test_a_model_that_cannot_be_exported_leaves_no_file(tmp_path: Path) -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) if x.sum() > 0 else x

    for export in (awn.export.onnx, awn.export.program):
        with pytest.raises(awn.AwnError, match="torch cannot export this model"):
            export(Branches(), tmp_path / "model", torch.randn(4, 2))
    assert not list(tmp_path.iterdir())
    with pytest.raises(awn.AwnError, match="round_to"):
        awn.finalize(awn.AdaptiveMLP(2, 2), round_to=0)
