"""Gated recurrent layers of torch: what a gate does, and what torch does to the list of their weights."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import awn
from awn import Exponential
from awn.core.gate import gate_, ungate_
from awn.core.width import Width

KINDS: dict[str, Callable[[], nn.RNNBase]] = {
    "rnn": lambda: nn.RNN(5, 4, batch_first=True),
    "gru": lambda: nn.GRU(5, 4, num_layers=2, bidirectional=True, batch_first=True),
    "lstm": lambda: nn.LSTM(5, 4, batch_first=True),
    "lstm, projected": lambda: nn.LSTM(5, 4, proj_size=3, bias=False, batch_first=True),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")


def gated(kind: str) -> tuple[nn.RNNBase, nn.RNNBase, Width]:
    """A layer whose inputs are gated, the same layer without gate, and the width."""
    torch.manual_seed(0)
    plain, width = KINDS[kind](), Width(Exponential.for_units(5), block=1)
    layer = copy.deepcopy(plain)
    for name in [name for name in plain._flat_weights_names if name.startswith("weight_ih_l0")]:
        gate_(layer, width, 1, name)
    return layer, plain, width


def outputs(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x)[0]  # type: ignore[no-any-return]


@every_kind
def test_a_gate_scales_what_the_layer_reads(kind: str) -> None:
    layer, plain, width = gated(kind)
    x = torch.randn(3, 6, 5)
    torch.testing.assert_close(outputs(layer, x), outputs(plain, x * width.importance()))
    outputs(layer, x).square().sum().backward()
    assert width.log_nu.grad is not None
    assert float(width.log_nu.grad.abs()) > 0
    assert all(parameter.grad is not None for parameter in layer.parameters())


@every_kind
def test_what_torch_does_to_the_list_of_weights_changes_nothing(kind: str) -> None:
    layer, plain, width = gated(kind)
    x = torch.randn(3, 6, 5)
    expected = outputs(plain, x * width.importance().detach()).detach()
    layer.flatten_parameters()
    for other in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), layer.double().float()):
        torch.testing.assert_close(outputs(other, x), expected)
    state = {name: 2 * value for name, value in plain.state_dict().items()}
    own = {name: value for name, value in layer.state_dict().items() if name not in state}
    layer.load_state_dict(state | own, assign=True)
    plain.load_state_dict(state)
    torch.testing.assert_close(outputs(layer, x), outputs(plain, x * width.importance()))
    called = torch.func.functional_call(layer, {name: value / 2 for name, value in state.items()}, (x,))[0]
    torch.testing.assert_close(called, expected)


@every_kind
def test_without_its_last_gate_a_layer_is_torchs_again(kind: str) -> None:
    layer, plain, width = gated(kind)
    raw = dict(layer.named_parameters())
    ungate_(layer, width)
    assert type(layer) is type(plain)
    assert set(vars(layer)) == set(vars(plain))
    assert all(one is raw[name] for one, name in zip(layer._flat_weights, layer._flat_weights_names, strict=True))
    x = torch.randn(3, 6, 5)
    assert torch.equal(outputs(layer, x), outputs(plain, x))


def test_a_reset_leaves_the_width_alone() -> None:
    model = nn.Sequential(nn.Embedding(9, 5), nn.GRU(5, 6, batch_first=True), _Outputs(), nn.Linear(6, 2))
    awn.adapt_(model, example_input=torch.randint(0, 9, (3, 4)))
    before = {name: value.clone() for name, value in model[1].state_dict().items() if isinstance(value, Tensor)}
    model[1].reset_parameters()
    after = model[1].state_dict()
    assert torch.equal(after["width.log_nu"], before["width.log_nu"])
    assert not torch.equal(after["weight_hh_l0"], before["weight_hh_l0"])


class _Outputs(nn.Module):
    def forward(self, result: tuple[Tensor, Any]) -> Tensor:
        return result[0]
