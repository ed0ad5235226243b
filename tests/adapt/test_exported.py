"""Models of blocks, heads and recurrent layers, adaptive and resized: as ONNX files, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import awn
import convert_blocks
import convert_models
from convert_models import run

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning",  # PyTorch Geometric, as it is imported
    "ignore:.*:UserWarning",  # of torch's exporters
    "ignore:.*:FutureWarning",
    "ignore:.*:DeprecationWarning",
)

BLOCKS = ("attention", "experts", "u-net", "dense", "glu", "groups")
OTHERS = ("bert", "gpt-2", "squeeze and excite", "gin", "encoder", "attending", "lstm")
# Of a graph, the number of nodes is not one of rows.
FIXED_ROWS = ("gin",)
COMPILED = ("attention", "experts", "u-net", "bert", "attending")


def resized(name: str) -> tuple[nn.Module, Any]:
    """An adaptive model with other widths than it had, in single precision, and what to call it with."""
    torch.manual_seed(0)
    if name in BLOCKS:
        build, x, _, _ = convert_blocks.MODELS[name]
        model, inputs = build().float(), (x.float(),)
    else:
        case = convert_models.MODELS[name]
        model, inputs = case.build(), case.inputs()
    awn.adapt_(model.eval(), example_input=inputs, block=4)
    before = awn.widths(model)
    awn.advanced.set_units_(
        model, {layer: units + place % 2 + 1 for place, (layer, units) in enumerate(before.items())}
    )
    return model, inputs


@pytest.mark.parametrize("name", [*BLOCKS, *OTHERS])
def test_an_onnx_file_computes_what_the_model_computes(name: str, tmp_path: Path) -> None:
    model, inputs = resized(name)
    inputs = {key: value for key, value in inputs.items() if isinstance(value, Tensor)} if name == "gpt-2" else inputs
    model = _Logits(model) if name in ("bert", "gpt-2") else model
    path = tmp_path / "model.onnx"
    awn.export.onnx(
        model,
        path,
        inputs if isinstance(inputs, dict) or len(inputs) > 1 else inputs[0],
        any_rows=name not in FIXED_ROWS,
    )
    session = onnxruntime.InferenceSession(path)
    given = [value for value in pytree.tree_leaves(inputs) if isinstance(value, Tensor)]
    names = [one.name for one in session.get_inputs()]
    results = session.run(None, {key: value.numpy() for key, value in zip(names, given, strict=True)})
    expected = run(model, inputs)[0].detach()
    torch.testing.assert_close(torch.from_numpy(results[0]), expected, rtol=1e-4, atol=1e-4)


class _Logits(nn.Module):
    """The first output of a model of Hugging Face."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        options = {"use_cache": False} if type(self.model).__name__ == "GPT2LMHeadModel" else {}
        return self.model(input_ids=input_ids, **options)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_model_computes_and_learns_the_same_at_several_widths(name: str) -> None:
    torch.compiler.reset()
    model, inputs = resized(name)
    compiled: Callable[..., Any] = torch.compile(model, backend="aot_eager")
    for by in (0, 2, -1):
        wanted = {layer: max(2, units + by) for layer, units in awn.widths(model).items()}
        awn.advanced.set_units_(model, wanted)
        found = {}
        for call in (model, compiled):
            model.zero_grad()
            outputs = run(call, inputs)  # type: ignore[arg-type]
            sum(out.square().mean() for out in outputs).backward()  # type: ignore[union-attr]
            grads = {path: p.grad.clone() for path, p in model.named_parameters() if p.grad is not None}
            found[call] = [out.detach() for out in outputs], grads
        assert found[model][1]
        torch.testing.assert_close(found[compiled], found[model], rtol=1e-4, atol=1e-5)
    torch.compiler.reset()
