"""Widths, the summary table, and parameter groups for an optimizer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import awn
from awn import AdaptiveMLP, AwnError, Exponential, PowerLaw


def network(**options) -> AdaptiveMLP:
    torch.manual_seed(0)
    options.setdefault("importance", [Exponential(rate=0.1), Exponential(rate=0.25)])
    return AdaptiveMLP(3, 2, hidden_layers=2, **options)  # 24 and 10 units


# Widths


def test_widths_by_layer():
    assert awn.widths(network()) == {"hidden.0": 24, "hidden.1": 10}
    assert awn.widths(nn.Linear(2, 2)) == {}


def test_widths_are_those_in_use_and_not_what_nu_asks_for():
    model = network()
    model.hidden[0].width.move_to_(40)
    assert awn.widths(model)["hidden.0"] == 24
    awn.resize_(model, None)
    assert awn.widths(model)["hidden.0"] == 40


# Summary


def test_summary_counts_what_each_layer_makes():
    summary = awn.summary(network())
    assert [row.layer for row in summary.layers] == ["hidden.0", "hidden.1"]
    assert [row.units for row in summary.layers] == [24, 10]
    assert [row.parameters for row in summary.layers] == [24 * 4, 10 * 25]
    assert [row.nu for row in summary.layers] == pytest.approx([0.1, 0.25])
    shares = [1 - math.exp(-0.1 * 24), 1 - math.exp(-0.25 * 10)]
    assert [row.share_of_importance for row in summary.layers] == pytest.approx(shares)
    assert (summary.units, summary.parameters) == (34, 24 * 4 + 10 * 25 + 2 * 11)


def test_summary_counts_norms_with_the_units_they_scale():
    summary = awn.summary(network(batch_norm=True))
    assert [row.parameters for row in summary.layers] == [24 * 6, 10 * 27]


def test_summary_of_a_shared_width_counts_each_weight_once():
    model = AdaptiveMLP(3, 2, hidden_layers=3, shared_width=True, importance=Exponential(rate=0.1))
    (row,) = awn.summary(model).layers
    assert row.parameters == 24 * 4 + 2 * 24 * 25
    assert awn.summary(model).parameters == row.parameters + 2 * 25


def test_summary_after_a_cut_shows_the_share_that_is_left():
    small = awn.truncate(network(), units=8)
    assert [row.units for row in awn.summary(small).layers] == [8, 8]
    assert awn.summary(small).layers[0].share_of_importance == pytest.approx(1 - math.exp(-0.8))


def test_summary_of_another_family():
    model = AdaptiveMLP(3, 2, importance=PowerLaw(exponent=2.5))
    (row,) = awn.summary(model).layers
    assert row.nu == pytest.approx(2.5)
    assert row.share_of_importance == pytest.approx(1 - (1 + row.units) ** -1.5)


def test_a_printed_summary_is_an_aligned_table():
    lines = str(awn.summary(nn.Sequential(nn.Linear(100, 3), network()))).splitlines()
    assert lines[0].split() == ["layer", "units", "parameters", "importance", "ν"]
    assert lines[1].split() == ["1.hidden.0", "24", "96", "90.9%", "0.1"]
    assert lines[2].split() == ["1.hidden.1", "10", "250", "91.8%", "0.25"]
    assert lines[3].split() == ["other", "layers", "325"]  # 100 · 3 + 3 of the plain layer, 2 · 11 of the last
    assert lines[4].split() == ["total", "34", "671"]
    end = lines[0].index("parameters") + len("parameters")
    assert [line[:end].split()[-1] for line in lines[1:]] == ["96", "250", "325", "671"]


def test_a_plain_model_has_no_summary():
    with pytest.raises(AwnError, match="Linear has no layer with a learned width"):
        awn.summary(nn.Linear(2, 2))


# Parameter groups


def names_by_group(model: nn.Module, groups: list[dict]) -> list[set[str]]:
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [{names[parameter] for parameter in group["params"]} for group in groups]


NUS = {"hidden.0.width.log_nu", "hidden.1.width.log_nu"}
WEIGHTS = {"hidden.0.weight", "hidden.1.weight", "output.weight"}
BIASES = {"hidden.0.bias", "hidden.1.bias", "output.bias"}
NORMS = {f"norms.{n}.{name}" for n in (0, 1) for name in ("weight", "bias")}


def test_groups_for_weights_for_what_is_not_decayed_and_for_nu():
    model = network(batch_norm=True)
    groups = awn.param_groups(model, lr=0.1, width_lr=0.01, weight_decay=0.5)
    assert names_by_group(model, groups) == [WEIGHTS, BIASES | NORMS, NUS]
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(0.1, 0.5), (0.1, 0.0), (0.01, 0.0)]


def test_weights_come_first_wherever_the_model_has_them():
    model = nn.Sequential(nn.LayerNorm(3), network())
    first, *_ = awn.param_groups(model, lr=0.1, weight_decay=0.5)
    assert first["weight_decay"] == 0.5
    assert all(parameter.dim() == 2 for parameter in first["params"])


def test_groups_with_the_same_options_are_one():
    model = network()
    (group,) = awn.param_groups(model, lr=0.1)
    assert len(group["params"]) == 8
    weights, rest = awn.param_groups(model, lr=0.1, weight_decay=0.5)
    assert names_by_group(model, [weights, rest]) == [WEIGHTS, BIASES | NUS]
    weights, nus = awn.param_groups(model, lr=0.1, width_lr=0.0)
    assert names_by_group(model, [weights, nus]) == [WEIGHTS | BIASES, NUS]


@pytest.mark.parametrize(
    "options", [{}, {"width_lr": 0.5}, {"weight_decay": 0.1}, {"width_lr": 0.5, "weight_decay": 0.1}]
)
def test_groups_hold_every_parameter_once(options):
    model = nn.Sequential(nn.Embedding(5, 3), network(batch_norm=True, activation=nn.PReLU()))
    held = [parameter for group in awn.param_groups(model, lr=0.1, **options) for parameter in group["params"]]
    assert len(held) == len(set(held)) == len(list(model.parameters()))


def test_frozen_parameters_are_left_out():
    model = network()
    model.hidden[0].weight.requires_grad_(False)
    held = {parameter for group in awn.param_groups(model, lr=0.1) for parameter in group["params"]}
    assert model.hidden[0].weight not in held
    assert model.hidden[0].bias in held


def test_nu_moves_at_its_own_pace_and_is_not_decayed():
    model = network()
    optimizer = torch.optim.SGD(awn.param_groups(model, lr=0.0, width_lr=0.1, weight_decay=0.5))
    before = [layer.width.log_nu.item() for layer in model.hidden]
    sum(layer.width.log_nu for layer in model.hidden).backward()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    weight = model.hidden[0].weight.detach().clone()
    optimizer.step()
    assert [layer.width.log_nu.item() for layer in model.hidden] == pytest.approx([nu - 0.1 for nu in before])
    assert torch.equal(model.hidden[0].weight, weight)


@pytest.mark.parametrize("name", ["lr", "width_lr", "weight_decay"])
@pytest.mark.parametrize("number", [-0.1, math.nan])
def test_wrong_arguments_are_named(name, number):
    with pytest.raises(AwnError, match=rf"{name} must be a finite number of at least 0, got {number}"):
        awn.param_groups(network(), **{"lr": 0.1, name: number})
