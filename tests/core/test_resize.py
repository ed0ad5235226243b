"""resize_: what it does to optimizers, schedulers and gradients, and what it leaves alone when it refuses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import MultiStepLR, OneCycleLR, ReduceLROnPlateau
from torch.utils._python_dispatch import TorchDispatchMode

import awn
from cases import (
    OPTIMIZERS,
    active_parts,
    active_shapes,
    adaptive_net,
    assert_inert_is_zero,
    assert_same,
    batch,
    build,
    leading,
    loss_of,
    move_widths_,
    snapshot,
    tensors_of,
    train_step,
)

# From 100 units in a capacity of 128: two widths that fit it, one beyond it, and one so small that it is given up.
START = 100
within_and_beyond = pytest.mark.parametrize("units", [110, 90, 200, 9], ids=lambda units: f"to {units}")


def resize_to_(model: nn.Module, optimizer: Any, units: int) -> None:
    asked = move_widths_(model, units)
    awn.resize_(model, optimizer)
    assert awn.widths(model) == asked


# Several optimizers, groups, schedulers, scalers


@within_and_beyond
@pytest.mark.parametrize("pack", [list, tuple, iter], ids=lambda pack: pack.__name__)
def test_several_optimizers_are_rewired_at_once(units: int, pack: Callable[[list[Optimizer]], Any]) -> None:
    model = build("2 layers", units=START)
    named = tensors_of(model)
    weights = torch.optim.Adam([p for p in named.values() if p.dim() == 2], lr=0.02)
    others = torch.optim.SGD([p for p in named.values() if p.dim() < 2], lr=0.02, momentum=0.9)

    def step() -> None:
        loss_of(model).backward()
        for optimizer in (weights, others):
            optimizer.step()
            optimizer.zero_grad()

    step()
    move_widths_(model, units)
    smaller = [min(START, units), min(START, units - 1)]
    kept = active_parts(model, weights, others, shapes=active_shapes(model, smaller))
    awn.resize_(model, pack([weights, others]))
    assert_same(kept, active_parts(model, weights, others, shapes=active_shapes(model, smaller)))
    before = active_parts(model)
    step()
    assert all((value != before[key]).all() for key, value in active_parts(model).items())
    held = [p for optimizer in (weights, others) for group in optimizer.param_groups for p in group["params"]]
    assert set(map(id, held)) == set(map(id, model.parameters()))


def test_one_of_several_optimizers_is_not_enough() -> None:
    model = build("2 layers")
    named = tensors_of(model)
    weights = torch.optim.Adam([p for p in named.values() if p.dim() == 2])
    others = torch.optim.Adam([p for p in named.values() if p.dim() < 2])
    move_widths_(model, 90)
    before = snapshot(model, weights, others)
    with pytest.raises(awn.AwnError, match=r"hidden\.0\.bias.*pass them all"):
        awn.resize_(model, weights)
    assert_same(before, snapshot(model, weights, others))


@within_and_beyond
def test_param_groups_keep_their_options_and_their_order(units: int) -> None:
    model = build("batch norm", units=START)
    named = tensors_of(model)
    trained = {name: p for name, p in named.items() if isinstance(p, nn.Parameter)}
    split = [
        {"params": [p for name, p in trained.items() if name.startswith("output")], "lr": 0.3, "weight_decay": 0.1},
        {"params": [p for name, p in trained.items() if name.startswith("hidden")], "betas": (0.5, 0.6)},
        {"params": [p for name, p in trained.items() if name.startswith("norms")], "amsgrad": True, "note": "mine"},
    ]
    optimizer = torch.optim.Adam(split, lr=0.02)

    def layout() -> list[dict[str, Any]]:
        names = {p: name for name, p in tensors_of(model).items()}
        return [{**group, "params": [names[p] for p in group["params"]]} for group in optimizer.param_groups]

    train_step(model, optimizer)
    before = layout()
    resize_to_(model, optimizer, units)
    assert layout() == before
    train_step(model, optimizer)
    assert "max_exp_avg_sq" in optimizer.state[model.norms[0].weight]
    assert "max_exp_avg_sq" not in optimizer.state[model.hidden[0].weight]


SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "OneCycleLR": lambda optimizer: OneCycleLR(optimizer, max_lr=0.1, total_steps=12),
    "MultiStepLR": lambda optimizer: MultiStepLR(optimizer, milestones=[2, 5], gamma=0.1),
    "ReduceLROnPlateau": lambda optimizer: ReduceLROnPlateau(optimizer, factor=0.5, patience=1),
}


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
def test_schedulers_go_on_with_the_same_optimizer(make: Callable[[Optimizer], Any]) -> None:
    """The rates are those of a scheduler on a plain weight that is never resized."""
    model, plain = build("2 layers"), nn.Parameter(torch.zeros(3))
    optimizer, plain_optimizer = torch.optim.Adam(model.parameters(), lr=0.02), torch.optim.Adam([plain], lr=0.02)
    scheduler, plain_scheduler = make(optimizer), make(plain_optimizer)
    rates = []
    for units in (44, 90, 70, 9, 9, 31, 64, 65, 66, 12):
        train_step(model, optimizer)
        resize_to_(model, optimizer, units)
        plain.grad = torch.zeros(3)
        plain_optimizer.step()
        for one in (scheduler, plain_scheduler):
            one.step(1.0) if isinstance(one, ReduceLROnPlateau) else one.step()  # a loss that never gets better
        rates.append(optimizer.param_groups[0]["lr"])
        assert rates[-1] == plain_optimizer.param_groups[0]["lr"]
        assert scheduler.optimizer is optimizer
    assert len(set(rates)) >= 3


@within_and_beyond
def test_a_schedulers_rate_acts_on_the_replaced_parameters(units: int) -> None:
    model = build("2 layers", units=START)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = MultiStepLR(optimizer, milestones=[1], gamma=0.0)
    train_step(model, optimizer)
    resize_to_(model, optimizer, units)
    scheduler.step()  # the rate is 0 from here on
    before = active_parts(model)
    train_step(model, optimizer)
    assert_same(before, active_parts(model))


@pytest.mark.parametrize("optimizer_name", ["SGD momentum", "Adam", "AdamW"])
def test_a_grad_scaler_changes_nothing_but_the_scale(optimizer_name: str) -> None:
    """Scaling by a power of two is exact, so the run with a scaler equals the one without to the last bit."""
    results = []
    for scaled in (True, False):
        torch.manual_seed(0)
        model = build("2 layers")
        optimizer = OPTIMIZERS[optimizer_name](model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2, enabled=scaled)
        for units in (44, 90, 9, 70):
            optimizer.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.step(optimizer)
            scaler.update()
            resize_to_(model, optimizer, units)
        results.append(active_parts(model, optimizer))
        if scaled:
            assert scaler.get_scale() == 2.0**12
    assert_same(*results)


@within_and_beyond
def test_a_step_that_a_grad_scaler_skips_does_not_hinder_a_resize(units: int) -> None:
    model = build("2 layers", units=START)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    before = active_parts(model)
    scaler.scale(loss_of(model)).backward()
    model.output.bias.grad.fill_(math.inf)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**9
    assert_same(before, active_parts(model))
    optimizer.zero_grad()
    resize_to_(model, optimizer, units)
    scaler.scale(loss_of(model)).backward()
    before = active_parts(model)
    scaler.step(optimizer)
    assert all((value != before[key]).all() for key, value in active_parts(model).items())


def test_autocast_to_half_precision_leaves_the_importance_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Some virtual machines announce bfloat16 instructions that they do not have; plain kernels need none.
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    model = build("2 layers", dtype=torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for units in (44, 90, 9):
        x, y = batch(model)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(x)
        assert output.dtype == torch.bfloat16
        importance = model.hidden[0].width.importance()
        assert importance.dtype == torch.float32
        optimizer.zero_grad()
        F.mse_loss(output.float(), y).backward()
        optimizer.step()
        resize_to_(model, optimizer, units)
        assert_inert_is_zero(model, optimizer)


# Gradients


@within_and_beyond
@pytest.mark.parametrize("block", [1, 32])
def test_gradients_survive_a_resize_in_the_middle_of_an_accumulation(units: int, block: int) -> None:
    model = build("batch norm", units=START, block=block)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    train_step(model, optimizer)
    optimizer.zero_grad()
    loss_of(model).backward()
    move_widths_(model, units)
    smaller = active_shapes(model, [min(START, units), min(START, units - 1)])
    kept = {name: leading(p.grad.clone(), smaller[name]) for name, p in grown(model)}
    awn.resize_(model, optimizer)
    for name, p in grown(model):
        assert p.grad.shape == p.shape
        assert_same(kept[name], leading(p.grad, smaller[name]), name)
        rest = p.grad.clone()
        leading(rest, smaller[name]).zero_()
        assert not rest.any(), f"{name}: new units start with no gradient"

    first_half = {name: p.grad.clone() for name, p in grown(model)}
    data = batch(model)
    loss_of(model, data).backward()
    both = {name: p.grad.clone() for name, p in grown(model)}
    optimizer.zero_grad()
    model.train()
    loss_of(model, data).backward()
    for name, p in grown(model):
        torch.testing.assert_close(both[name], first_half[name] + p.grad, rtol=1e-12, atol=1e-15)


@within_and_beyond
@pytest.mark.parametrize("block", [1, 32])
def test_a_resize_between_a_forward_and_its_backward_loses_no_gradient_in_silence(units: int, block: int) -> None:
    model = build("2 layers", units=START, block=block)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    train_step(model, optimizer)
    optimizer.zero_grad()
    early = loss_of(model)
    resize_to_(model, optimizer, units)
    with pytest.raises((awn.AwnError, RuntimeError), match=r"a resize has replaced|modified by an inplace operation"):
        early.backward()
    optimizer.zero_grad()
    train_step(model, optimizer)


def grown(model: nn.Module) -> list[tuple[str, Any]]:
    return [(name, p) for name, p in tensors_of(model).items() if isinstance(p, nn.Parameter)]


@within_and_beyond
def test_parameters_without_a_gradient_get_none(units: int) -> None:
    model = build("2 layers", units=START)
    optimizer = torch.optim.Adam(model.parameters())
    resize_to_(model, optimizer, units)
    assert all(p.grad is None for p in model.parameters())


# Optimizers of others


class SignMomentum(Optimizer):
    """Someone else's optimizer: state of the weight's shape, and numbers and words beside it."""

    def __init__(self, params: Iterable[Any], lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(velocity=torch.zeros_like(p), count=0, calls=torch.tensor(0), kind="sign", spare=None)
                state["count"] += 1
                state["calls"] += 1
                state["velocity"].mul_(0.9).add_(p.grad)
                p.sub_(state["velocity"].sign(), alpha=group["lr"])


class RowMeans(SignMomentum):
    """Someone else's optimizer with a state of another shape: one number a row."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["row_means"] = p.grad.reshape(len(p) if p.dim() else 1, -1).mean(1)
                p.sub_(p.grad, alpha=group["lr"])


class History(SignMomentum):
    """Someone else's optimizer that keeps a list of tensors."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p].setdefault("history", []).append(p.grad.clone())
                p.sub_(p.grad, alpha=group["lr"])


@within_and_beyond
def test_a_third_party_optimizer_with_state_per_weight_follows(units: int) -> None:
    model = build("batch norm", units=START)
    optimizer = SignMomentum(model.parameters())
    train_step(model, optimizer)
    move_widths_(model, units)
    smaller = active_shapes(model, [min(START, units), min(START, units - 1)])
    kept = active_parts(model, optimizer, shapes=smaller)
    assert ("hidden.0.weight", "velocity") in kept
    awn.resize_(model, optimizer)
    assert_same(kept, active_parts(model, optimizer, shapes=smaller))
    assert_inert_is_zero(model, optimizer)
    train_step(model, optimizer)
    assert all(state["count"] == 2 for state in optimizer.state.values())


REFUSED: dict[str, tuple[Callable[[Any], Optimizer], str]] = {
    "another shape": (RowMeans, r"RowMeans keeps 'row_means' for 'hidden\.0\.weight'"),
    "a list": (History, r"History keeps 'history' for 'hidden\.0\.weight'"),
    "Adafactor": (lambda p: torch.optim.Adafactor(p), r"Adafactor keeps '(row|col)_var' for 'hidden\.0\.weight'"),
}


@within_and_beyond
@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_state_that_cannot_follow_is_refused_and_nothing_changed(
    make: Callable[[Any], Optimizer], message: str, units: int
) -> None:
    model = build("2 layers", units=START)
    optimizer = make(model.parameters())
    train_step(model, optimizer)
    move_widths_(model, units)
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=message):
        awn.resize_(model, optimizer)
    assert_same(before, snapshot(model, optimizer))


@within_and_beyond
def test_lbfgs_is_refused_and_nothing_changed(units: int) -> None:
    model = build("2 layers", units=START)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    data = batch(model)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, data)
        loss.backward()
        return loss

    optimizer.step(closure)
    move_widths_(model, units)
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=r"LBFGS.*Use Adam or SGD"):
        awn.resize_(model, optimizer)
    assert_same(before, snapshot(model, optimizer))


# An optimizer that does not fit


@within_and_beyond
@pytest.mark.parametrize(
    "lacking", ["hidden.0.weight", "hidden.1.bias", "norms.1.weight", "output.weight"], ids=lambda name: name
)
def test_an_optimizer_that_lacks_a_parameter_is_an_error_before_anything_changes(lacking: str, units: int) -> None:
    model = build("batch norm", units=START)
    optimizer = torch.optim.Adam([p for name, p in grown(model) if name != lacking])
    train_step(model, optimizer)
    move_widths_(model, units)
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=f"does not hold '{lacking}'"):
        awn.resize_(model, optimizer)
    assert_same(before, snapshot(model, optimizer))


@pytest.mark.parametrize(
    "wrong", ["adam", 3, torch.zeros(2), [nn.Linear(2, 2)]], ids=lambda wrong: type(wrong).__name__
)
def test_something_that_is_no_optimizer_is_an_error(wrong: Any) -> None:
    model = build("2 layers")
    before = snapshot(model)
    with pytest.raises(awn.AwnError, match="optimizer must be a torch optimizer"):
        awn.resize_(model, wrong)
    assert_same(before, snapshot(model))


def test_a_model_without_widths_is_an_error() -> None:
    with pytest.raises(awn.AwnError, match=r"Linear has no layer with a learned width.*awn\.AdaptiveMLP"):
        awn.resize_(nn.Linear(2, 2), None)


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ({"hidden.7": 3}, r"no layer 'hidden\.7'.*'hidden\.0', 'hidden\.1'"),
        ({"hidden.0": 20, "hidden.1": 0}, r"units\['hidden\.1'\] must be a whole number of at least 1, got 0"),
        ({"hidden.0": 2.5}, r"units\['hidden\.0'\] must be a whole number"),
        ({"hidden.0": True}, r"units\['hidden\.0'\] must be a whole number"),
    ],
)
def test_set_units_refuses_what_is_no_width(units: Any, message: str) -> None:
    model = build("2 layers")
    before = snapshot(model)
    with pytest.raises(awn.AwnError, match=message):
        awn.advanced.set_units_(model, units, None)
    assert_same(before, snapshot(model))


# Frozen parameters, attributes, hand-connected tensors


@within_and_beyond
def test_frozen_parameters_are_resized_without_an_optimizer(units: int) -> None:
    model = build("batch norm", units=START)
    for p in (model.hidden[0].weight, model.norms[1].bias, tensors_of(model)["output.weight"]):
        p.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    train_step(model, optimizer)
    move_widths_(model, units)
    smaller = active_shapes(model, [min(START, units), min(START, units - 1)])
    kept = active_parts(model, optimizer, shapes=smaller)
    awn.resize_(model, optimizer)
    assert_same(kept, active_parts(model, optimizer, shapes=smaller))
    frozen = {name for name, p in grown(model) if not p.requires_grad}
    assert frozen == {"hidden.0.weight", "norms.1.bias", "output.weight"}
    before = active_parts(model)
    train_step(model, optimizer)
    assert_same({key: before[key] for key in before if key[0] in frozen}, active_frozen(model, frozen))
    assert all(tensors_of(model)[name].grad is None for name in frozen)


def active_frozen(model: nn.Module, names: set[str]) -> dict[Any, Any]:
    return {key: value for key, value in active_parts(model).items() if key[0] in names}


def test_what_users_note_on_parameters_survives() -> None:
    model = build("2 layers")
    optimizer = torch.optim.Adam(model.parameters())
    for name, p in grown(model):
        p.note = f"mine: {name}"
    replaced = [p for _, p in grown(model)]
    resize_to_(model, optimizer, 90)
    assert sum(p is not old for (_, p), old in zip(grown(model), replaced, strict=True)) >= 5
    assert [p.note for _, p in grown(model)] == [f"mine: {name}" for name, _ in grown(model)]


def test_a_resize_without_an_optimizer_is_noticed_by_the_one_built_before() -> None:
    model = build("2 layers")
    optimizer = torch.optim.Adam(model.parameters())
    resize_to_(model, None, 90)
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=r"does not hold 'hidden\.0\.weight'"):
        awn.resize_(model, optimizer)  # the widths are as they should be; the optimizer is not
    assert_same(before, snapshot(model, optimizer))
    assert awn.resize_(model, torch.optim.Adam(model.parameters())) == {}


def test_connecting_leaves_nothing_in_the_slots_of_inert_units() -> None:
    """The weight prior takes whole tensors, so that a number left in an inert slot would count."""
    net = adaptive_net(12, 20, block=32)
    weights = [
        net.conv.weight[:12],
        net.conv.bias[:12],
        net.middle._parameters["weight"][:20, :24],
        net.middle.bias[:20],
        net.head._parameters["weight"][:, :20],
        net.head.bias,
    ]
    squares = sum(weight.detach().double().square().sum().item() for weight in weights)
    prior = awn.loss.terms(torch.zeros(()), net, n_samples=7, prior=awn.Prior(weight_scale=2.0))["weights"]
    assert prior.item() == pytest.approx(squares / (2 * 2.0**2) / 7, rel=1e-5)


# ν that is no longer a number, or runs away


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("layer", [0, 1])
def test_a_nu_that_is_not_finite_is_reported_by_layer_and_step(value: float, layer: int) -> None:
    model = build("2 layers")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(3):
        train_step(model, optimizer)
    move_widths_(model, 70)
    with torch.no_grad():
        model.hidden[layer].width.log_nu.fill_(value)
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=rf"in layer 'hidden\.{layer}' at step 3; its width stays at 40") as caught:
        awn.resize_(model, optimizer)
    assert isinstance(caught.value, ArithmeticError)
    assert_same(before, snapshot(model, optimizer))


def test_other_numbers_that_were_lost_are_named_too() -> None:
    model = build("2 layers")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    with torch.no_grad():
        model.hidden[0].width.log_nu.fill_(math.nan)
        tensors_of(model)["output.weight"][0, 0] = math.inf
    with pytest.raises(awn.AwnError, match=r"Also not finite:.*output\.weight\. .*lower the learning rate"):
        awn.resize_(model, optimizer)


@pytest.mark.parametrize("log_nu", [-30.0, -60.0, -100.0, -600.0, -800.0])
def test_a_nu_that_asks_for_more_units_than_any_machine_holds_is_reported_by_layer(log_nu: float) -> None:
    """e^−30 asks for 2.5·10¹³ units, e^−100 for more than a whole number of 64 bits, e^−800 is zero to a double."""
    model = build("2 layers")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    train_step(model, optimizer)
    model.hidden[1].width.move_(log_nu)
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=r"hidden\.1"):
        awn.resize_(model, optimizer)
    assert_same(before, snapshot(model, optimizer))


@pytest.mark.parametrize("log_nu", [5.0, 100.0, 1e30])
def test_a_nu_that_asks_for_no_units_at_all_gives_one_and_comes_back(log_nu: float) -> None:
    model = build("2 layers")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    model.hidden[0].width.move_(log_nu)
    awn.resize_(model, optimizer)
    assert awn.widths(model)["hidden.0"] == 1
    # ν is brought back to where the soft width is a tenth of a unit: ln 10 / rate = 0.1.
    assert model.hidden[0].width.nu.item() == pytest.approx(math.log(10) / 0.1, rel=1e-5)
    assert awn.resize_(model, optimizer) == {}
    train_step(model, optimizer)
    assert torch.isfinite(model.hidden[0].width.log_nu)


@pytest.mark.parametrize(("asked", "given"), [(500, 64), (64, 64), (20, 20), (8, 8), (3, 8), (1, 8)])
def test_bounds_hold_and_nu_does_not_drift_past_them(asked: int, given: int) -> None:
    model = build("2 layers", min_units=8, max_units=64)
    optimizer = torch.optim.Adam(model.parameters())
    move_widths_(model, asked)
    awn.resize_(model, optimizer)
    assert awn.widths(model)["hidden.0"] == given
    soft = math.log(10) / model.hidden[0].width.nu.item()
    assert 7 - 1e-3 <= soft <= 64 + 1e-3
    assert awn.resize_(model, optimizer) == {}


# Capacity


def replacements(model: Any, optimizer: Optimizer, targets: Iterable[int]) -> int:
    """How many times the first weight is replaced by another Parameter on the way."""
    count, present = 0, model.hidden[0].weight
    for units in targets:
        model.hidden[0].width.move_(math.log(math.log(10) / (units - 0.5)))  # exponential: ln 10 / rate = units − ½
        awn.resize_(model, optimizer)
        assert awn.widths(model)["hidden.0"] == units
        if model.hidden[0].weight is not present:
            count, present = count + 1, model.hidden[0].weight
        assert len(present) >= units
    return count


@pytest.mark.parametrize("edge", [32, 64, 96, 512, 1024, 1536, 2048, 4096])
@pytest.mark.parametrize("swing", [1, 3])
def test_a_width_that_swings_around_an_edge_does_not_reallocate(edge: int, swing: int) -> None:
    model = build("1 layer", units=edge, dtype=torch.float32)
    optimizer = torch.optim.Adam(model.parameters())
    there_and_back = [edge + swing, edge - swing] * 5
    assert replacements(model, optimizer, there_and_back) <= 2


def test_the_capacity_follows_a_width_that_falls_well_below_it() -> None:
    model = build("1 layer", units=300)
    optimizer = torch.optim.Adam(model.parameters())
    assert replacements(model, optimizer, range(299, 9, -1)) >= 3
    assert len(model.hidden[0].weight) <= 10 + 3 * 8


@pytest.mark.filterwarnings("error")
def test_weight_decay_of_a_learned_width_is_warned_of_once() -> None:
    model = build("2 layers")
    careless = torch.optim.AdamW(model.parameters())  # decays by 0.01
    with pytest.warns(UserWarning, match=r"pulls at the learned width of 'hidden\.0', 'hidden\.1'.*param_groups"):
        awn.resize_(model, careless)
    awn.resize_(model, careless)
    careful = build("2 layers")
    awn.resize_(careful, torch.optim.AdamW(awn.param_groups(careful, lr=0.01, weight_decay=0.1)))


def test_within_the_capacity_no_parameter_is_replaced() -> None:
    model = build("batch norm", units=64)
    optimizer = torch.optim.Adam(model.parameters())
    train_step(model, optimizer)
    before = dict(model.named_parameters())
    for units in (63, 50, 64, 49, 58):
        resize_to_(model, optimizer, units)
        assert all(p is before[name] for name, p in model.named_parameters())
    assert len(model.hidden[0].weight) == 64


def test_a_unit_that_was_dropped_comes_back_as_a_new_one() -> None:
    model = build("2 layers")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    train_step(model, optimizer)
    old = tensors_of(model)["hidden.0.weight"][39].clone()
    for units in (39, 40):  # both within the capacity
        resize_to_(model, optimizer, units)
    weight = tensors_of(model)["hidden.0.weight"]
    assert (weight[39] != old).all()
    assert not optimizer.state[weight]["exp_avg"][39].any()
    assert not optimizer.state[weight]["exp_avg_sq"][39].any()


def test_growing_a_unit_at_a_time_reallocates_rarely() -> None:
    """A step of at least 8 units, and of a 32nd of the width beyond 256, needs no more than this many."""
    model = build("1 layer", units=64, dtype=torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    most = (256 - 64) // 8 + math.ceil(math.log(4096 / 256) / math.log(1 + 1 / 32))
    assert replacements(model, optimizer, range(65, 4097)) <= most
    assert most < 4032 / 30
    assert len(model.hidden[0].weight) <= 4096 * (1 + 1 / 8)


# Failures in the middle


class OutOfMemory(RuntimeError):
    """What torch raises when there is no memory left."""


class ScarceMemory(TorchDispatchMode):
    """Lets a number of new tensors be made, and then no more: views and changes in place need no memory."""

    def __init__(self, tensors: int) -> None:
        super().__init__()
        self.left = tensors

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(one.alias_info is None and "Tensor" in str(one.type) for one in func._schema.returns):
            self.left -= 1
            if self.left < 0:
                raise OutOfMemory(f"no memory for the result of {func}")
        return func(*args, **(kwargs or {}))


@within_and_beyond
def test_running_out_of_memory_anywhere_leaves_all_as_it_was(units: int) -> None:
    model = build("batch norm", units=START)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    train_step(model, optimizer)
    asked = move_widths_(model, units)
    before = {**snapshot(model, optimizer), "random": None}
    for tensors in itertools.count():
        try:
            with ScarceMemory(tensors):
                awn.resize_(model, optimizer)
        except (OutOfMemory, awn.AwnError):
            assert_same(before, {**snapshot(model, optimizer), "random": None})
        else:
            break
    assert tensors > (1 if units == 90 else 5)  # to drop units within the capacity takes hardly any memory
    assert awn.widths(model) == asked
    assert_inert_is_zero(model, optimizer)
    train_step(model, optimizer)


def test_a_generator_that_is_none_leaves_all_as_it_was() -> None:
    model = build("2 layers")
    optimizer = torch.optim.Adam(model.parameters())
    move_widths_(model, 90)
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=r"generator must be a torch\.Generator"):
        awn.resize_(model, optimizer, generator=42)  # type: ignore[arg-type]
    assert_same(before, snapshot(model, optimizer))


def test_new_units_come_from_the_generator_that_is_given() -> None:
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        model = build("2 layers")
        optimizer = torch.optim.Adam(model.parameters())
        state = torch.get_rng_state()
        move_widths_(model, 90)
        awn.resize_(model, optimizer, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(torch.get_rng_state(), state)
        drawn.append(tensors_of(model)["hidden.0.weight"].detach())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


# Any sequence of widths


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    moves=st.lists(
        st.tuples(st.integers(1, 150), st.integers(1, 150), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    block=st.sampled_from([1, 3, 32]),
    case=st.sampled_from(["2 layers", "batch norm"]),
    new_units=st.sampled_from(["rescaled", "normal", "zero"]),
)
def test_any_sequence_of_widths_keeps_the_invariants(
    moves: list[tuple[int, int, bool]], block: int, case: str, new_units: Any
) -> None:
    torch.manual_seed(0)
    model = build(case, block=block, new_units=new_units)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for first, second, with_a_step in moves:
        if with_a_step:
            train_step(model, optimizer)
        asked = {"hidden.0": first, "hidden.1": second}
        for group in awn.advanced.find_groups(model):
            group.width.move_to_(asked[group.name])
        present = awn.widths(model)
        smaller = active_shapes(model, [min(present[name], asked[name]) for name in asked])
        kept = active_parts(model, optimizer, shapes=smaller)
        awn.resize_(model, optimizer)
        assert awn.widths(model) == asked
        assert_same(kept, active_parts(model, optimizer, shapes=smaller))
        assert_inert_is_zero(model, optimizer)
        check_shapes(model, optimizer, block)
    model.eval()
    x, _ = batch(model)
    expected = model(x)
    torch.testing.assert_close(awn.finalize(model)(x), expected, rtol=1e-10, atol=1e-11)


def check_shapes(model: Any, optimizer: Optimizer, block: int) -> None:
    capacities = [group.width.capacity for group in awn.advanced.find_groups(model)]
    for name, shape in active_shapes(model, capacities).items():
        tensor = tensors_of(model)[name]
        assert tuple(tensor.shape) == shape, name
        for value in optimizer.state.get(tensor, {}).values():
            assert tuple(value.shape) in (shape, ())
    for units, capacity in zip(awn.widths(model).values(), capacities, strict=True):
        assert capacity % block == 0
        # Two steps to spare, and one that rounding up may take; a step is the block, or a 16th of a wide layer.
        assert 0 <= capacity - units <= (0 if block == 1 else 3 * max(block, capacity / 16))
    assert [layer.out_features for layer in model.hidden] == capacities
    assert model.output.in_features == capacities[-1]
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == {id(p) for p in model.parameters()}


def test_an_optimizer_without_nu_is_refused_at_the_first_resize() -> None:
    model = awn.AdaptiveMLP(2, 2)
    weights = [p for name, p in model.named_parameters() if not name.endswith("log_nu")]
    with pytest.raises(awn.AwnError, match=r"hidden\.0\.width\.log_nu"):
        awn.resize_(model, torch.optim.Adam(weights))


def test_hooks_on_a_weight_go_over_to_the_one_that_replaces_it() -> None:
    model = awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(20), block=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    called = []
    model.hidden[0].weight.register_hook(lambda gradient: called.append("gradient"))
    model.hidden[0].weight.register_post_accumulate_grad_hook(lambda weight: called.append("accumulated"))
    model.hidden[0].width.move_to_(30)
    awn.resize_(model, optimizer)
    model(torch.randn(4, 2)).sum().backward()
    assert called == ["gradient", "accumulated"]
