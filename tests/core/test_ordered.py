"""Ordered training: which prefixes are drawn, who sees them, and what they are good for."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import awn
from awn.core.groups import find_groups
from awn.core.ordered import draw_prefix_, has_prefix, use_prefix_
from awn.core.prefix import prefix_units
from awn.errors import ArgumentError
from awn.training import Data, FitOptions, fit
from awn.training.evaluate import accuracy
from cases import IN, OUT


def network(ordered: float = 1.0, units: int = 60, **options: Any) -> awn.AdaptiveMLP:
    made = {"hidden_layers": 2, "importance": awn.Exponential.for_units(units, scale="unit"), **options}
    return awn.AdaptiveMLP(IN, OUT, ordered=ordered, generator=torch.Generator().manual_seed(0), **made)


def convolutions(ordered: float = 1.0) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv1d(1, 24, 2), nn.BatchNorm1d(24), nn.ReLU(), nn.Flatten(), nn.Linear(48, 20), nn.ReLU()]
    model = nn.Sequential(nn.Unflatten(1, (1, IN)), *layers, nn.Linear(20, OUT))
    awn.adapt_(model, ordered=ordered)
    return model


MODELS: dict[str, Callable[..., nn.Module]] = {
    "AdaptiveMLP": network,
    "batch norm": lambda ordered=1.0: network(ordered, batch_norm=True),
    "shared width": lambda ordered=1.0: network(ordered, shared_width=True),
    "block 1": lambda ordered=1.0: network(ordered, block=1),
    "adapted": convolutions,
}


def samples(number: int = 16) -> tuple[Tensor, Tensor]:
    x = torch.randn(number, IN, generator=torch.Generator().manual_seed(1))
    return x, torch.stack([x.sum(1).sin(), x[:, 0].cos()], 1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x, y = samples()
    nll = awn.advanced.ordered_loss(model, lambda: F.mse_loss(model(x), y))
    optimizer.zero_grad()
    awn.objective(nll, model, n_samples=16).backward()
    optimizer.step()
    awn.resize_(model, optimizer)


def trained(model: nn.Module, steps: int = 5) -> nn.Module:
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.01, width_lr=0.05))
    for _ in range(steps):
        step(model.train(), optimizer)
    return model


def units_in_prefix(model: nn.Module) -> dict[str, int]:
    return {group.name: group.width.prefix_units for group in find_groups(model)}


# The draws


@pytest.mark.parametrize("units", [1, 2, 7, 128, 1000])
def test_sizes_are_log_uniform(units: int) -> None:
    """P(size ≤ k) = log(k + ½) / log(units), by the rounding of units^u."""
    sizes = torch.tensor([prefix_units(units, 1.0, draw) for draw in range(4000)])
    assert sizes.min() >= 1
    assert sizes.max() <= units
    for k in {1, 2, units // 10, units // 2} & set(range(1, units)):
        expected = math.log(k + 0.5) / math.log(units)
        assert (sizes <= k).double().mean().item() == pytest.approx(expected, abs=4 * 0.5 / math.sqrt(4000))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_share_of_the_draws_with_a_prefix(share: float) -> None:
    drawn = [prefix_units(10**6, share, draw) < 10**6 for draw in range(4000)]
    assert sum(drawn) / 4000 == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 4000) + 1e-3)


def test_layers_are_cut_by_one_exponent() -> None:
    for draw in range(50):
        small, large = prefix_units(100, 1.0, draw), prefix_units(10_000, 1.0, draw)
        assert math.sqrt(large) == pytest.approx(small, abs=1)


@pytest.mark.parametrize("bad", [2, -0.1, math.nan, "all", None, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda bad: awn.advanced.Width(ordered=bad),
        lambda bad: awn.AdaptiveMLP(2, 2, ordered=bad),
        lambda bad: awn.adapt_(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2)), ordered=bad),
        lambda bad: awn.AdaptiveClassifier(ordered=bad).fit([[0.0], [1.0]] * 5, [0, 1] * 5),
    ],
    ids=["Width", "AdaptiveMLP", "adapt_", "estimator"],
)
def test_a_share_beyond_0_and_1_is_refused(make: Callable[[Any], Any], bad: Any) -> None:
    with pytest.raises(ArgumentError, match="ordered must be a share from 0 to 1, got"):
        make(bad)


@pytest.mark.parametrize("name", MODELS)
def test_every_resize_draws_anew_and_random_numbers_stay(name: str) -> None:
    model = MODELS[name]()
    before, seen = torch.random.get_rng_state(), set()
    for draw in range(1, 10):
        assert awn.resize_(model) == {}
        expected = {group.name: prefix_units(group.width.units, 1.0, draw) for group in find_groups(model)}
        assert units_in_prefix(model) == expected
        seen.add(tuple(expected.values()))
    assert torch.equal(before, torch.random.get_rng_state())
    assert len(seen) > 5


# Who sees a prefix


def prefix_of(model: nn.Module) -> nn.Module:
    """The network of the drawn prefix, cut by other means."""
    cut = copy.deepcopy(model)
    awn.advanced.set_units_(cut, units_in_prefix(model), None)
    return cut


@pytest.mark.parametrize("name", MODELS)
def test_a_prefix_is_the_cut_network_in_loss_and_gradients(name: str) -> None:
    """Also of ν: the mean of the gradients of two networks, one whole and one cut."""
    model = trained(MODELS[name]()).double().train()
    x, y = (part.double() for part in samples())
    assert has_prefix(find_groups(model))
    whole, cut = copy.deepcopy(model), prefix_of(model)
    losses = [F.mse_loss(one(x), y) for one in (whole, cut)]
    for loss in losses:
        loss.backward()
    model.zero_grad()
    loss = awn.advanced.ordered_loss(model, lambda: F.mse_loss(model(x), y))
    loss.backward()
    torch.testing.assert_close(loss, sum(losses) / 2)
    gradients = [{name: p.grad for name, p in one.named_parameters()} for one in (model, whole, cut)]
    for name, found in gradients[0].items():
        expected, other = (gradients[which][name].clone() for which in (1, 2))
        shared = tuple(slice(min(sizes)) for sizes in zip(expected.shape, other.shape, strict=True))
        expected[shared] += other[shared]
        torch.testing.assert_close(found, expected / 2, msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_nobody_else_sees_a_prefix(name: str, tmp_path: Path) -> None:
    """Neither eval mode nor a training forward outside `ordered_loss`, nor cuts, exports, files and copies."""
    x = samples()[0]
    model = trained(MODELS[name]())
    plain = MODELS[name](0.0)
    plain.load_state_dict(model.state_dict())
    plain.train()
    assert has_prefix(find_groups(model))
    for one in (model, plain):
        torch.manual_seed(0)
        one.train()(x)
    torch.testing.assert_close(model(x), plain(x), rtol=0, atol=0)
    expected = plain.eval()(x)
    half = awn.truncate(plain, keep=0.5).eval()(x)
    use_prefix_(model, True)
    with pytest.raises(AssertionError):  # a training forward does see it now
        torch.testing.assert_close(copy.deepcopy(model)(x), copy.deepcopy(plain).train()(x))
    finalized, cut = awn.finalize(model).eval(), awn.truncate(model, keep=0.5).eval()
    model.eval()
    awn.save(model, tmp_path)
    for other in (model, finalized, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other.eval()(x), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(awn.load(tmp_path, MODELS[name](0.0)).eval()(x), expected, rtol=0, atol=0)
    torch.testing.assert_close(cut(x), half, rtol=0, atol=0)
    assert awn.widths(model) == awn.widths(plain)
    for here, there in zip(find_groups(model), find_groups(plain), strict=True):
        assert torch.equal(here.width.train().importance(), there.width.importance())


def test_a_share_of_0_changes_nothing_to_the_bit() -> None:
    """A model without the option, trained without `ordered_loss`."""
    torch.manual_seed(0)
    ordered = trained(network(0.0))
    torch.manual_seed(0)
    plain = awn.AdaptiveMLP(
        IN,
        OUT,
        2,
        importance=awn.Exponential.for_units(60, scale="unit"),
        generator=torch.Generator().manual_seed(0),
    )
    optimizer = torch.optim.Adam(awn.param_groups(plain, lr=0.01, width_lr=0.05))
    x, y = samples()
    for _ in range(5):
        optimizer.zero_grad()
        awn.objective(F.mse_loss(plain(x), y), plain, n_samples=16).backward()
        optimizer.step()
        awn.resize_(plain, optimizer)
    assert [group.width.draw for group in find_groups(ordered)] == [0, 0]
    for (name, here), there in zip(ordered.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(here, there), name


@pytest.mark.parametrize("name", ["batch norm", "adapted"])
def test_a_prefix_leaves_running_statistics_alone(name: str) -> None:
    x, y = samples()
    model = trained(MODELS[name]()).train()
    assert has_prefix(find_groups(model))
    alone = copy.deepcopy(model)
    alone(x)
    awn.advanced.ordered_loss(model, lambda: F.mse_loss(model(x), y))
    for (buffer, here), there in zip(model.named_buffers(), alone.buffers(), strict=True):
        assert torch.equal(here, there), buffer
    assert all(norm.track_running_stats for norm in model.modules() if isinstance(norm, nn.BatchNorm1d))


def test_a_norm_that_tracks_nothing_is_left_as_it_is() -> None:
    model = network(batch_norm=True)
    model.norms[0].track_running_stats = False
    trained(model)
    assert [norm.track_running_stats for norm in model.norms] == [False, True]


def test_the_whole_network_is_whole_inside_a_step_of_the_prefix() -> None:
    """As with a framework's callback, whose steps use the prefix alone unless the loss says otherwise."""
    x, y = samples()
    model = trained(network(batch_norm=True)).train()
    twin = copy.deepcopy(model)
    assert not use_prefix_(twin, True)
    found = awn.advanced.ordered_loss(twin, lambda: F.mse_loss(twin(x), y))
    assert use_prefix_(twin, False)
    direct = awn.advanced.ordered_loss(model, lambda: F.mse_loss(model(x), y))
    torch.testing.assert_close(found, direct, rtol=0, atol=0)
    assert torch.equal(twin.norms[1].running_mean, model.norms[1].running_mean)


def test_an_error_in_the_loss_leaves_the_network_whole() -> None:
    model, calls = network(batch_norm=True), []

    def fails() -> Tensor:
        calls.append(model.hidden[0].width.uses_prefix)
        if calls[-1]:
            raise KeyError("the second time")
        return torch.zeros(())

    with pytest.raises(KeyError):
        awn.advanced.ordered_loss(model, fails)
    assert calls == [False, True]
    assert not model.hidden[0].width.uses_prefix
    assert all(norm.track_running_stats for norm in model.norms)


def test_a_training_that_is_not_ordered_is_told_so() -> None:
    model = network(1.0)
    for _ in range(9):
        awn.resize_(model)
    with pytest.warns(UserWarning, match=r"ordered=1, but the last 10 prefixes were not used: .*ordered_loss"):
        awn.resize_(model)


# State


@pytest.mark.parametrize("name", MODELS)
def test_the_draw_is_part_of_the_state(name: str, tmp_path: Path) -> None:
    model = trained(MODELS[name](0.7), 7)
    awn.save(model, tmp_path)
    others = [MODELS[name](0.7), awn.load(tmp_path, MODELS[name](0.0))]
    others[0].load_state_dict(model.state_dict())
    for other in [*others, copy.deepcopy(model), pickle.loads(pickle.dumps(model))]:
        assert [group.width.ordered for group in find_groups(other)] == [0.7] * len(find_groups(model))
        for _ in range(2):
            assert units_in_prefix(other) == units_in_prefix(model)
            draw_prefix_(find_groups(model))
            draw_prefix_(find_groups(other))
        for group in find_groups(model):
            group.width.draw_(7)
    assert "ordered=0.7" in repr(model)


def test_a_state_dict_without_a_draw_starts_at_the_first() -> None:
    model = trained(network())
    model.load_state_dict(network(0.0).state_dict())
    assert {group.width.draw for group in find_groups(model)} == {0}
    plain = network(0.0)
    plain.load_state_dict(trained(network()).state_dict())
    assert not has_prefix(find_groups(plain))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_prefixes_move_and_change_precision_with_their_model(dtype: torch.dtype) -> None:
    model = network().to(dtype)
    for group in find_groups(model):
        mask = group.width.prefix
        assert mask is not None
        assert mask.dtype == group.width.log_nu.dtype
        assert mask.sum() == group.width.prefix_units


def test_a_failed_resize_draws_nothing() -> None:
    model = network()
    before = units_in_prefix(model)
    with torch.no_grad():
        model.hidden[0].width.log_nu.fill_(math.nan)
    with pytest.raises(awn.AwnError):
        awn.resize_(model)
    assert units_in_prefix(model) == before
    assert {group.width.draw for group in find_groups(model)} == {0}


# What it is good for


def arcs(seed: int) -> Data:
    """Eight classes on a circle, each in two places."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 16, (600,), generator=generator)
    angle = y * (math.pi / 8) + 0.08 * torch.randn(600, generator=generator)
    return Data(torch.stack([angle.cos(), angle.sin()], 1), y % 8)


@pytest.mark.parametrize("batch_norm", [False, True], ids=["by hand", "by autograd, with batch norm"])
def test_small_prefixes_are_good_networks(batch_norm: bool) -> None:
    scores = {}
    for ordered in (0.0, 1.0):
        importance = awn.Exponential.for_units(64, scale="unit")
        generator = torch.Generator().manual_seed(0)
        made = {"importance": importance, "ordered": ordered, "batch_norm": batch_norm, "generator": generator}
        model = awn.AdaptiveMLP(2, 8, 3, **made)
        options = FitOptions(epochs=60, batch_size=50, width_lr=1e-4, patience=None, by_hand=not batch_norm)
        prior = awn.Prior(weight_scale=10.0)
        fit(model, arcs(0), loss=awn.likelihood.categorical, options=options, prior=prior)
        cut = awn.truncate(model, keep=0.5)
        if batch_norm:  # the statistics of the whole network do not fit a cut one
            torch.optim.swa_utils.update_bn(DataLoader(arcs(0).x, 600), cut)
        scores[ordered] = accuracy(model, arcs(1)), accuracy(cut.eval(), arcs(1))
    assert min(scores[0.0][0], scores[1.0][0]) > 0.9, scores
    assert scores[1.0][1] > 0.9, scores
    assert scores[1.0][1] > scores[0.0][1] + 0.15, scores
