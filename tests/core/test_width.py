"""Width: where it starts, that it stays within its bounds, its capacity, and its inert units."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import awn
from awn import AdaptiveMLP, AwnError, Exponential, PowerLaw, Prior, Sigmoid
from awn.advanced import Width
from awn.core.groups import find_groups
from awn.errors import NonFiniteError
from cases import pairwise

FAMILIES = [
    pytest.param(Exponential.for_units(20), id="exponential"),
    pytest.param(Exponential.for_units(20, scale="mass"), id="exponential-mass"),
    pytest.param(PowerLaw.for_units(20), id="power-law"),
    pytest.param(PowerLaw.for_units(20, saturation=2.0, scale="unit"), id="power-law-unit"),
    pytest.param(Sigmoid.for_units(20), id="sigmoid"),
    pytest.param(Sigmoid.for_units(20, scale="mass"), id="sigmoid-mass"),
    pytest.param(Exponential.for_units(20, scale="unit"), id="exponential-unit"),
]


def network(family=None, **options) -> AdaptiveMLP:
    return AdaptiveMLP(2, 1, importance=family or Exponential.for_units(20), **options)


def width_of(model: AdaptiveMLP) -> Width:
    return model.hidden[0].width


def push(width: Width, log_nu: float) -> None:
    with torch.no_grad():
        width.log_nu.fill_(log_nu)


# Starts


def test_starts_at_a_rate():
    width = Width(Exponential(rate=0.01))
    assert (width.units, width.value) == (231, pytest.approx(0.01))


@pytest.mark.parametrize("family", FAMILIES)
def test_starts_at_a_number_of_units(family):
    assert Width(family).units == 20
    assert Width(family).soft_units().item() == pytest.approx(19.5, rel=1e-5)


def test_starts_from_a_draw_of_the_prior():
    drawn = 0.05 + 0.01 * torch.randn((), generator=torch.Generator().manual_seed(3), dtype=torch.float64).item()
    family = Prior(width_mean=0.05, width_scale=0.01).draw(Exponential(), generator=torch.Generator().manual_seed(3))
    width = Width(family)
    assert (width.value, width.units) == (pytest.approx(drawn), math.ceil(math.log(10) / drawn))


def test_starts_within_its_bounds():
    assert Width(Exponential(rate=0.01), max_units=50).units == 50
    assert Width(Exponential(rate=1.0), min_units=9).units == 9
    assert Width(Exponential(rate=0.01), max_units=50).soft_units().item() == pytest.approx(50)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    st.sampled_from([Exponential, PowerLaw, Sigmoid]),
    st.integers(15, 100_000),
    st.floats(0.8, 0.999),
)
def test_a_stored_start_asks_for_the_width_it_was_made_for(kind, units, quantile):
    # Single precision must not turn a start into a neighbouring width.
    model = network(kind.for_units(units, quantile), quantile=quantile)
    assert awn.widths(model) == {"hidden.0": units}
    assert awn.resize_(model, None) == {}
    assert width_of(model).soft_units().item() == pytest.approx(units - 0.5, rel=1e-3)


# Bounds


@pytest.mark.parametrize(
    ("family", "outwards", "far"), pairwise([each.values[0] for each in FAMILIES], (1.0, -1.0), (3.0, 50.0)), ids=str
)
def test_nu_never_drifts_past_a_bound(family, outwards, far):
    model = network(family, min_units=8, max_units=30)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    width = width_of(model)
    push(width, width.log_nu.item() + outwards * far)
    awn.resize_(model, optimizer)
    soft = width.soft_units().item()
    if width.units == 30:
        assert soft == pytest.approx(30, rel=1e-4)
    else:
        assert width.units == 8
        assert 7 - 1e-3 <= soft <= 8

    # From the bound, a gradient step inwards moves the width at once.
    inwards = 1.0 if width.units == 8 else -1.0
    (-inwards * width.soft_units().log()).backward()
    torch.optim.SGD([width.log_nu], lr=0.05).step()
    assert inwards * (width.soft_units().item() - soft) > 0.1
    awn.resize_(model, optimizer)
    assert 8 <= width.units <= 30


@pytest.mark.parametrize("family", FAMILIES)
def test_both_bounds_can_be_reached(family):
    model = network(family, min_units=8, max_units=30)
    width = width_of(model)
    reached = set()
    for log_nu in (5.0, -5.0):
        push(width, log_nu)
        awn.resize_(model, None)
        reached.add(width.units)
    assert reached == {8, 30}


def test_a_hundred_steps_against_a_bound_are_forgotten_at_once():
    model = network(Exponential.for_units(20), max_units=30)
    optimizer = torch.optim.SGD([*model.parameters()], lr=1.0)
    width = width_of(model)
    for _ in range(100):
        push(width, width.log_nu.item() - 0.3)
        awn.resize_(model, optimizer)
    assert width.units == 30
    push(width, width.log_nu.item() + 0.1)
    awn.resize_(model, optimizer)
    assert width.units == math.ceil(30 * math.exp(-0.1))


def test_the_last_unit_stays_and_can_be_joined_again():
    model = network(Exponential.for_units(20))
    push(width_of(model), 60.0)
    awn.resize_(model, None)
    assert width_of(model).units == 1
    # One unit has all the importance long before log ν = 60, so the way back to two is short.
    push(width_of(model), width_of(model).log_nu.item() - math.log(11))
    awn.resize_(model, None)
    assert width_of(model).units == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_training_stays_between_the_bounds(family):
    torch.manual_seed(0)
    model = network(family, min_units=15, max_units=25)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.3)
    x, y = torch.randn(16, 2), torch.randn(16, 1)
    seen = set()
    for step in range(30):
        push = 1000 if step < 15 else -1000  # more than the data can pull
        loss = (model(x) - y).square().mean() + push * width_of(model).soft_units().log()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        awn.resize_(model, optimizer)
        seen.add(width_of(model).units)
    assert min(seen) == 15
    assert max(seen) == 25


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
def test_a_nu_that_is_no_number_is_never_turned_into_a_width(lost):
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items() if not name.endswith("log_nu")}
    push(width_of(model), lost)
    with pytest.raises(NonFiniteError, match=r"'hidden\.0' at step 1; its width stays at 20"):
        awn.resize_(model, optimizer)
    assert awn.widths(model) == {"hidden.0": 20}
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("log_nu", [-800.0, -100.0, -40.0])
def test_a_width_no_memory_can_hold_is_reported_by_layer(log_nu):
    model = network()
    weight = model.hidden[0].weight
    push(width_of(model), log_nu)  # 10 to the 17 units and more
    with pytest.raises(AwnError, match=r"hidden\.0"):
        awn.resize_(model, None)
    assert awn.widths(model) == {"hidden.0": 20}
    assert model.hidden[0].weight is weight


def test_move_to_asks_for_that_many_units():
    model = network()
    width_of(model).move_to_(57)
    assert awn.widths(model) == {"hidden.0": 20}
    assert awn.resize_(model, None) == {"hidden.0": awn.advanced.Resize(before=20, after=57)}


# Capacity


@pytest.mark.parametrize(
    ("block", "units", "capacity"), [(32, 1, 32), (32, 32, 32), (32, 33, 64), (32, 231, 256), (1, 231, 231), (8, 9, 16)]
)
def test_capacity_is_the_next_multiple_of_the_block(block, units, capacity):
    width = Width(Exponential.for_units(units), block=block)
    assert (width.units, width.capacity, len(width.importance())) == (units, capacity, capacity)


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 200_000), st.integers(1, 128))
def test_capacity_is_a_multiple_of_the_block_and_wastes_little(units, block):
    capacity = Width(block=block).capacity_for(units)
    assert capacity % block == 0
    assert units <= capacity < units + max(block, units / 16 + 1)
    if block == 1:
        assert capacity == units


def replaced_by_moving(model: AdaptiveMLP, units: int) -> bool:
    weight = model.hidden[0].weight
    width_of(model).move_to_(units)
    awn.resize_(model, None)
    assert awn.widths(model) == {"hidden.0": units}
    return model.hidden[0].weight is not weight


def test_inside_the_capacity_no_parameter_is_replaced():
    model = network(Exponential.for_units(40), block=32)
    assert width_of(model).capacity == 64
    assert not replaced_by_moving(model, 64)
    assert not replaced_by_moving(model, 33)
    assert replaced_by_moving(model, 65)
    assert width_of(model).capacity == 96


def test_the_capacity_follows_down_only_two_blocks_later():
    model = network(Exponential.for_units(90), block=32)
    assert width_of(model).capacity == 96
    assert not replaced_by_moving(model, 32)
    assert replaced_by_moving(model, 31)
    assert width_of(model).capacity == 32


def test_a_width_that_swings_does_not_reallocate():
    model = network(Exponential.for_units(60), block=32)
    assert replaced_by_moving(model, 70)
    assert not any(replaced_by_moving(model, units) for units in (60, 70) * 5)


def test_block_one_has_exact_shapes():
    model = network(Exponential.for_units(40), block=1)
    for units in (41, 40, 7):
        assert replaced_by_moving(model, units)
        assert model.hidden[0].weight.shape == (units, 2)


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 64))
def test_what_fits_has_room_and_what_was_just_allocated_fits(first, second, block):
    width = Width(Exponential.for_units(first), block=block)
    assert width.fits(first)
    if width.fits(second):
        assert second <= width.capacity
    elif second <= width.capacity:  # too roomy: a new allocation would be smaller
        assert width.capacity_for(second) < width.capacity


# Inert units


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block", [32, 4096])
def test_inert_units_have_no_importance_and_no_gradient(family, block):
    width = Width(family, block=block)
    importance = width.importance()
    assert len(importance) == block
    assert (importance[20:] == 0).all()
    assert (importance[:20] > 0).all()
    importance[20:].sum().backward()
    assert width.log_nu.grad == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_inert_units_change_no_gradient(family):
    gradients = []
    for block in (1, 4096):
        width = Width(family, block=block)
        width.importance().square().sum().backward()
        gradients.append(width.log_nu.grad)
    assert gradients[0].isfinite()
    torch.testing.assert_close(gradients[0], gradients[1])


# Precision and devices


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("way", ["method", "to"])
def test_half_precision_leaves_nu_alone(dtype, way):
    model = network(Exponential.for_units(3000))
    width = width_of(model)
    parameter, before, importance = width.log_nu, width.log_nu.item(), width.importance()
    if way == "to":
        model.to(dtype)
    else:
        model.half() if dtype == torch.float16 else model.bfloat16()
    assert model.hidden[0].bias.dtype == dtype
    assert width.log_nu is parameter
    assert (width.log_nu.dtype, width.log_nu.item()) == (torch.float32, before)
    assert width.importance().dtype == torch.float32
    assert torch.equal(width.importance(), importance)
    assert model.output.weight.dtype == dtype
    assert awn.resize_(model, None) == {}


def test_half_precision_leaves_the_gradient_of_nu_alone():
    model = network()
    width_of(model).importance().square().sum().backward()
    before = width_of(model).log_nu.grad.clone()
    model.half()
    gradient = width_of(model).log_nu.grad
    assert gradient.dtype == torch.float32
    assert torch.equal(gradient, before)
    assert before != 0


@pytest.mark.parametrize(("scale", "anchor"), [("mass", 1.0), ("anchored", 1 / -math.expm1(-math.log(10) / 127.5))])
def test_double_precision_is_followed(scale, anchor):
    model = network(Exponential.for_units(20, scale=scale)).double()
    width = width_of(model)
    assert width.log_nu.dtype == width.importance().dtype == width.soft_units().dtype == torch.float64
    rate = math.exp(width.log_nu.item())
    expected = [anchor * math.exp(-rate * j) * -math.expm1(-rate) for j in range(20)]
    assert width.importance()[:20].tolist() == pytest.approx(expected, rel=1e-13)
    assert awn.resize_(model, None) == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_default_does_not_reach_nu(dtype):
    torch.set_default_dtype(dtype)
    try:
        width = Width(Exponential.for_units(3000))
    finally:
        torch.set_default_dtype(torch.float32)
    assert width.log_nu.dtype == width.importance().dtype == torch.float32
    assert width.soft_units().item() == pytest.approx(2999.5, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_leaves_the_importance_in_single_precision(dtype):
    width = Width(Exponential.for_units(3000))
    outside = width.importance()
    with torch.autocast("cpu", dtype=dtype):
        inside = width.importance()
        soft = width.soft_units()
    assert inside.dtype == soft.dtype == torch.float32
    assert torch.equal(inside, outside)


def test_lives_on_the_meta_device():
    width = Width(Exponential.for_units(20), device="meta")
    assert (width.importance().device.type, width.importance().shape) == ("meta", (24,))
    assert network().to("meta")(torch.zeros(3, 2, device="meta")).shape == (3, 1)


def test_comes_back_from_the_meta_device_with_a_state_dict():
    torch.manual_seed(0)
    model, x = network(), torch.randn(5, 2)
    expected, state = model(x), model.state_dict()
    torch.use_deterministic_algorithms(True)  # fills empty tensors with NaN
    try:
        back = copy.deepcopy(model).to("meta").to_empty(device="cpu")
    finally:
        torch.use_deterministic_algorithms(False)
    assert back.hidden[0].bias.isnan().all()
    back.load_state_dict(state)
    torch.testing.assert_close(back(x), expected)


# Copies and state


def test_extra_state_holds_the_units_the_quantile_and_the_amplitude():
    width = Width(Exponential.for_units(20, 0.8), quantile=0.8, amplitude=2.5)
    other = Width(Exponential.for_units(23))
    other.load_state_dict(width.state_dict())
    assert (other.units, other.quantile, other.amplitude, other.value) == (20, 0.8, 2.5, width.value)
    assert torch.equal(other.importance(), width.importance())
    plain = Width(Exponential.for_units(20, 0.8), quantile=0.8)
    torch.testing.assert_close(width.importance(), 2.5 * plain.importance())
    assert set(width.state_dict()) == {"log_nu", "_extra_state"}


def test_a_state_with_more_units_than_there_is_room_for_is_refused():
    width = Width(Exponential.for_units(20))
    with pytest.raises(AwnError, match="100"):
        width.load_state_dict(Width(Exponential.for_units(100)).state_dict())
    assert (width.units, width.capacity) == (20, 24)


def test_a_deep_copy_has_a_width_of_its_own():
    torch.manual_seed(0)
    model, x = network(), torch.randn(4, 2)
    twin, output = copy.deepcopy(model), model(x)
    push(width_of(twin), 0.0)
    assert torch.equal(model(x), output)
    assert not torch.allclose(twin(x), output)
    awn.resize_(twin, None)
    assert (awn.widths(model), awn.widths(twin)) == ({"hidden.0": 20}, {"hidden.0": 3})
    width_of(twin).log_nu.grad = None
    twin(x).sum().backward()
    assert width_of(twin).log_nu.grad is not None
    assert width_of(model).log_nu.grad is None


def test_a_printed_model_shows_its_widths():
    assert "units=20, capacity=24, quantile=0.9" in str(network())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"importance": "exponential"}, r"family such as awn\.Exponential\(\), got 'exponential'"),
        ({"importance": Exponential}, "importance must be a family"),
        ({"quantile": 0.0}, "quantile must lie strictly between 0 and 1, got 0"),
        ({"quantile": 1.0}, "quantile must lie strictly between 0 and 1, got 1"),
        ({"quantile": math.nan}, "quantile .* got nan"),
        ({"min_units": 0}, "min_units must be a whole number of at least 1, got 0"),
        ({"min_units": 2.0}, "min_units .* got 2.0"),
        ({"max_units": 0}, "max_units must be a whole number of at least 1, got 0"),
        ({"max_units": True}, "max_units .* got True"),
        ({"min_units": 9, "max_units": 8}, r"max_units \(8\) is below min_units \(9\)"),
        ({"block": 0}, "block must be a whole number of at least 1, got 0"),
        ({"block": 0.5}, "block .* got 0.5"),
        ({"new_units": "ones"}, "new_units must be one of normal, rescaled, zero; got 'ones'"),
        ({"gain": 0.0}, "gain must be a finite number above 0, got 0"),
        ({"gain": math.inf}, "gain .* got inf"),
        ({"amplitude": 0.0}, "amplitude must be a finite number above 0, got 0"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(AwnError, match=message):
        Width(**options)


@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.799])
def test_a_quantile_at_which_widths_collapse_is_named_once(quantile):
    with pytest.warns(UserWarning, match=f"quantile={quantile:g} is below 0.8, where widths collapse") as caught:
        width = Width(Exponential.for_units(20, quantile), quantile=quantile)
    assert (len(caught), width.units) == (1, 20)


def test_only_a_new_width_warns_of_its_quantile():
    # Warnings are errors here, so each of these lines fails if it warns.
    assert Width(Exponential.for_units(20, 0.8), quantile=0.8).units == 20
    model, fresh = network(), network()
    short = awn.truncate(model, keep=0.25)
    assert width_of(short).quantile < 0.8
    fresh.load_state_dict(short.state_dict())
    for same in (fresh, copy.deepcopy(short), pickle.loads(pickle.dumps(short))):
        assert (width_of(same).units, width_of(same).quantile) == (5, width_of(short).quantile)
        assert awn.resize_(same, None) == {}


def test_move_to_refuses_what_is_no_width():
    with pytest.raises(AwnError, match="units must be a whole number of at least 1, got 0"):
        Width().move_to_(0)


def test_a_deep_network_can_be_copied() -> None:
    """Each width leads to the next layer, and that to the next width."""
    model = awn.AdaptiveMLP(3, 2, hidden_layers=150, importance=Exponential.for_units(4))
    copied = copy.deepcopy(model)
    modules = set(copied.modules())
    for group, other in zip(find_groups(copied), find_groups(model), strict=True):
        assert group.width is not other.width
        assert group.width.units == other.width.units
        assert len(group.axes) == len(other.axes)
        assert all(axis.module in modules for axis in group.axes)
    x = torch.randn(5, 3)
    assert torch.equal(copied(x), model(x))
    awn.finalize(model)
