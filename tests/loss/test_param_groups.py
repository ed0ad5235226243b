"""The prior on the weights inside the optimizer: the same training as in the loss, never twice, never absent."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Optimizer

import awn
from awn.errors import ArgumentError, OptimizerError
from cases import batch, build, move_widths_

N = 50
SCALES: dict[str, Any] = {
    "one scale": awn.Prior(weight_scale=0.5),
    "a scale for each layer": awn.Prior(weight_scale={"hidden.0": 0.5, "hidden.1": None, "output": 1.0}),
    "widths too": awn.Prior(weight_scale=0.5, width_mean=0.3, width_scale=0.1),
}
COUPLED: dict[str, Callable[[Any], Optimizer]] = {
    "SGD": lambda groups: torch.optim.SGD(groups, momentum=0.9),
    "Adam": torch.optim.Adam,
    "Adam fused": lambda groups: torch.optim.Adam(groups, fused=True),
    "RMSprop": torch.optim.RMSprop,
    "Adagrad": torch.optim.Adagrad,
    "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam,
    "Adadelta": torch.optim.Adadelta,
}
DECOUPLED: dict[str, Callable[[Any], Optimizer]] = {
    "AdamW": torch.optim.AdamW,
    "NAdam, decoupled": lambda groups: torch.optim.NAdam(groups, decoupled_weight_decay=True),
    "RAdam, decoupled": lambda groups: torch.optim.RAdam(groups, decoupled_weight_decay=True),
    "Adamax, which awn does not know": torch.optim.Adamax,
}


def inside(model: nn.Module, prior: awn.Prior = SCALES["one scale"], **options: Any) -> list[dict[str, Any]]:
    return awn.param_groups(model, 0.01, prior=prior, n_samples=N, **options)


def train_(model: nn.Module, optimizer: Optimizer, prior: awn.Prior) -> list[torch.Tensor]:
    torch.manual_seed(1)
    for step in range(4):
        x, y = batch(model)
        optimizer.zero_grad()
        awn.objective(F.mse_loss(model(x), y), model, N, prior=prior).backward()
        optimizer.step()
        move_widths_(model, 40 + 5 * step)
        awn.resize_(model, optimizer)
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("name", COUPLED)
def test_training_is_the_same_with_the_prior_in_the_loss_and_in_the_optimizer(name: str, scales: str) -> None:
    prior, in_loss = SCALES[scales], build("2 layers")
    in_optimizer = copy.deepcopy(in_loss)
    expected = train_(in_loss, COUPLED[name](awn.param_groups(in_loss, 0.01)), prior)
    found = train_(in_optimizer, COUPLED[name](inside(in_optimizer, prior)), prior)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_the_prior_matters_for_this_training() -> None:
    """So that the law above could fail."""
    first = build("2 layers")
    second = copy.deepcopy(first)
    with_prior = train_(first, COUPLED["Adam"](inside(first)), SCALES["one scale"])
    without = train_(second, COUPLED["Adam"](awn.param_groups(second, 0.01)), awn.Prior(None))
    assert not torch.allclose(with_prior[0], without[0], rtol=1e-6)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_a_copy_of_model_and_optimizer_knows_where_the_prior_is(copied: Callable[[Any], Any]) -> None:
    model = build("2 layers")
    optimizer = torch.optim.Adam(inside(model))
    twin, its_optimizer = copied((model, optimizer))
    assert awn.loss.terms(torch.zeros(()), twin, N, prior=SCALES["one scale"])["weights"] == 0
    for one, other in zip(
        train_(model, optimizer, SCALES["one scale"]), train_(twin, its_optimizer, SCALES["one scale"]), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", DECOUPLED)
def test_an_optimizer_whose_decay_is_no_prior_is_refused(name: str) -> None:
    model = build("2 layers")
    optimizer = DECOUPLED[name](inside(model))
    with pytest.raises(OptimizerError, match="is not the prior on the weights"):
        awn.resize_(model, optimizer)


def test_an_optimizer_without_the_prior_is_refused() -> None:
    model = build("2 layers")
    inside(model)
    with pytest.raises(OptimizerError, match="nothing would apply the prior"):
        awn.resize_(model, torch.optim.Adam(model.parameters()))
    optimizer = torch.optim.Adam(inside(model))
    awn.resize_(model, optimizer)
    with pytest.raises(OptimizerError, match="nothing would apply the prior"):  # also after another one was in use
        awn.resize_(model, torch.optim.Adam(model.parameters()))


def test_a_prior_in_both_places_is_refused() -> None:
    model = build("2 layers")
    optimizer = torch.optim.Adam(inside(model))
    awn.param_groups(model, 0.01)
    assert awn.loss.terms(torch.zeros(()), model, N)["weights"] > 0
    with pytest.raises(OptimizerError, match="and the objective applies it too"):
        awn.resize_(model, optimizer)


@pytest.mark.parametrize(
    ("prior", "n_samples"), [(awn.Prior(weight_scale=2.0), N), (SCALES["one scale"], N + 1)], ids=["scale", "samples"]
)
def test_a_loss_with_another_prior_is_refused(prior: awn.Prior, n_samples: int) -> None:
    model = build("2 layers")
    inside(model)
    with pytest.raises(ArgumentError, match=r"a weight decay of 0\.08 .* Give both the same prior and n_samples"):
        awn.objective(torch.zeros(()), model, n_samples, prior=prior)


def test_decay_and_prior_add_up_and_only_the_prior_reaches_biases() -> None:
    model = build("1 layer")
    groups = inside(model, weight_decay=0.1)
    decays = {tuple(parameter.shape): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert decays[model.hidden[0].weight.shape] == pytest.approx(0.1 + 0.08)
    assert decays[model.hidden[0].bias.shape] == pytest.approx(0.08)
    assert decays[()] == 0  # ν


@pytest.mark.parametrize("given", [{"prior": awn.Prior()}, {"n_samples": 10}])
def test_prior_and_number_of_samples_go_together(given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="go together"):
        awn.param_groups(build(), 0.01, **given)


def test_a_model_without_learned_widths_has_no_prior_to_move() -> None:
    with pytest.raises(ArgumentError, match="no layer with a learned width"):
        inside(nn.Linear(2, 2))
