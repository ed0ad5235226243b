"""Priors over weights and widths: each term against its density, written out or from torch.distributions."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal

import awn
from awn import AdaptiveMLP, Anneal, AwnError, Exponential, PowerLaw, Prior, Sigmoid
from awn.advanced import Width
from awn.core.axes import consumed_by, produced_by

N = 50


def network(**options) -> AdaptiveMLP:
    """Two hidden layers of 20 and 9 units in a capacity of 32, with biases that are not zero."""
    torch.manual_seed(0)
    options.setdefault("importance", [Exponential.for_units(20), Exponential.for_units(9)])
    model = AdaptiveMLP(3, 2, hidden_layers=2, **options)
    with torch.no_grad():
        model.hidden[0].bias[:20].normal_()
        model.hidden[1].bias[:9].normal_()
        model.output.bias.normal_()
    return model


def active(model: AdaptiveMLP) -> dict[str, Tensor]:
    """The weights of active units, cut out by hand."""
    one, two = model.hidden
    return {
        "hidden.0": torch.cat([one.weight[:20].flatten(), one.bias[:20]]),
        "hidden.1": torch.cat([two._parameters["weight"][:9, :20].flatten(), two.bias[:9]]),
        "output": torch.cat([model.output._parameters["weight"][:, :9].flatten(), model.output.bias]),
    }


def terms(model: nn.Module, prior: Prior, time: float | None = None) -> dict[str, Tensor]:
    return awn.loss.terms(torch.zeros(()), model, N, prior=prior, time=time)


# Weights


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_the_weight_term_is_the_sum_of_squares_of_active_units(scale):
    model = network()
    squares = sum(part.square().sum() for part in active(model).values())
    torch.testing.assert_close(terms(model, Prior(weight_scale=scale))["weights"], squares / (2 * scale**2 * N))


def test_the_default_prior_has_a_standard_deviation_of_0_6():
    model = network()
    squares = sum(part.square().sum() for part in active(model).values())
    torch.testing.assert_close(awn.loss.terms(torch.zeros(()), model, N)["weights"], squares / (2 * 0.6**2 * N))


def test_the_weight_term_is_the_gaussian_density_up_to_a_constant():
    one, two = network().double(), network().double()
    for layer in two.hidden:
        layer.bias.data *= 3
    gaussian = Normal(0.0, 0.5)
    density = [-sum(gaussian.log_prob(part).sum() for part in active(model).values()) / N for model in (one, two)]
    found = [terms(model, Prior(weight_scale=0.5))["weights"] for model in (one, two)]
    torch.testing.assert_close(found[1] - found[0], density[1] - density[0])


def test_the_weight_terms_gradient_is_that_of_the_naive_formula():
    model, twin = network(), network()
    prior = Prior(weight_scale={"hidden.0": 0.3, "hidden.1": 2.0, "output": 5.0})
    sum(terms(model, prior).values()).backward()
    scales = {"hidden.0": 0.3, "hidden.1": 2.0, "output": 5.0}
    sum(part.square().sum() / (2 * scales[name] ** 2 * N) for name, part in active(twin).items()).backward()
    compared = 0
    for (name, one), two in zip(model.named_parameters(), twin.parameters(), strict=True):
        if not name.endswith("log_nu"):
            torch.testing.assert_close(one.grad, two.grad, msg=name)
            compared += 1
    assert compared == 6


def test_the_weight_terms_gradient_is_scaled_by_what_comes_after_it():
    model, twin = network(), network()
    terms(model, Prior(weight_scale=1.0))["weights"].backward()
    (7 * terms(twin, Prior(weight_scale=1.0))["weights"]).backward()
    torch.testing.assert_close(twin.output.bias.grad, 7 * model.output.bias.grad)
    torch.testing.assert_close(model.output.bias.grad, model.output.bias / N)


def test_the_weight_term_leaves_inert_units_of_a_hand_made_model_out():
    torch.manual_seed(0)
    width = Width(Exponential.for_units(20), block=32)
    first, second = nn.Linear(3, 32), nn.Linear(32, 2)
    awn.advanced.connect_(width, [*produced_by(first), *consumed_by(second)])
    weight = second._parameters["weight"]
    parts = (first.weight[:20], first.bias[:20], weight[:, :20], second.bias)
    expected = sum(part.square().sum() for part in parts) / (2 * N)
    torch.testing.assert_close(terms(nn.Sequential(first, second), Prior(weight_scale=1.0))["weights"], expected)


def test_the_weight_term_leaves_norms_and_plain_layers_out():
    model = network(batch_norm=True)
    outer = nn.Sequential(model, nn.Linear(2, 2))
    squares = sum(part.square().sum() for part in active(model).values())
    torch.testing.assert_close(terms(outer, Prior(weight_scale=1.0))["weights"], squares / (2 * N))


def test_the_weight_term_does_not_depend_on_the_block():
    found = [terms(network(block=block), Prior(weight_scale=1.0))["weights"] for block in (1, 32)]
    torch.testing.assert_close(found[0], found[1])


def test_a_shared_weight_counts_once():
    torch.manual_seed(0)
    model = AdaptiveMLP(3, 2, hidden_layers=3, shared_width=True, importance=Exponential.for_units(20), block=1)
    squares = sum(p.square().sum() for name, p in model.named_parameters() if not name.endswith("log_nu"))
    torch.testing.assert_close(terms(model, Prior(weight_scale=1.0))["weights"], squares / (2 * N))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_weight_term_of_a_half_precision_model(dtype):
    torch.manual_seed(0)
    model = AdaptiveMLP(3, 2, hidden_layers=2)  # deviations of about 20: squares that float16 cannot add up
    exact = sum(
        p.double().square().sum() for name, p in model.named_parameters() if not name.endswith("log_nu")
    ).item() / (2 * N)
    found = terms(model.to(dtype), Prior(weight_scale=1.0))["weights"].item()
    assert found == pytest.approx(exact, rel=0.02)


def test_layers_take_the_scale_of_the_first_pattern_that_matches():
    model = network()
    parts = {name: part.square().sum() / 2 for name, part in active(model).items()}
    found = terms(model, Prior(weight_scale={"hidden.1": 0.5, "hidden.*": 2.0, "*": 4.0}))["weights"]
    torch.testing.assert_close(found, (parts["hidden.0"] / 4 + parts["hidden.1"] * 4 + parts["output"] / 16) / N)


def test_a_layer_without_a_pattern_is_named():
    with pytest.raises(AwnError, match=r"no entry for layer 'output'; it has 'hidden\.\*'\. Add '\*' for the rest"):
        terms(network(), Prior(weight_scale={"hidden.*": 1.0}))


def test_a_pattern_that_matches_no_layer_is_named():
    with pytest.raises(AwnError, match=r"hiden"):
        terms(network(), Prior(weight_scale={"hiden.*": 1.0, "*": 2.0}))


def test_a_layer_may_have_no_prior():
    model = network()
    found = terms(model, Prior(weight_scale={"output": None, "*": 1.0}))["weights"]
    parts = active(model)
    torch.testing.assert_close(found, (parts["hidden.0"].square().sum() + parts["hidden.1"].square().sum()) / (2 * N))


def test_no_prior_is_no_term():
    result = terms(network(), Prior(weight_scale=None))
    assert result == {"data": 0.0, "weights": 0.0, "width": 0.0, "budget": 0.0}


# Widths


@pytest.mark.parametrize("family", [Exponential.for_units(20), PowerLaw.for_units(20), Sigmoid.for_units(20)], ids=str)
def test_the_width_term_is_the_gaussian_density_up_to_a_constant(family):
    model = AdaptiveMLP(2, 1, hidden_layers=2, importance=family)
    prior = Normal(family.start * 1.3, 0.2)
    found, density, gradients = [], [], []
    for factor in (0.0, 0.1):
        for layer in model.hidden:
            layer.width.log_nu.data += factor
        log_nus = [layer.width.log_nu for layer in model.hidden]
        found.append(terms(model, Prior(weight_scale=None, width_mean=family.start * 1.3, width_scale=0.2))["width"])
        density.append(-sum(prior.log_prob(log_nu.exp() + family.lower) for log_nu in log_nus) / N)
        gradients.append([torch.autograd.grad(term[-1], log_nus) for term in (found, density)])
    torch.testing.assert_close(found[1] - found[0], density[1] - density[0], rtol=1e-3, atol=1e-6)
    for one, two in gradients:
        torch.testing.assert_close(one, two)


def test_the_width_term_at_a_known_point():
    model = AdaptiveMLP(2, 1, importance=Exponential(rate=0.05))
    result = terms(model, Prior(weight_scale=None, width_mean=0.02, width_scale=0.1))
    assert result["width"].item() == pytest.approx((0.05 - 0.02) ** 2 / (2 * 0.1**2) / N)


def folded_density(nu: float, mean: float, scale: float) -> float:
    z = math.sqrt(2 * math.pi) * scale
    below = math.exp(-((nu + mean) ** 2) / (2 * scale**2))
    return (math.exp(-((nu - mean) ** 2) / (2 * scale**2)) + below) / z


@pytest.mark.parametrize(("mean", "scale"), [(0.02, 0.05), (0.0, 0.1), (0.1, 0.04), (-0.02, 0.05)])
def test_the_folded_term_is_the_folded_normal_density_up_to_a_constant(mean, scale):
    found, density = [], []
    for rate in (0.03, 0.08, 0.2):
        model = AdaptiveMLP(2, 1, importance=Exponential(rate=rate))
        found.append(terms(model, Prior(None, width_mean=mean, width_scale=scale, folded=True))["width"].item() * N)
        density.append(-math.log(folded_density(rate, mean, scale)))
    assert [f - found[0] for f in found[1:]] == pytest.approx([d - density[0] for d in density[1:]], rel=1e-4)


def test_the_folded_gradient_vanishes_where_folding_makes_it():
    # Folded around 0 with mean 0 the density is a half normal, twice the normal: the same gradient.
    gradients = []
    for folded in (False, True):
        model = AdaptiveMLP(2, 1, importance=Exponential(rate=0.05))
        terms(model, Prior(None, width_mean=0.0, width_scale=0.1, folded=folded))["width"].backward()
        gradients.append(model.hidden[0].width.log_nu.grad.item())
    assert gradients[0] == pytest.approx(0.05 * 0.05 / 0.01 / N)
    assert gradients[1] == pytest.approx(gradients[0])


def test_the_folded_term_is_finite_however_narrow_the_prior():
    # −log of the folded density is here (ν − |μ|)² / 2σ² to all digits.
    for mean in (0.1, -0.1):
        model = AdaptiveMLP(2, 1, importance=Exponential(rate=0.05))
        result = terms(model, Prior(None, width_mean=mean, width_scale=0.005, folded=True))
        assert result["width"].item() * N == pytest.approx((0.05 - 0.1) ** 2 / (2 * 0.005**2), rel=1e-3)
        result["width"].backward()
        expected = 0.05 * (0.05 - 0.1) / 0.005**2 / N
        assert model.hidden[0].width.log_nu.grad.item() == pytest.approx(expected, rel=1e-3)


# Annealing


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("linear", {10: 1.0, 15: 0.775, 20: 0.55, 30: 0.1}),
        ("geometric", {10: 1.0, 20: 10**-0.5, 25: 10**-0.75, 30: 0.1}),
    ],
)
def test_anneal_follows_its_shape(shape, expected):
    schedule = Anneal(start=1.0, end=0.1, begin=10, finish=30, shape=shape)
    for time, deviation in expected.items():
        assert schedule.at(time) == pytest.approx(deviation)


@pytest.mark.parametrize("shape", ["linear", "geometric"])
def test_anneal_has_no_prior_before_and_stays_after(shape):
    schedule = Anneal(start=1.0, end=0.1, begin=10, finish=30, shape=shape)
    assert schedule.at(9.99) is None
    assert schedule.at(31) == schedule.at(1e9) == pytest.approx(0.1)


def test_anneal_can_loosen_too():
    assert Anneal(0.1, 1.0, 0, 10).at(5) == pytest.approx(0.55)
    assert Anneal(0.1, 10.0, 0, 10, "geometric").at(5) == pytest.approx(1.0)


def test_an_annealed_prior_goes_by_the_time():
    model = AdaptiveMLP(2, 1, importance=Exponential(rate=0.05))
    prior = Prior(None, width_mean=0.02, width_scale=Anneal(1.0, 0.1, begin=10, finish=30))
    assert terms(model, prior, time=5)["width"] == 0
    for time, scale in ((10, 1.0), (20, 0.55), (99, 0.1)):
        assert terms(model, prior, time=time)["width"].item() == pytest.approx(0.03**2 / (2 * scale**2) / N)


def test_an_annealed_prior_needs_the_time():
    prior = Prior(width_mean=0.02, width_scale=Anneal(1.0, 0.1, 10, 30))
    with pytest.raises(AwnError, match=r"annealed, so objective\(\) needs the time"):
        terms(network(), prior)


# Draws


@pytest.mark.parametrize(("family", "mean", "scale"), [(Exponential(), 0.2, 0.01), (PowerLaw(), 2.5, 0.1)])
def test_draws_have_the_priors_mean_and_deviation(family, mean, scale):
    generator = torch.Generator().manual_seed(0)
    prior = Prior(width_mean=mean, width_scale=scale)
    starts = torch.tensor([prior.draw(family, generator).start for _ in range(2000)], dtype=torch.float64)
    assert starts.mean().item() == pytest.approx(mean, abs=4 * scale / math.sqrt(2000))
    assert starts.std().item() == pytest.approx(scale, rel=4 / math.sqrt(4000))


@pytest.mark.parametrize(("family", "lower"), [(Exponential(), 0.0), (PowerLaw(saturation=1.0), 1.0)])
def test_draws_are_folded_at_the_families_bound(family, lower):
    generator = torch.Generator().manual_seed(0)
    starts = [Prior(width_mean=lower, width_scale=1.0).draw(family, generator) for _ in range(500)]
    above = torch.tensor([one.start - lower for one in starts])
    assert (above > 0).all()
    assert above.mean().item() == pytest.approx(math.sqrt(2 / math.pi), abs=4 * 0.603 / math.sqrt(500))
    assert all(one.starting_at(family.start) == family for one in starts)


def test_draws_repeat_with_the_seed():
    prior = Prior(width_mean=0.2, width_scale=0.01)
    one, two, other = (prior.draw(Exponential(), torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert one == two != other


@pytest.mark.parametrize("prior", [Prior(), Prior(width_mean=0.1, width_scale=Anneal(1.0, 0.1, 0, 9))])
def test_no_draw_from_a_prior_without_a_fixed_deviation(prior):
    with pytest.raises(AwnError, match="width_mean and a fixed width_scale"):
        prior.draw(Exponential())


# Wrong arguments


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Prior(weight_scale=0.0), "weight_scale must be a finite number above 0, got 0"),
        (lambda: Prior(weight_scale=-1.0), "weight_scale .* got -1"),
        (lambda: Prior(weight_scale=math.inf), "weight_scale .* got inf"),
        (lambda: Prior(weight_scale=math.nan), "weight_scale .* got nan"),
        (lambda: Prior(weight_scale={"hidden.*": 0.0}), r"hidden\.\* must be a finite number above 0, got 0"),
        (lambda: Prior(width_mean=0.1), "width_mean and width_scale go together"),
        (lambda: Prior(width_scale=0.1), "width_mean and width_scale go together"),
        (lambda: Prior(width_mean=math.nan, width_scale=0.1), "width_mean must be a finite number, got nan"),
        (lambda: Prior(width_mean=0.1, width_scale=0.0), "width_scale must be a finite number above 0, got 0"),
        (lambda: Anneal(0.0, 1.0, 0, 9), "start must be a finite number above 0, got 0"),
        (lambda: Anneal(1.0, -1.0, 0, 9), "end must be a finite number above 0, got -1"),
        (lambda: Anneal(1.0, 0.1, -1, 9), r"begin \(-1\) must be at least 0"),
        (lambda: Anneal(1.0, 0.1, 9, 9), r"begin \(9\) must be .* before finish \(9\)"),
        (lambda: Anneal(1.0, 0.1, 0, 9, "cosine"), "shape must be 'linear' or 'geometric', got 'cosine'"),
    ],
)
def test_wrong_arguments_are_named(build, message):
    with pytest.raises(AwnError, match=message):
        build()


def test_priors_are_values():
    assert Prior(width_mean=0.1, width_scale=Anneal(1.0, 0.1, 0, 9)) == copy.copy(
        Prior(width_mean=0.1, width_scale=Anneal(1.0, 0.1, 0, 9))
    )
