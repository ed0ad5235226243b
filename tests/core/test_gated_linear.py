"""The linear map of a large gated layer: its values and derivatives, and what it keeps for the backward pass."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import awn
from awn.core import gated_linear as file
from awn.core.gated_linear import gated_linear, saves_memory

# Inputs of 2 · 12 and 5 · 12 numbers are fewer and more than the 3 · 12 of the weight.
SHAPES: list[tuple[int, ...]] = [(), (2,), (5,), (2, 3)]


def tensors(shape: tuple[int, ...], bias: bool) -> list[Any]:
    """Inputs, weight, bias and importance."""
    torch.manual_seed(0)
    made = [torch.randn(*size, dtype=torch.float64) for size in ((*shape, 12), (3, 12), (3,), (12,))]
    inputs, weight, offset, importance = (tensor.requires_grad_() for tensor in made)
    return [inputs, weight, offset if bias else None, importance]


@pytest.fixture
def every_layer_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(file, "_MANY_ELEMENTS", 0)
        yield


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_both_derivatives_are_those_of_scaled_units(shape: tuple[int, ...], bias: bool) -> None:
    given = tensors(shape, bias)
    inputs, weight, offset, importance = given
    torch.testing.assert_close(gated_linear(*given), F.linear(inputs * importance, weight, offset))
    assert torch.autograd.gradcheck(gated_linear, given)
    assert torch.autograd.gradgradcheck(gated_linear, given)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("trained", range(4))
def test_a_tensor_alone_gets_its_gradient(shape: tuple[int, ...], trained: int) -> None:
    given = [tensor.detach() for tensor in tensors(shape, bias=True)]
    given[trained].requires_grad_()
    inputs, weight, offset, importance = given
    found = torch.autograd.grad(gated_linear(*given).square().sum(), given[trained])
    expected = torch.autograd.grad(F.linear(inputs * importance, weight, offset).square().sum(), given[trained])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("samples", [10, 1000])
def test_a_large_layer_keeps_no_scaled_tensor(samples: int, every_layer_is_large: None) -> None:
    layer = awn.AdaptiveMLP(2, 50).output
    units = torch.randn(samples, layer.in_features, requires_grad=True)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        layer(units)
    large = {tensor.data_ptr() for tensor in kept if tensor.dim() == 2}
    assert large == {units.data_ptr(), layer._parameters["weight"].data_ptr()}


def grown(model: nn.Module, x: Tensor, **how: Any) -> list[Tensor]:
    """The output of a model and its gradients."""
    out = checkpoint(model, x, **how) if how else model(x)
    out.square().sum().backward()
    return [out.detach(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


@pytest.mark.parametrize("how", [{}, {"use_reentrant": False}, {"use_reentrant": True}], ids=str)
@pytest.mark.parametrize("samples", [3, 400])
def test_large_and_small_layers_train_the_same(samples: int, how: dict[str, Any], monkeypatch: Any) -> None:
    torch.manual_seed(0)
    model = awn.AdaptiveMLP(3, 20, hidden_layers=2, importance=awn.PowerLaw.for_units(30)).double()
    x = torch.randn(samples, 3, dtype=torch.float64, requires_grad=True)
    expected = grown(copy.deepcopy(model), x)
    monkeypatch.setattr(file, "_MANY_ELEMENTS", 0)
    for found, value in zip(grown(model, x, **how), expected, strict=True):
        torch.testing.assert_close(found, value)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own use, in forward derivatives
def test_autocast_and_forward_derivatives_use_torchs_own_operations(every_layer_is_large: None) -> None:
    layer = awn.AdaptiveMLP(2, 3).output
    units, direction = torch.randn(2, 5, layer.in_features)
    assert saves_memory(units, layer._parameters["weight"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(units)
        assert out.dtype == torch.bfloat16
        out.float().sum().backward()
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(layer(forward_ad.make_dual(units, direction))).tangent
    torch.testing.assert_close(tangent, direction @ layer.weight.t())
    with torch.no_grad():
        assert not saves_memory(units, layer._parameters["weight"])
