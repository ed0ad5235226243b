"""Positions: what a budget on FLOPs is told agrees with torch's own count of the operations."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import awn
from awn.advanced import find_groups, positions


class Twice(nn.Module):
    """A layer that is used twice, and one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, *, again: bool = True) -> torch.Tensor:
        x = torch.relu(self.used(x))
        return self.used(x) if again else x


def residual() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2))


MODELS = {
    "convolutions": (residual, torch.randn(3, 3, 17, 12)),
    "one-dimensional": (lambda: nn.Conv1d(4, 6, 5, dilation=2), torch.randn(5, 4, 30)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), torch.randn(2, 4, 5, 7)),
    "tokens": (lambda: nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 2)), torch.randn(3, 11, 4)),
    "twice": (Twice, torch.randn(4, 6)),
}


@pytest.mark.parametrize("name", MODELS)
def test_weights_times_positions_are_the_flops_that_torch_counts(name):
    make, x = MODELS[name]
    model = make()
    found = positions(model, x)
    with FlopCounterMode(display=False) as counter:
        model(x)
    weights = {path: model.get_submodule(path).weight.numel() for path in found}
    assert sum(2 * weights[path] * used for path, used in found.items()) * len(x) == counter.get_total_flops()


def test_a_layer_that_is_not_used_is_left_out_and_arguments_may_be_named():
    assert positions(Twice(), torch.randn(3, 6)) == {"used": 2}
    assert positions(Twice(), {"x": torch.randn(3, 6), "again": False}) == {"used": 1}


def test_the_cost_of_adaptive_convolutions_is_that_of_the_plain_ones():
    x = torch.randn(2, 3, 9, 9)
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(100, 2))
    with FlopCounterMode(display=False) as counter:
        model(x)
    awn.adapt_(model, example_input=x)
    cap = counter.get_total_flops() / len(x) / 2
    budget = awn.Budget(max_flops=cap, positions=positions(model, x))
    assert budget.penalty(model, find_groups(model)).item() == pytest.approx(1.0)  # twice the cap: 100 % too much


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    model[2].eval()
    before, state = {key: value.clone() for key, value in model.state_dict().items()}, torch.get_rng_state()
    positions(model, torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert [module.training for module in model] == [True, True, False]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (torch.zeros(0, 6), "example_input has no samples"),
        ({"again": True}, "example_input has no samples"),
        ("text", "example_input must be a tensor"),
    ],
)
def test_an_example_without_samples_is_refused(example, words):
    with pytest.raises(awn.AwnError, match=words):
        positions(Twice(), example)


def test_samples_in_another_dimension_are_told_from_positions():
    class Sequences(nn.Module):
        """Takes time first, and uses its layer once a sample."""

        def __init__(self) -> None:
            super().__init__()
            self.read = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.read(x[-1])

    with pytest.raises(awn.AwnError, match="layer 'read' was used 3 times for 7 samples"):
        positions(Sequences(), torch.randn(7, 3, 4))
