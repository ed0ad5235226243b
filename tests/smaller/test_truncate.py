"""truncate, remove_units and compress: what is left computes what it did before, and the model itself is untouched."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import awn
from cases import (
    BLOCKS,
    IN,
    MODELS,
    OUT,
    active_shapes,
    adaptive_net,
    assert_inert_is_zero,
    assert_same,
    batch,
    build,
    layer_units,
    leading,
    move_widths_,
    pairwise,
    snapshot,
    tensors_of,
    train_step,
)

every_model = pytest.mark.parametrize("case", MODELS)
every_block = pytest.mark.parametrize("block", BLOCKS)
every_scope = pytest.mark.parametrize("scope", ["layer", "global"])

FAMILIES = {
    "exponential": awn.Exponential.for_units(40),
    "mass scale": awn.Exponential.for_units(40, scale="mass"),
    "unit scale": awn.Exponential.for_units(40, scale="unit"),
    "power law": awn.PowerLaw.for_units(40, saturation=2.0),
    "sigmoid": awn.Sigmoid.for_units(40, steepness=2.0),
}
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def trained(case: str = "2 layers", **options: Any) -> Any:
    """A model after a few steps; its layers have 40 units, 39, and so on."""
    model = build(case, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(3):
        train_step(model, optimizer)
    move_widths_(model, 40)
    awn.resize_(model, optimizer)
    return model


def uneven(**options: Any) -> Any:
    """Two layers of very different widths."""
    return build("2 layers", importance=[awn.Exponential.for_units(60), awn.Exponential.for_units(15)], **options)


def silenced(model: Any, removed: dict[str, Sequence[int]]) -> Any:
    """A copy in which no weight reads the removed units."""
    silent = copy.deepcopy(model)
    last = len(model.hidden) - 1
    with torch.no_grad():
        for number in range(len(model.hidden)):
            name = "hidden.0" if model.options["shared_width"] else f"hidden.{number}"
            reader = "output" if number == last else f"hidden.{number + 1}"
            tensors_of(silent)[f"{reader}.weight"][:, list(removed.get(name, []))] = 0
    return silent


def assert_same_outputs(model: nn.Module, other: nn.Module) -> None:
    x = torch.randn(16, IN, dtype=torch.float64)
    torch.testing.assert_close(model.eval()(x), other.eval()(x), rtol=1e-10, atol=1e-11)


def parameters(model: nn.Module) -> int:
    """The number of trained numbers, counted in a plain network of exact shapes."""
    return sum(p.numel() for p in awn.finalize(model).parameters())


def total(model: nn.Module) -> int:
    return sum(awn.widths(model).values())


# What is left


@pytest.mark.parametrize(("case", "units", "block"), pairwise(MODELS, (1, 17, 38), BLOCKS))
def test_a_truncated_model_is_the_model_with_its_tail_silent(case: str, units: int, block: int) -> None:
    model = trained(case, block=block)
    before = snapshot(model)
    small = awn.truncate(model, units=units)
    assert_same(before, snapshot(model))
    assert awn.widths(small) == {name: min(units, width) for name, width in awn.widths(model).items()}
    tail = {name: range(units, width) for name, width in awn.widths(model).items()}
    assert_same_outputs(small, silenced(model, tail))
    assert_inert_is_zero(small)
    kept = active_shapes(small)
    for name, tensor in tensors_of(small).items():
        assert_same(leading(tensors_of(model)[name].detach(), kept[name]), leading(tensor.detach(), kept[name]), name)


@every_model
def test_a_truncated_model_takes_no_more_memory_than_its_width_needs(case: str) -> None:
    small = awn.truncate(trained(case, block=32, units=40), units=5)
    assert {len(layer.weight) for layer in small.hidden} == {32}
    small = awn.truncate(trained(case, block=1, units=40), units=5)
    assert {len(layer.weight) for layer in small.hidden} == {5}


SHRUNK: dict[str, Callable[[Any], Any]] = {
    "a fraction": lambda model: awn.truncate(model, keep=0.4),
    "units": lambda model: awn.truncate(model, units=9),
    "one unit": lambda model: awn.truncate(model, units=1),
    "one layer": lambda model: awn.truncate(model, units={"hidden.0": 7}),
    "a total": lambda model: awn.truncate(model, units=31, scope="global"),
    "parameters": lambda model: awn.truncate(model, max_params=400),
    "removed units": lambda model: awn.advanced.remove_units(model, {"hidden.0": range(0, 30, 2)}),
    "the most important": lambda model: awn.advanced.remove_units(model, {"hidden.0": range(20)}),
    "compressed": lambda model: awn.compress(model, lambda m: min(1.0, total(m) / 33)),
}


@pytest.mark.parametrize(("shrink", "family", "block"), pairwise(SHRUNK, FAMILIES, BLOCKS))
def test_training_on_does_not_bring_the_units_back(shrink: str, family: str, block: int) -> None:
    small = SHRUNK[shrink](trained("2 layers", importance=FAMILIES[family], block=block))
    widths = awn.widths(small)
    assert sum(widths.values()) < 79
    optimizer = torch.optim.Adam(small.parameters(), lr=1e-4)
    assert awn.resize_(small, optimizer) == {}
    train_step(small, optimizer)
    awn.resize_(small, optimizer)
    assert all(abs(now - widths[name]) <= 1 for name, now in awn.widths(small).items())
    assert_inert_is_zero(small, optimizer)


def test_a_truncated_model_can_grow_again_when_training_asks_for_it() -> None:
    small = awn.truncate(trained(), units=9)
    optimizer = torch.optim.Adam(small.parameters())
    move_widths_(small, 50)
    awn.resize_(small, optimizer)
    assert awn.widths(small) == {"hidden.0": 50, "hidden.1": 49}


@pytest.mark.parametrize("min_units", [1, 20])
def test_truncating_below_the_least_width_lowers_it(min_units: int) -> None:
    small = awn.truncate(build("2 layers", min_units=min_units), units=5)
    assert awn.widths(small) == {"hidden.0": 5, "hidden.1": 5}
    assert awn.resize_(small, None) == {}


# How much is left


@every_model
@pytest.mark.parametrize("keep", [0.01, 0.3, 0.5, 0.77, 1.0])
def test_every_layer_keeps_the_same_fraction(case: str, keep: float) -> None:
    model = trained(case)
    kept = awn.widths(awn.truncate(model, keep=keep))
    for name, units in awn.widths(model).items():
        assert abs(kept[name] - keep * units) <= 1
        assert kept[name] >= 1


@pytest.mark.parametrize("keep", [0.05, 0.3, 0.5, 0.77, 1.0])
def test_a_fraction_of_the_whole_is_cut_at_one_common_quantile(keep: float) -> None:
    model = uneven()
    small = awn.truncate(model, keep=keep, scope="global")
    assert abs(total(small) - keep * total(model)) <= 1
    # Exponential: S(n) = e^(−rate·n), so that one quantile means one rate·n, to within a unit.
    rates = [group.width.value for group in awn.advanced.find_groups(small)]
    reached = [rate * units for rate, units in zip(rates, awn.widths(small).values(), strict=True)]
    assert abs(reached[0] - reached[1]) <= max(rates)


@pytest.mark.parametrize("units", [2, 3, 10, 37, 74])
def test_a_number_of_units_in_total(units: int) -> None:
    small = awn.truncate(uneven(), units=units, scope="global")
    assert units - 1 <= total(small) <= units


def test_layers_that_are_alike_are_cut_alike() -> None:
    model = build("4 layers")
    for units in range(4, 160, 13):
        small = awn.truncate(model, units=units, scope="global")
        assert len(set(awn.widths(small).values())) == 1
        assert units - 4 < total(small) <= units


def test_units_by_name_leave_the_other_layers_alone() -> None:
    model = trained("4 layers")
    small = awn.truncate(model, units={"hidden.2": 5, "hidden.0": 40})
    assert awn.widths(small) == {"hidden.0": 40, "hidden.1": 39, "hidden.2": 5, "hidden.3": 37}
    assert_same_outputs(small, silenced(model, {"hidden.2": range(5, 38)}))


def test_more_units_than_there_are_cut_nothing() -> None:
    model = uneven()
    assert awn.widths(awn.truncate(model, units=30)) == {"hidden.0": 30, "hidden.1": 15}
    assert awn.widths(awn.truncate(model, units=10_000)) == {"hidden.0": 60, "hidden.1": 15}
    assert awn.widths(awn.truncate(model, units=10_000, scope="global")) == {"hidden.0": 60, "hidden.1": 15}


def in_one_layer(units: int) -> int:
    """Parameters of a network with one hidden layer: weights and biases of both linear layers."""
    return units * (IN + 1) + OUT * (units + 1)


@pytest.mark.parametrize("most", [8, 14, 100, 101, 102, 103, 104, 105, 106, 241, 242, 10_000])
def test_the_largest_network_within_a_number_of_parameters_in_closed_form(most: int) -> None:
    small = awn.truncate(build("1 layer"), max_params=most)
    expected = min(40, max(n for n in range(1, 2000) if in_one_layer(n) <= most))
    assert awn.widths(small) == {"hidden.0": expected}
    assert parameters(small) == in_one_layer(expected)


@pytest.mark.parametrize(("case", "most", "scope"), pairwise(MODELS, (150, 400, 1500), ("layer", "global")))
def test_a_larger_network_would_exceed_the_number_of_parameters(case: str, most: int, scope: Any) -> None:
    model = build(case)
    small = awn.truncate(model, max_params=most, scope=scope)
    assert parameters(small) <= most
    # All layers are alike, so that the next larger cut has a unit more in each.
    (units,) = set(awn.widths(small).values())
    if units < 40:
        assert parameters(awn.truncate(model, units=units + 1)) > most
    else:
        assert awn.widths(small) == awn.widths(model)


@every_scope
def test_uneven_layers_take_what_the_number_of_parameters_allows(scope: Any) -> None:
    model = uneven()
    for most in (60, 200, 500, 1100):
        small = awn.truncate(model, max_params=most, scope=scope)
        assert parameters(small) <= most
        if scope == "global":
            larger = awn.truncate(model, units=total(small) + 1, scope=scope)
            assert total(larger) == total(small) + 1
        else:
            larger = awn.truncate(model, keep=(awn.widths(small)["hidden.0"] + 1) / 60)
        assert parameters(larger) > most


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "in exactly one way: keep=, units= or max_params="),
    "two ways": ({"keep": 0.5, "units": 3}, "in exactly one way"),
    "keep 0": ({"keep": 0.0}, "keep must be a fraction above 0 and at most 1, got 0"),
    "keep above 1": ({"keep": 1.5}, "keep must be a fraction above 0 and at most 1, got 1.5"),
    "keep that is no number": ({"keep": math.nan}, "keep must be a fraction"),
    "no units": ({"units": 0}, "units must be a whole number of at least 1, got 0"),
    "half a unit": ({"units": 2.5}, "units must be a whole number"),
    "too few in total": ({"units": 1, "scope": "global"}, "1 units in total are too few: each of the 2 layers"),
    "an unknown layer": ({"units": {"hidden.9": 3}}, r"no layer 'hidden\.9'.*'hidden\.0', 'hidden\.1'"),
    "more than there are": ({"units": {"hidden.1": 41}}, r"layer 'hidden\.1' has 40 units, so it cannot be truncated"),
    "none in a layer": ({"units": {"hidden.1": 0}}, r"units\['hidden\.1'\] must be a whole number"),
    # With one unit in each of two layers: 3 + 1, 1 + 1 and 2 + 2 numbers.
    "too few parameters": ({"max_params": 9}, r"max_params=9 cannot be met: with one unit per layer there are 10"),
    "no parameters": ({"max_params": 0}, "max_params must be a whole number of at least 1"),
    "an unknown scope": ({"keep": 0.5, "scope": "layers"}, "scope must be 'layer' or 'global', got 'layers'"),
    "batches that are none": ({"keep": 0.5, "calibrate": []}, "calibrate"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_done_is_refused(options: dict[str, Any], message: str) -> None:
    model = build("batch norm" if "calibrate" in options else "2 layers")
    before = snapshot(model)
    with pytest.raises(awn.AwnError, match=message):
        awn.truncate(model, **options)
    assert_same(before, snapshot(model))


@pytest.mark.parametrize(
    "shrink",
    [
        lambda model: awn.truncate(model, keep=0.5),
        lambda model: awn.advanced.remove_units(model, {}),
        lambda model: awn.compress(model, lambda m: 1.0),
        lambda model: awn.advanced.activation_magnitudes(model, torch.zeros(1, 2)),
    ],
)
def test_a_model_without_widths_is_refused(shrink: Callable[[Any], Any]) -> None:
    with pytest.raises(awn.AwnError, match="Linear has no layer with a learned width"):
        shrink(nn.Linear(2, 2))


# Any units


def chosen(case: str, model: Any) -> dict[str, dict[str, Any]]:
    """Ways to choose units to remove, for every learned width of a model."""
    widths = awn.widths(model)
    magnitudes = awn.advanced.activation_magnitudes(model, torch.randn(20, IN, dtype=torch.float64))
    return {
        "the most important": {name: range(units // 2) for name, units in widths.items()},
        "the least important": {name: range(units // 2, units) for name, units in widths.items()},
        "at random": {name: torch.randperm(units)[:15] for name, units in widths.items()},
        "the weakest": {name: magnitudes[name].argsort()[:12] for name in widths},
        "all but one": {name: [j for j in range(units) if j != 13] for name, units in widths.items()},
        "in one layer": {next(iter(widths)): [3, 1, 30]},
        "none": {name: [] for name in widths},
    }


@every_block
@every_model
def test_removing_units_silences_them_and_keeps_the_importance_of_the_rest(case: str, block: int) -> None:
    model = trained(case, block=block)
    for how, removed in chosen(case, model).items():
        before = snapshot(model)
        small = awn.advanced.remove_units(model, removed)
        assert_same(before, snapshot(model), how)
        expected = {name: units - len(removed.get(name, ())) for name, units in awn.widths(model).items()}
        assert awn.widths(small) == expected
        silent = silenced(model, {name: [int(j) for j in units] for name, units in removed.items()})
        assert_same_outputs(small, silent)
        assert_inert_is_zero(small)


@every_family
def test_removing_units_works_in_every_family(family: Any) -> None:
    model = trained("2 layers", importance=family)
    removed = {"hidden.0": [0, 5, 39], "hidden.1": range(7, 20)}
    assert_same_outputs(awn.advanced.remove_units(model, removed), silenced(model, removed))


def test_removing_channels_that_are_flattened() -> None:
    """Two columns a channel; a batch norm's vectors move with their channels."""
    net = adaptive_net(12, 20).double()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(3):
        train_step(net, optimizer)
    removed = [0, 4, 5, 11]
    small = awn.advanced.remove_units(net, {"conv": removed})
    silent = copy.deepcopy(net)
    with torch.no_grad():
        for channel in removed:
            silent.middle._parameters["weight"][:, 2 * channel : 2 * channel + 2] = 0
    assert awn.widths(small) == {"conv": 8, "middle": 20}
    assert_same_outputs(small, silent)


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ({"hidden.5": [1]}, r"no layer 'hidden\.5'"),
        ({"hidden.0": [1, 2, 1]}, r"'hidden\.0' contain duplicates"),
        ({"hidden.0": [3, 40]}, r"'hidden\.0' has units 0 to 39; there is no unit 40"),
        ({"hidden.1": [-1]}, "there is no unit -1"),
        ({"hidden.1": range(40)}, r"all 40 units of 'hidden\.1' would be removed"),
        ({"hidden.0": [1.5]}, r"hidden\.0.*1\.5"),
        ({"hidden.0": [True, False]}, r"hidden\.0"),
        ({"hidden.0": torch.zeros(40, dtype=torch.bool)}, r"hidden\.0"),
    ],
    ids=["unknown layer", "twice", "past the end", "negative", "all", "half a unit", "booleans", "a mask"],
)
def test_units_that_cannot_be_removed_are_refused(units: Any, message: str) -> None:
    model = build("2 layers")
    before = snapshot(model)
    with pytest.raises(awn.AwnError, match=message):
        awn.advanced.remove_units(model, units)
    assert_same(before, snapshot(model))


# Magnitudes


def test_activation_magnitudes_in_closed_form() -> None:
    model = trained("2 layers")
    x, _ = batch(model)
    found = awn.advanced.activation_magnitudes(model, x)
    tensors = {name: leading(t.detach(), active_shapes(model)[name]) for name, t in tensors_of(model).items()}
    first = torch.tanh(x @ tensors["hidden.0.weight"].T + tensors["hidden.0.bias"])
    rate = model.hidden[0].width.nu.detach()
    importance = torch.exp(-rate * torch.arange(40, dtype=torch.float64))  # on the scale where the first has 1
    second = torch.tanh((first * importance) @ tensors["hidden.1.weight"].T + tensors["hidden.1.bias"])
    torch.testing.assert_close(found["hidden.0"], first.abs().mean(0))
    torch.testing.assert_close(found["hidden.1"], second.abs().mean(0))


def test_activation_magnitudes_of_flattened_channels_are_one_a_channel() -> None:
    net = adaptive_net(12, 20).double().eval()
    x = torch.randn(9, IN, dtype=torch.float64)
    found = awn.advanced.activation_magnitudes(net, x)
    channels = torch.tanh(net.norm(net.conv(x[:, None, :]))).abs().mean((0, 2))
    torch.testing.assert_close(found["conv"], channels.detach())
    assert found["middle"].shape == (20,)


@pytest.mark.parametrize("case", ["batch norm", "dropout"])
def test_activation_magnitudes_leave_the_model_as_it_was(case: str) -> None:
    """A part that is in another mode than the rest, such as a frozen batch norm, stays in it."""
    model = trained(case).train()
    if case == "batch norm":
        model.norms[0].eval()
    x, _ = batch(model)
    before = snapshot(model)
    first, second = (awn.advanced.activation_magnitudes(model, x) for _ in range(2))
    assert_same(first, second)  # no dropout, and no statistics that move
    assert_same(before, snapshot(model))
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_activation_magnitudes_leave_the_model_as_it_was_when_it_fails() -> None:
    model = trained("dropout").train()
    before = snapshot(model)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        awn.advanced.activation_magnitudes(model, torch.zeros(4, IN + 1, dtype=torch.float64))
    assert_same(before, snapshot(model))
    assert not any(module._forward_pre_hooks for module in model.modules())


# Batch norms


SHRINK_A_BATCH_NORM: dict[str, Callable[[Any, Any], Any]] = {
    "truncate": lambda model, batches: awn.truncate(model, units=11, calibrate=batches),
    "remove_units": lambda model, batches: awn.advanced.remove_units(
        model, {"hidden.0": range(11, 40), "hidden.1": range(11, 39)}, calibrate=batches
    ),
    "compress": lambda model, batches: awn.compress(
        model, lambda m: float(min(awn.widths(m).values()) >= 11), scope="layer", calibrate=batches
    ),
}


@pytest.mark.parametrize("shrink", SHRINK_A_BATCH_NORM.values(), ids=SHRINK_A_BATCH_NORM)
@pytest.mark.parametrize("form", ["inputs", "pairs", "generator"])
def test_calibration_gives_batch_norms_the_statistics_of_what_they_now_see(
    shrink: Callable[[Any, Any], Any], form: str
) -> None:
    model = trained("batch norm")
    inputs = [torch.randn(n, IN, dtype=torch.float64) for n in (16, 16, 9)]
    batches: Any = {
        "inputs": lambda: inputs,
        "pairs": lambda: [(x, torch.zeros(len(x))) for x in inputs],
        "generator": lambda: (x for x in inputs),
    }[form]()
    before = snapshot(model)
    small = shrink(model, batches)
    assert_same(before, snapshot(model))
    units = layer_units(small)
    assert units == [11, 11]

    weights = {name: leading(t.detach(), active_shapes(small)[name]) for name, t in tensors_of(small).items()}
    seen: list[list[Tensor]] = [[], []]
    for x in inputs:
        for number in range(2):
            x = x @ weights[f"hidden.{number}.weight"].T + weights[f"hidden.{number}.bias"]
            seen[number].append(x)
            scaled = (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()
            x = torch.tanh(scaled * weights[f"norms.{number}.weight"] + weights[f"norms.{number}.bias"])
            x = x * small.hidden[number].width.importance().detach()[: units[number]]
    for number in range(2):
        mean = torch.stack([x.mean(0) for x in seen[number]]).mean(0)
        variance = torch.stack([x.var(0) for x in seen[number]]).mean(0)
        torch.testing.assert_close(weights[f"norms.{number}.running_mean"], mean, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(weights[f"norms.{number}.running_var"], variance, rtol=1e-9, atol=1e-10)
    assert_inert_is_zero(small)
    assert small.training
    assert [norm.momentum for norm in small.norms] == [0.1, 0.1]


def test_without_calibration_statistics_stay() -> None:
    model = trained("batch norm")
    small = awn.truncate(model, units=11)
    for number in range(2):
        for name in ("running_mean", "running_var"):
            assert_same(getattr(model.norms[number], name)[:11], getattr(small.norms[number], name)[:11])


def test_calibration_leaves_a_model_without_batch_norms_alone() -> None:
    model = trained("2 layers")
    batches = [torch.randn(4, IN, dtype=torch.float64)]
    one, other = awn.truncate(model, units=11), awn.truncate(model, units=11, calibrate=batches)
    assert_same(dict(one.state_dict()), dict(other.state_dict()))


# Compress


class Score:
    """A score of the number of units in total, that counts how often it is asked."""

    def __init__(self, of_total: Callable[[int], float]) -> None:
        self.of_total = of_total
        self.asked = 0

    def __call__(self, model: nn.Module) -> float:
        self.asked += 1
        return self.of_total(total(model))


@functools.cache
def all_truncations(scope: str) -> list[int]:
    """The total units of every way to truncate the uneven model: by each fraction, or to each total."""
    model = uneven()
    if scope == "layer":
        return [total(awn.truncate(model, keep=n / 60)) for n in range(1, 61)]
    return [total(awn.truncate(model, units=n, scope="global")) for n in range(2, 76)]


@every_scope
@pytest.mark.parametrize("needed", [2, 3, 30, 31, 47, 74, 75])
def test_compress_finds_the_smallest_truncation_that_keeps_a_steady_score(needed: int, scope: Any) -> None:
    model = uneven()
    score = Score(lambda units: 0.9 if units >= needed else 0.5)
    before = snapshot(model)
    small = awn.compress(model, score, max_drop=0.01, scope=scope)
    assert_same(before, snapshot(model))
    assert total(small) >= needed
    assert score.asked <= math.log2(75) + 3
    assert total(small) == min(units for units in all_truncations(scope) if units >= needed)


@pytest.mark.parametrize(("max_drop", "expected"), [(0.0, 40), (0.1, 36), (0.25, 30), (0.5, 20), (5.0, 1)])
def test_compress_loses_at_most_what_it_may(max_drop: float, expected: int) -> None:
    model = build("1 layer")
    small = awn.compress(model, Score(lambda units: units / 40 + 1e-9), max_drop=max_drop + 1e-9)
    assert awn.widths(small) == {"hidden.0": expected}


@pytest.mark.parametrize("seed", range(10))
def test_compress_keeps_its_promise_for_an_unsteady_score(seed: int) -> None:
    model = uneven()
    noise = torch.rand(76, generator=torch.Generator().manual_seed(seed)).tolist()
    score = Score(lambda units: noise[units])
    small = awn.compress(model, score, max_drop=0.1)
    assert noise[total(small)] >= noise[75] - 0.1


def test_compress_gives_a_copy_even_where_nothing_can_go() -> None:
    model = uneven()
    small = awn.compress(model, Score(float), max_drop=0.0)
    assert small is not model
    assert_same(dict(model.state_dict()), dict(small.state_dict()))


def test_compress_takes_a_real_score() -> None:
    model = trained("2 layers").eval()
    x, _ = batch(model)
    target = model(x).detach()

    def score(m: nn.Module) -> float:
        return -(m.eval()(x) - target).square().mean().item()

    small = awn.compress(model, score, max_drop=0.01)
    assert total(small) < 79
    assert score(small) >= -0.01


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("good", [0, 1, 3])
def test_a_score_that_is_not_finite_is_reported(value: float, good: int) -> None:
    """At once, or when a smaller network is scored."""
    model = uneven()
    score = Score(lambda units: 1.0 if score.asked <= good else value)
    with pytest.raises(awn.AwnError, match=rf"score\(\) returned {value} for a network of [\d,]+ parameters"):
        awn.compress(model, score)
    assert score.asked == good + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_drop": -0.1}, "max_drop must be a finite number of at least 0, got -0.1"),
        ({"max_drop": math.nan}, "max_drop must be a finite number"),
        ({"scope": "layers"}, "scope must be 'layer' or 'global', got 'layers'"),
    ],
)
def test_compress_refuses_what_makes_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(awn.AwnError, match=message):
        awn.compress(uneven(), Score(float), **options)


def test_a_drop_of_exactly_what_is_allowed_is_allowed() -> None:
    model = awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(50))
    small = awn.compress(model, lambda m: 0.8 if awn.widths(m)["hidden.0"] == 50 else 0.7, max_drop=0.1)
    assert awn.widths(small) == {"hidden.0": 1}
