"""Positions: what a budget on FLOPs is told agrees with torch's own count of the operations."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.flop_counter import FlopCounterMode

import awn
from awn.advanced import find_groups, positions


class Twice(nn.Module):
    """A layer that is used twice, and one that only training uses."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.extra = nn.Linear(6, 6), nn.Conv1d(6, 6, 1)

    def forward(self, x: torch.Tensor, *, again: bool = True) -> torch.Tensor:
        x = torch.relu(self.used(x))
        if self.training:
            self.extra(x[:, :, None])
        return self.used(x) if again else x


class Patches(nn.Module):
    """A small vision Transformer's beginning: patches, a learned position of each, a scale for each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.places = nn.Parameter(torch.randn(1, 4, 8))
        self.scale = nn.Parameter(torch.ones(8, 1, 1))
        self.read = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.patches(x) * self.scale
        return self.read(torch.relu(patches.flatten(2).transpose(1, 2) + self.places)).mean(1)


class Auxiliary(nn.Module):
    """A convolution that reads hidden channels while training, beside the one that always does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.extra = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 2, 3), nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        found = self.last(hidden).mean((2, 3))
        return found + self.extra(hidden).mean((2, 3)) if self.training else found


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2))


def tokens() -> nn.Module:
    return nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 7), nn.LayerNorm(7), nn.ReLU(), nn.Linear(7, 2))


MODELS = {
    "convolutions": (convolutions, (3, 3, 17, 12)),
    "one-dimensional": (lambda: nn.Conv1d(4, 6, 5, dilation=2), (5, 4, 30)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (2, 4, 5, 7)),
    "perceptron over tokens": (lambda: nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 2)), (3, 11, 4)),
    "twice": (lambda: Twice().eval(), (4, 6)),
    "patches": (Patches, (2, 3, 8, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_weights_times_positions_are_the_flops_that_torch_counts(name):
    make, shape = MODELS[name]
    model, x = make(), torch.randn(shape)
    found = positions(model, x)
    with FlopCounterMode(display=False) as counter:
        model(x)
    weights = {path: model.get_submodule(path).weight.numel() for path in found}
    assert sum(2 * weights[path] * used for path, used in found.items()) * len(x) == counter.get_total_flops()


def test_embeddings_and_norms_multiply_by_no_matrix():
    assert positions(tokens(), torch.randint(9, (2, 5))) == {"1": 5, "4": 5}


@pytest.mark.parametrize("adaptive", [False, True])
def test_attention_is_counted_at_every_token_of_the_query(adaptive):
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(3, 5, 8)
    if adaptive:
        awn.adapt_(layer, example_input=x)
    assert positions(layer, x) == dict.fromkeys(("self_attn", "self_attn.out_proj", "linear1", "linear2"), 5)


@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers_are_counted_at_every_step(packed):
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.read = nn.LSTM(4, 6, num_layers=2, batch_first=True), nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            steps = torch.full((len(x),), x.shape[1])
            read = pack_padded_sequence(x, steps, batch_first=True) if packed else x
            return self.read(self.lstm(read)[1][0][-1])

    assert positions(Reader(), torch.randn(3, 7, 4)) == {"lstm": 7, "read": 1}


def test_a_layer_that_is_not_called_has_no_positions_and_arguments_may_be_named():
    assert positions(Twice(), torch.randn(3, 6)) == {"used": 2, "extra": 0}
    assert positions(Twice(), {"x": torch.randn(3, 6), "again": False}) == {"used": 1, "extra": 0}


def test_one_image_without_a_dimension_of_samples_has_the_same_pixels():
    assert positions(nn.Conv2d(1, 2, 3), torch.randn(1, 9, 8)) == positions(nn.Conv2d(1, 2, 3), torch.randn(1, 1, 9, 8))


@pytest.mark.parametrize("inside", [False, True])
def test_a_compiled_model_that_has_run_is_counted_like_its_original(inside):
    """Its code would not call a new hook."""
    model, x = Twice().eval(), torch.randn(3, 6)
    if inside:
        model.compile(backend="eager")
    compiled = model if inside else torch.compile(model, backend="eager")
    compiled(x)
    assert positions(compiled, x) == {"used": 2, "extra": 0}


def test_a_layer_may_return_more_than_its_product():
    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 6))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            scores = x @ self.weight.T
            return scores, scores.argmax(-1)

    assert positions(nn.ModuleDict({"router": Router()})["router"], torch.randn(2, 5, 6)) == {"": 5}


def test_what_is_counted_is_enough_for_a_budget_whatever_a_model_is_made_of():
    """Parameters of three dimensions that belong to no convolution, and convolutions that only training calls."""
    x = torch.randn(2, 3, 8, 8)
    for model in (Patches(), Auxiliary()):
        awn.adapt_(model, example_input=x)
        budget = awn.Budget(max_flops=1.0, positions=positions(model, x))
        assert budget.penalty(model, find_groups(model)) > 0


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


def test_uses_that_the_number_of_samples_does_not_divide_are_refused():
    class Sequences(nn.Module):
        """Takes time first, and uses its layer once a sample."""

        def __init__(self) -> None:
            super().__init__()
            self.read = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.read(x[-1])

    with pytest.raises(awn.AwnError, match="layer 'read' was used 3 times for 7 samples"):
        positions(Sequences(), torch.randn(7, 3, 4))
