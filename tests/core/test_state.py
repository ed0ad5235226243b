"""State dicts across widths: a model takes the widths of what it loads, or says why not and stays as it was."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
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
    active_parts,
    adaptive_net,
    assert_inert_is_zero,
    assert_same,
    batch,
    build,
    loss_of,
    move_widths_,
    pairwise,
    snapshot,
    tensors_of,
    train_step,
)

# (units before, units in the state dict): to a wider, a narrower, one within the same capacity, and the same.
WIDTHS = {"wider": (7, 90), "narrower": (90, 7), "within the capacity": (40, 50), "the same": (40, 40)}
across_widths = pytest.mark.parametrize(("here", "there"), WIDTHS.values(), ids=WIDTHS)
across_widths_and_blocks = pytest.mark.parametrize(
    ("widths", "block", "other_block"), pairwise(WIDTHS.values(), BLOCKS, BLOCKS), ids=str
)


def trained(case: str, units: int, block: int = 32) -> tuple[Any, torch.optim.Optimizer]:
    """A model and its Adam after three steps, at the width `units`."""
    model = build(case, block=block, units=units)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(3):
        train_step(model, optimizer)
    move_widths_(model, units)
    awn.resize_(model, optimizer)
    return model, optimizer


def assert_equal_models(model: Any, other: Any) -> None:
    """The same widths, the same active weights, and the same output to the last bit where shapes are the same."""
    assert awn.widths(model) == awn.widths(other)
    assert_same(active_parts(model), active_parts(other))
    x, _ = batch(model)
    torch.testing.assert_close(model.eval()(x), other.eval()(x), rtol=1e-12, atol=1e-13)
    model.train()
    other.train()


@pytest.mark.parametrize(
    ("case", "widths", "block", "other_block"), pairwise(MODELS, WIDTHS.values(), BLOCKS, BLOCKS), ids=str
)
def test_a_model_takes_the_widths_of_the_state_dict_it_loads(
    case: str, widths: tuple[int, int], block: int, other_block: int
) -> None:
    model, _ = trained(case, widths[0], block)
    other, _ = trained(case, widths[1], other_block)
    assert str(model.load_state_dict(other.state_dict())) == "<All keys matched successfully>"
    assert_equal_models(model, other)
    assert_inert_is_zero(model)


@across_widths_and_blocks
def test_an_optimizer_built_after_loading_goes_on_as_the_other_would(
    widths: tuple[int, int], block: int, other_block: int
) -> None:
    model, _ = trained("batch norm", widths[0], block)
    other, other_optimizer = trained("batch norm", widths[1], other_block)
    model.load_state_dict(other.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    optimizer.load_state_dict(copy.deepcopy(other_optimizer.state_dict()))  # or torch shares it
    go_on_together(model, optimizer, other, other_optimizer)


@across_widths_and_blocks
def test_an_optimizer_built_before_loading_is_rewired(widths: tuple[int, int], block: int, other_block: int) -> None:
    model, optimizer = trained("batch norm", widths[0], block)
    other, other_optimizer = trained("batch norm", widths[1], other_block)
    assert awn.advanced.load_state_dict_(model, other.state_dict(), optimizer) is None
    assert_equal_models(model, other)
    assert {id(p) for p in optimizer.param_groups[0]["params"]} == {id(p) for p in model.parameters()}
    optimizer.load_state_dict(copy.deepcopy(other_optimizer.state_dict()))  # or torch shares it
    go_on_together(model, optimizer, other, other_optimizer)


def go_on_together(model: Any, optimizer: Any, other: Any, other_optimizer: Any) -> None:
    """Both train on over several widths on the same data with the same random numbers."""
    assert_same(active_parts(model, optimizer), active_parts(other, other_optimizer))
    for units in (31, 66, 12):
        data = batch(model)
        for one, its_optimizer in ((model, optimizer), (other, other_optimizer)):
            torch.manual_seed(units)
            train_step(one, its_optimizer, data)
            move_widths_(one, units)
            awn.resize_(one, its_optimizer)
            assert_inert_is_zero(one, its_optimizer)
    mine, others = active_parts(model, optimizer), active_parts(other, other_optimizer)
    assert mine.keys() == others.keys()
    for key, value in mine.items():
        if "hidden" in key[0] and key[0].endswith("bias"):
            continue  # before a batch norm a bias has no gradient but rounding, which Adam blows up
        torch.testing.assert_close(value, others[key], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("here", "there"), [(7, 90), (90, 7)], ids=["wider", "narrower"])
@pytest.mark.parametrize("with_its_state", [True, False])
def test_an_optimizer_built_before_a_plain_load_is_refused_not_silently_wrong(
    here: int, there: int, with_its_state: bool
) -> None:
    model, optimizer = trained("2 layers", here)
    other, other_optimizer = trained("2 layers", there)
    model.load_state_dict(other.state_dict())
    if with_its_state:
        optimizer.load_state_dict(copy.deepcopy(other_optimizer.state_dict()))  # or torch shares it
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=r"does not hold 'hidden\.0\.weight'.*awn\.advanced\.load_state_dict_"):
        awn.resize_(model, optimizer)
    assert_same(before, snapshot(model, optimizer))
    optimizer = torch.optim.Adam(model.parameters())
    train_step(model, optimizer)
    awn.resize_(model, optimizer)


def test_a_plain_load_within_the_capacity_leaves_no_state_of_units_that_went() -> None:
    """No Parameter is replaced, so the optimizer built before still fits; what it knew of dropped units must go."""
    model, optimizer = trained("2 layers", 60)
    other, _ = trained("2 layers", 40)
    held = list(model.parameters())
    model.load_state_dict(other.state_dict())
    assert all(now is then for now, then in zip(model.parameters(), held, strict=True))
    assert awn.resize_(model, optimizer) == {}
    assert_inert_is_zero(model, optimizer)
    for _ in range(2):
        train_step(model, optimizer)
        awn.resize_(model, optimizer)
        assert_inert_is_zero(model, optimizer)


@across_widths
def test_several_optimizers_are_rewired_on_loading(here: int, there: int) -> None:
    model, _ = trained("2 layers", here)
    other, _ = trained("2 layers", there)
    named = tensors_of(model)
    weights = torch.optim.Adam([p for p in named.values() if p.dim() == 2])
    others = torch.optim.SGD([p for p in named.values() if p.dim() < 2], lr=0.1)
    awn.advanced.load_state_dict_(model, other.state_dict(), [weights, others])
    assert_equal_models(model, other)
    held = {id(p) for one in (weights, others) for group in one.param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters()}
    before = active_parts(model)
    loss_of(model).backward()
    weights.step()
    others.step()
    assert all((value != before[key]).all() for key, value in active_parts(model).items())


@across_widths
def test_assigning_a_state_dict_takes_its_widths_too(here: int, there: int) -> None:
    model, _ = trained("batch norm", here)
    other, _ = trained("batch norm", there)
    model.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
    assert_equal_models(model, other)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    train_step(model, optimizer)
    move_widths_(model, 33)
    awn.resize_(model, optimizer)
    assert awn.widths(model) == {"hidden.0": 33, "hidden.1": 32}


@across_widths
def test_the_state_dict_itself_is_not_changed(here: int, there: int) -> None:
    model, _ = trained("2 layers", here)
    state = trained("2 layers", there)[0].state_dict()
    before = copy.deepcopy(state)
    model.load_state_dict(state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_step(model, optimizer)
    assert_same(dict(before), dict(state))


def test_a_state_dict_is_never_changed_by_reading_it() -> None:
    model, optimizer = trained("batch norm", 40)
    move_widths_(model, 90)  # ν asks for more, but only resize_ gives it
    before = snapshot(model, optimizer)
    model.state_dict()
    model.eval()(batch(model)[0])
    model.train()
    assert awn.widths(model) == {"hidden.0": 40, "hidden.1": 39}
    before["random"] = None
    assert_same(before, {**snapshot(model, optimizer), "random": None})


def test_the_quantile_of_a_truncated_model_comes_along() -> None:
    model, _ = trained("1 layer", 40)
    small = awn.truncate(model, units=13)
    fresh = build("1 layer", units=40)
    fresh.load_state_dict(small.state_dict())
    assert awn.resize_(fresh, None) == {}
    assert awn.widths(fresh) == {"hidden.0": 13}


# Inside bigger modules


class Pair(nn.Module):
    """Two adaptive networks and plain layers around them."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__()
        self.before = nn.Linear(IN, IN)
        self.one = nn.Sequential(nn.Identity(), build("2 layers", units=first, dtype=torch.float32))
        self.two = build("batch norm", units=second, dtype=torch.float32)
        self.after = nn.Linear(2 * OUT, OUT)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        return self.after(torch.cat([self.one(x), self.two(x)], dim=1))


@pytest.mark.parametrize("rewired", [True, False])
def test_nested_models_take_their_widths_too(rewired: bool) -> None:
    model, other = Pair(7, 90), Pair(90, 7)
    optimizer = torch.optim.Adam(model.parameters())
    if rewired:
        awn.advanced.load_state_dict_(model, other.state_dict(), optimizer)
    else:
        model.load_state_dict(other.state_dict())
        optimizer = torch.optim.Adam(model.parameters())
    assert awn.widths(model) == {"one.1.hidden.0": 90, "one.1.hidden.1": 90, "two.hidden.0": 7, "two.hidden.1": 7}
    x = torch.randn(5, IN)
    assert torch.equal(model.eval()(x), other.eval()(x))
    train_step(model.train(), optimizer)
    move_widths_(model, 20)
    awn.resize_(model, optimizer)
    assert set(awn.widths(model).values()) == {20, 19, 18, 17}


def test_a_part_of_a_bigger_state_dict_loads_into_the_part() -> None:
    big = Pair(90, 7)
    part = build("2 layers", units=20, dtype=torch.float32)
    state = {name.removeprefix("one.1."): t for name, t in big.state_dict().items() if name.startswith("one.1.")}
    part.load_state_dict(state)
    assert_equal_models(part, big.one[1])


def test_an_optimizer_that_lacks_one_of_two_networks_leaves_both_as_they_were() -> None:
    model, other = Pair(7, 90), Pair(90, 7)
    optimizer = torch.optim.Adam([*model.before.parameters(), *model.one.parameters(), *model.after.parameters()])
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=r"does not hold '(two\.)?hidden\.0\.weight'"):
        awn.advanced.load_state_dict_(model, other.state_dict(), optimizer)
    assert_same(before, snapshot(model, optimizer))


class WithNotes(nn.Module):
    """A module of someone else whose extra state is no tensor."""

    def __init__(self, note: str) -> None:
        super().__init__()
        self.net = build("1 layer", units=7 if note == "mine" else 20, dtype=torch.float32)
        self.note = {"note": note}

    def get_extra_state(self) -> dict[str, str]:
        return self.note

    def set_extra_state(self, state: dict[str, str]) -> None:
        self.note = state


def test_extra_state_of_others_that_is_no_tensor_is_let_through() -> None:
    model, other = WithNotes("mine"), WithNotes("theirs")
    awn.advanced.load_state_dict_(model, other.state_dict(), torch.optim.Adam(model.parameters()))
    assert model.note == {"note": "theirs"}
    assert awn.widths(model) == {"net.hidden.0": 20}


@across_widths
def test_a_network_connected_by_hand_loads_across_widths(here: int, there: int) -> None:
    model, other = adaptive_net(here, 20), adaptive_net(there, 33)
    optimizer = torch.optim.Adam(model.parameters())
    awn.advanced.load_state_dict_(model, other.state_dict(), optimizer)
    assert awn.widths(model) == awn.widths(other)
    x = torch.randn(5, IN)
    assert torch.equal(model.eval()(x), other.eval()(x))
    train_step(model.train(), optimizer)
    move_widths_(model, 20)
    awn.resize_(model, optimizer)


# What does not belong to the model

OTHER_MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "more layers": (lambda: build("4 layers"), r"belongs to another model.*hidden\.2"),
    "fewer layers": (lambda: build("1 layer"), r"belongs to another model.*hidden\.1"),
    "batch norm": (lambda: build("batch norm"), r"belongs to another model.*norms\.0"),
    "shared width": (lambda: build("2 layers", shared_width=True), r"belongs to another model.*hidden\.1"),
    "no bias": (lambda: build("2 layers", bias=False), r"belongs to another model.*bias"),
    "more inputs": (lambda: awn.AdaptiveMLP(7, OUT, 2).double(), r"'hidden\.0\.weight' has shape \(232, 7\)"),
    "more outputs": (lambda: awn.AdaptiveMLP(IN, 5, 2).double(), r"'output\.(weight|bias)' has shape \(5"),
    "a plain model": (lambda: nn.Linear(3, 3), "belongs to another model"),
}


@pytest.mark.parametrize(("make", "message"), OTHER_MODELS.values(), ids=OTHER_MODELS)
def test_a_state_dict_of_another_model_is_refused_and_nothing_changed(
    make: Callable[[], nn.Module], message: str
) -> None:
    model, optimizer = trained("2 layers", 40)
    state = make().state_dict()
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=message):
        awn.advanced.load_state_dict_(model, state, optimizer)
    assert_same(before, snapshot(model, optimizer))


@pytest.mark.parametrize(("make", "_message"), OTHER_MODELS.values(), ids=OTHER_MODELS)
def test_plain_loading_of_another_models_state_dict_is_refused_too(
    make: Callable[[], nn.Module], _message: str
) -> None:
    """Torch loads what fits before it raises; whatever it did, the model must still be one that computes and trains."""
    model, _ = trained("2 layers", 40)
    with pytest.raises((awn.AwnError, RuntimeError), match=r"hidden\.|norms\.|output\."):
        model.load_state_dict(make().state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    train_step(model, optimizer)
    move_widths_(model, 70)
    awn.resize_(model, optimizer)
    assert awn.widths(model) == {"hidden.0": 70, "hidden.1": 69}


EXTRA = "hidden.1.width._extra_state"
WEIGHT = "output.weight"


DAMAGE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "more units than room": lambda s: {**s, EXTRA: torch.tensor([500.0, 0.9, 1.0], dtype=torch.float64)},
    "no units": lambda s: {**s, EXTRA: torch.tensor([0.0, 0.9, 1.0], dtype=torch.float64)},
    "negative units": lambda s: {**s, EXTRA: torch.tensor([-3.0, 0.9, 1.0], dtype=torch.float64)},
    "half a unit": lambda s: {**s, EXTRA: torch.tensor([3.5, 0.9, 1.0], dtype=torch.float64)},
    "units that are no number": lambda s: {**s, EXTRA: torch.tensor([math.nan, 0.9, 1.0], dtype=torch.float64)},
    "infinite units": lambda s: {**s, EXTRA: torch.tensor([math.inf, 0.9, 1.0], dtype=torch.float64)},
    "a quantile above 1": lambda s: {**s, EXTRA: torch.tensor([20.0, 1.5, 1.0], dtype=torch.float64)},
    "a quantile that is no number": lambda s: {**s, EXTRA: torch.tensor([20.0, math.nan, 1.0], dtype=torch.float64)},
    "an empty extra state": lambda s: {**s, EXTRA: torch.zeros(0, dtype=torch.float64)},
    "an amplitude of nothing": lambda s: {**s, EXTRA: torch.tensor([20.0, 0.9, 0.0], dtype=torch.float64)},
    "too long an extra state": lambda s: {**s, EXTRA: torch.tensor([20.0, 0.9, 1.0, 1.0, 1.0], dtype=torch.float64)},
    "half a draw": lambda s: {**s, EXTRA: torch.tensor([20.0, 0.9, 1.0, 1.5], dtype=torch.float64)},
    "a negative draw": lambda s: {**s, EXTRA: torch.tensor([20.0, 0.9, 1.0, -1.0], dtype=torch.float64)},
    "an extra state that is no tensor": lambda s: {**s, EXTRA: "twenty"},
    "tensors that disagree on the size": lambda s: {**s, WEIGHT: torch.zeros(OUT, 33, dtype=torch.float64)},
    "a tensor of other dimensions": lambda s: {**s, WEIGHT: torch.zeros(OUT, dtype=torch.float64)},
    "a weight that is no tensor": lambda s: {**s, WEIGHT: [1.0, 2.0]},
    "a weight that is missing": lambda s: {name: value for name, value in s.items() if name != WEIGHT},
    "an extra state that is missing": lambda s: {name: value for name, value in s.items() if name != EXTRA},
}


DAMAGED = r"'(hidden\.1|output\.weight)"  # the error names what is damaged: the second layer, or what reads it


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_state_dict_is_refused_and_nothing_changed(
    change: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    model, optimizer = trained("2 layers", 40)
    state = change(trained("2 layers", 90)[0].state_dict())
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=DAMAGED):
        awn.advanced.load_state_dict_(model, state, optimizer)
    assert_same(before, snapshot(model, optimizer))


@pytest.mark.parametrize("name", [name for name in DAMAGE if "missing" not in name])  # torch reports those itself
def test_a_damaged_width_is_refused_by_a_plain_load_before_it_changes_anything(name: str) -> None:
    model, optimizer = trained("2 layers", 40)
    state = DAMAGE[name](trained("2 layers", 90)[0].state_dict())
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=DAMAGED):
        model.load_state_dict(state)
    assert_same(before, snapshot(model, optimizer))


def test_damage_in_the_second_of_two_networks_leaves_both_as_they_were() -> None:
    model, other = Pair(7, 90), Pair(90, 7)
    optimizer = torch.optim.Adam(model.parameters())
    state = dict(other.state_dict())
    state["two.hidden.0.width._extra_state"] = torch.tensor([500.0, 0.9, 1.0], dtype=torch.float64)
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=r"hidden\.0.*500 units"):
        awn.advanced.load_state_dict_(model, state, optimizer)
    assert_same(before, snapshot(model, optimizer))


def test_an_optimizer_that_cannot_follow_is_refused_before_anything_is_loaded() -> None:
    model, _ = trained("2 layers", 40)
    optimizer = torch.optim.LBFGS(model.parameters())
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match="LBFGS"):
        awn.advanced.load_state_dict_(model, trained("2 layers", 90)[0].state_dict(), optimizer)
    assert_same({**before, "random": None}, {**snapshot(model, optimizer), "random": None})
