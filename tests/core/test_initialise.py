"""Kaiming+ and new units: measured deviations against gain / √Σf², f written out from the families' formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import awn
from awn import AdaptiveMLP, Exponential, PowerLaw, Sigmoid
from awn.advanced import Axis, Width
from awn.core.axes import consumed_by
from awn.core.groups import find_groups
from awn.core.initialise import gain_of, kaiming_plus_

# 4 standard errors of a deviation measured on n draws are 2.8 / √n.
MANY = 40_000
CLOSE = 0.015


def masses(family: awn.advanced.Importance, units: int) -> list[float]:
    """S(j) − S(j + 1) of the first units, from the families' formulas."""

    def survival(x: int) -> float:
        if isinstance(family, Exponential):
            return math.exp(-family.rate * x)
        if isinstance(family, PowerLaw):
            return (1 + x / (1 + family.saturation)) ** (1 - family.exponent)
        assert isinstance(family, Sigmoid)
        s = family.steepness
        return math.log1p(math.exp((family.midpoint - x) / s)) / math.log1p(math.exp(family.midpoint / s))

    return [survival(j) - survival(j + 1) for j in range(units)]


def squares(family: awn.advanced.Importance, units: int) -> float:
    """Σ f² over the first units, on the family's scale."""
    at_128 = family.starting_at(family.value_inside(128))
    one = {"mass": 1.0, "unit": masses(family, 1)[0], "anchored": masses(at_128, 1)[0]}[family.scale]
    return sum((mass / one) ** 2 for mass in masses(family, units))


def stored(layer: nn.Module) -> torch.Tensor:
    weight = layer._parameters["weight"]
    return weight.detach()


@pytest.mark.parametrize(
    "family",
    [
        Exponential.for_units(200),
        Exponential.for_units(200, scale="mass"),
        Exponential.for_units(200, scale="unit"),
        PowerLaw.for_units(200, saturation=1.0),
        PowerLaw.for_units(200, saturation=1.0, scale="mass"),
        Sigmoid.for_units(200),
        Sigmoid.for_units(200, scale="mass"),
    ],
    ids=str,
)
@pytest.mark.parametrize(("activation", "gain"), [("relu", math.sqrt(2)), ("tanh", 1.0)])
def test_kaiming_plus_deviation_is_the_closed_form(family, activation, gain):
    torch.manual_seed(0)
    model = AdaptiveMLP(200, 200, hidden_layers=2, activation=activation, importance=family)
    expected = gain / math.sqrt(squares(family, 200))
    assert stored(model.hidden[0])[:200].std().item() == pytest.approx(gain / math.sqrt(200), rel=CLOSE)
    assert stored(model.hidden[1])[:200, :200].std().item() == pytest.approx(expected, rel=CLOSE)
    assert stored(model.output)[:, :200].std().item() == pytest.approx(expected, rel=CLOSE)


def test_kaiming_plus_draws_are_gaussian_around_zero():
    torch.manual_seed(0)
    weight = stored(AdaptiveMLP(200, 2, importance=Exponential.for_units(200)).hidden[0])[:200]
    z = weight / weight.std()
    assert abs(z.mean().item()) < 4 / math.sqrt(MANY)
    assert z.pow(4).mean().item() == pytest.approx(3, abs=4 * math.sqrt(96 / MANY))


def looks_uniform(sample: torch.Tensor, bound: float) -> bool:
    n = len(sample)
    deviation = bound / math.sqrt(3)  # of U(−bound, bound); a deviation measured on n draws is off by 0.45 / √n
    return (
        bool(sample.abs().max() <= bound)
        and abs(sample.mean().item()) < 4 * deviation / math.sqrt(n)
        and abs(sample.std().item() / deviation - 1) < 4 * 0.45 / math.sqrt(n)
    )


def test_biases_start_as_torchs_do():
    torch.manual_seed(0)
    model = AdaptiveMLP(9, 2, hidden_layers=2, importance=Exponential.for_units(900))
    assert looks_uniform(model.hidden[0].bias[:900], 1 / 3)
    assert looks_uniform(model.hidden[1].bias[:900], 1 / 30)


def test_inert_units_start_at_zero():
    model = AdaptiveMLP(3, 2, hidden_layers=2, importance=Exponential.for_units(20), batch_norm=True)
    assert (stored(model.hidden[0])[20:] == 0).all()
    assert (model.hidden[0].bias[20:] == 0).all()
    assert (stored(model.hidden[1])[20:] == 0).all()
    assert (stored(model.hidden[1])[:, 20:] == 0).all()
    assert (stored(model.output)[:, 20:] == 0).all()
    assert (model.norms[0].weight[:20] == 1).all()
    assert (model.norms[0].running_var[:20] == 1).all()


def test_kaiming_plus_of_a_flattened_convolution():
    # The linear layer reads 16 entries of each unit; the convolution reads 3 · 9 plain inputs.
    torch.manual_seed(0)
    family = Exponential.for_units(100)
    width = Width(family, block=128, gain=math.sqrt(2))
    conv, linear = nn.Conv2d(30, 128, 3), nn.Linear(128 * 16, 50)
    awn.advanced.connect_(width, [Axis(conv, "weight", 0, "producer"), *consumed_by(linear, repeat=16)])
    kaiming_plus_(find_groups(nn.Sequential(conv, linear)))
    assert conv.weight[:100].std().item() == pytest.approx(math.sqrt(2 / (30 * 9)), rel=CLOSE)
    expected = math.sqrt(2 / (16 * squares(family, 100)))
    assert stored(linear)[:, :1600].std().item() == pytest.approx(expected, rel=CLOSE)
    assert (stored(linear)[:, 1600:] == 0).all()


def test_kaiming_plus_of_a_convolution_that_reads_units():
    torch.manual_seed(0)
    family = Exponential.for_units(100)
    width = Width(family, block=1, gain=1.0)
    first, second = nn.Conv2d(3, 100, 3), nn.Conv2d(100, 60, 3)
    awn.advanced.connect_(width, [Axis(first, "weight", 0, "producer"), Axis(second, "weight", 1, "consumer")])
    kaiming_plus_(find_groups(nn.Sequential(first, second)))
    assert stored(second).std().item() == pytest.approx(1 / math.sqrt(9 * squares(family, 100)), rel=CLOSE)


def grown(new_units: str, before: int = 20, after: int = 400, activation: str = "relu") -> AdaptiveMLP:
    torch.manual_seed(0)
    model = AdaptiveMLP(
        100, 100, hidden_layers=2, importance=Exponential.for_units(before), new_units=new_units, activation=activation
    )
    for layer in model.hidden:
        layer.bias.data[:before] = 7.0
        layer.width.move_to_(after)
    awn.resize_(model, None)
    assert awn.widths(model) == {"hidden.0": after, "hidden.1": after}
    return model


def test_new_units_drawn_as_in_a_fresh_network():
    model = grown("rescaled")
    deviation = math.sqrt(2 / squares(Exponential.for_units(400), 400))
    assert stored(model.hidden[0])[20:400].std().item() == pytest.approx(math.sqrt(2 / 100), rel=CLOSE)
    assert stored(model.hidden[1])[20:400, :400].std().item() == pytest.approx(deviation, rel=CLOSE)
    assert stored(model.hidden[1])[:400, 20:400].std().item() == pytest.approx(deviation, rel=CLOSE)
    assert stored(model.output)[:, 20:400].std().item() == pytest.approx(deviation, rel=CLOSE)
    assert looks_uniform(model.hidden[0].bias[20:400], 1 / 10)
    assert looks_uniform(model.hidden[1].bias[20:400], 1 / 20)
    assert (model.hidden[0].bias[:20] == 7).all()


def test_new_units_follow_the_gain_of_the_activation():
    model = grown("rescaled", activation="tanh")
    deviation = 1 / math.sqrt(squares(Exponential.for_units(400), 400))
    assert stored(model.output)[:, 20:400].std().item() == pytest.approx(deviation, rel=CLOSE)


def test_new_units_are_drawn_for_the_nu_that_stays_when_it_had_run_past_a_bound():
    torch.manual_seed(0)
    model = AdaptiveMLP(3, 100, importance=Exponential.for_units(20), max_units=400, new_units="rescaled")
    model.hidden[0].width.log_nu.data.fill_(-20.0)  # asks for a billion units
    awn.resize_(model, None)
    deviation = math.sqrt(2 / squares(Exponential(rate=math.log(10) / 400), 400))
    assert stored(model.output)[:, 20:400].std().item() == pytest.approx(deviation, rel=CLOSE)


def test_new_units_drawn_from_a_standard_normal():
    model = grown("normal")
    for part in (
        stored(model.hidden[0])[20:400],
        stored(model.hidden[1])[20:400, :400],
        stored(model.hidden[1])[:400, 20:400],
        stored(model.output)[:, 20:400],
    ):
        assert part.std().item() == pytest.approx(1, rel=CLOSE)
    assert model.hidden[0].bias[20:400].std().item() == pytest.approx(1, rel=0.15)
    assert (model.hidden[0].bias[:20] == 7).all()


def test_new_units_that_nobody_hears_yet():
    model = grown("zero")
    assert (stored(model.output)[:, 20:] == 0).all()
    assert (stored(model.hidden[1])[:20, 20:] == 0).all()
    assert stored(model.hidden[0])[20:400].std().item() == pytest.approx(math.sqrt(2 / 100), rel=CLOSE)
    assert looks_uniform(model.hidden[0].bias[20:400], 1 / 10)
    assert (stored(model.output)[:, :20] != 0).all()


def test_growing_by_silent_units_leaves_the_output_at_the_same_nu():
    torch.manual_seed(0)
    model = AdaptiveMLP(3, 2, hidden_layers=2, importance=Exponential.for_units(20), new_units="zero")
    x = torch.randn(5, 3)
    before = model(x)
    awn.advanced.set_units_(model, {"hidden.0": 90, "hidden.1": 50}, None)
    torch.testing.assert_close(model(x), before)
    # The new units do make something of their input: only their way out is shut.
    assert (stored(model.hidden[0])[20:90] != 0).all()


def test_a_new_unit_passes_a_batch_norm_unchanged():
    model = AdaptiveMLP(3, 2, importance=Exponential.for_units(20), batch_norm=True)
    norm = model.norms[0]
    for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        tensor.data[:20] = 5.0
    awn.advanced.set_units_(model, {"hidden.0": 25}, None)
    for tensor, fresh in ((norm.weight, 1), (norm.bias, 0), (norm.running_mean, 0), (norm.running_var, 1)):
        assert (tensor[:20] == 5).all()
        assert (tensor[20:25] == fresh).all()


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("new_units", ["rescaled", "normal", "zero"])
def test_random_numbers_do_not_depend_on_the_block(batch_norm, new_units):
    networks = []
    for block in (1, 32):
        torch.manual_seed(0)
        model = AdaptiveMLP(
            3,
            2,
            hidden_layers=3,
            importance=Exponential.for_units(20),
            block=block,
            new_units=new_units,
            batch_norm=batch_norm,
        )
        awn.advanced.set_units_(model, {"hidden.0": 25, "hidden.1": 70}, None)
        awn.advanced.set_units_(
            model, {"hidden.0": 5, "hidden.2": 40}, None, generator=torch.Generator().manual_seed(1)
        )
        awn.advanced.set_units_(model, {"hidden.0": 12}, None)
        networks.append((awn.finalize(model).state_dict(), torch.rand(3)))
    (one, next_one), (two, next_two) = networks
    assert torch.equal(next_one, next_two)
    for name in one:
        torch.testing.assert_close(one[name], two[name])


def test_a_generator_decides_alone():
    def first(seed: int, outside: int) -> torch.Tensor:
        torch.manual_seed(outside)
        generator = torch.Generator().manual_seed(seed)
        model = AdaptiveMLP(3, 2, importance=Exponential.for_units(20), generator=generator)
        awn.advanced.set_units_(model, {"hidden.0": 30}, None, generator=generator)
        return stored(model.hidden[0])

    assert torch.equal(first(0, outside=1), first(0, outside=2))
    assert not torch.equal(first(0, outside=1), first(1, outside=1))


def test_a_dropped_unit_comes_back_as_a_new_one():
    model = AdaptiveMLP(3, 2, importance=Exponential.for_units(20))
    before = stored(model.hidden[0]).clone()
    awn.advanced.set_units_(model, {"hidden.0": 15}, None)
    assert (stored(model.hidden[0])[15:] == 0).all()
    awn.advanced.set_units_(model, {"hidden.0": 20}, None)
    assert torch.equal(stored(model.hidden[0])[:15], before[:15])
    assert (stored(model.hidden[0])[15:20] != before[15:20]).all()


@pytest.mark.parametrize(
    ("activation", "gain"),
    [
        (nn.ReLU(), math.sqrt(2)),
        (nn.ReLU6(), math.sqrt(2)),
        (nn.ELU(), math.sqrt(2)),
        (nn.GELU(), math.sqrt(2)),
        (nn.SiLU(), math.sqrt(2)),
        (nn.Mish(), math.sqrt(2)),
        (nn.Softplus(), math.sqrt(2)),
        (nn.Hardswish(), math.sqrt(2)),
        (nn.LeakyReLU(0.0), math.sqrt(2)),
        (nn.LeakyReLU(0.5), math.sqrt(2 / 1.25)),
        (nn.LeakyReLU(1.0), 1.0),
        (nn.Tanh(), 1.0),
        (nn.Sigmoid(), 1.0),
        (nn.Softsign(), 1.0),
        (nn.Hardtanh(), 1.0),
        (nn.Hardsigmoid(), 1.0),
        (nn.SELU(), 1.0),
        (nn.Identity(), 1.0),
    ],
    ids=str,
)
def test_gain_of_an_activation(activation, gain):
    assert gain_of(activation) == pytest.approx(gain)
    model = AdaptiveMLP(2, 2, activation=activation)
    assert model.hidden[0].width.gain == pytest.approx(gain)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.LeakyReLU(0.3)], ids=str)
def test_the_gain_keeps_a_gaussians_second_moment(activation):
    # Exact for piecewise linear activations: gain² · E[σ(z)²] = E[z²].
    z = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    assert gain_of(activation) ** 2 * activation(z).square().mean().item() == pytest.approx(1, rel=0.01)


def test_a_weight_whose_inputs_cannot_be_told_is_refused():
    width = Width(Exponential.for_units(4), block=1)
    first, both = nn.Linear(3, 4), nn.Bilinear(2, 4, 1)
    awn.advanced.connect_(width, [Axis(first, "weight", 0, "producer"), Axis(both, "weight", 2, "consumer")])
    with pytest.raises(awn.AwnError, match=r"a weight of shape \(1, 2, 4\) has no inputs and outputs to tell apart"):
        kaiming_plus_(find_groups(nn.Sequential(first, both)))
