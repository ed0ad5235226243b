"""fixed_mlp: the same layers as a finalized AdaptiveMLP."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import awn
from awn.errors import ArgumentError
from awn.nn.fixed import fixed_mlp

OPTIONS: list[dict[str, Any]] = [
    {},
    {"activation": "tanh", "dropout": 0.2},
    {"batch_norm": True},
    {"activation": torch.nn.PReLU(), "dropout": 0.1, "batch_norm": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("layers", [1, 3])
def test_it_has_the_layers_of_an_adaptive_network_of_the_same_widths(layers: int, options: dict[str, Any]) -> None:
    importance = awn.Exponential.for_units(6)
    plain = awn.finalize(awn.AdaptiveMLP(3, 2, hidden_layers=layers, importance=importance, **options))
    widths = [6] * layers
    fixed = fixed_mlp(3, 2, widths, **options)
    assert [type(layer) for layer in fixed] == [type(layer) for layer in plain]
    assert [weight.shape for weight in fixed.parameters()] == [weight.shape for weight in plain.parameters()]
    fixed.load_state_dict(plain.state_dict())
    rows = torch.randn(5, 3)
    assert torch.equal(fixed.eval()(rows), plain.eval()(rows))


def test_layers_share_no_activation() -> None:
    fixed = fixed_mlp(3, 2, [4, 4], activation=torch.nn.PReLU())
    assert fixed[1] is not fixed[3]


def test_a_width_that_is_none_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"widths\[1\] must be a whole number of at least 1, got 0"):
        fixed_mlp(3, 2, [4, 0])
