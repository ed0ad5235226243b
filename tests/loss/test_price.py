"""The price of a weight: the part of the ELBO that grows with the width, against torch.distributions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

import awn
from awn import AdaptiveMLP, AwnError, Exponential, Prior
from awn.loss import Price

N = 50
UNITS = (20, 9)


def network() -> AdaptiveMLP:
    torch.manual_seed(0)
    return AdaptiveMLP(3, 2, hidden_layers=2, importance=[Exponential.for_units(n) for n in UNITS], dtype=torch.float64)


def governed(model: AdaptiveMLP) -> Tensor:
    """The weights that a width governs, cut out by hand: all but the bias of the output layer."""
    a, b = UNITS
    one, two = model.hidden
    inner, outer = (layer._parameters["weight"] for layer in (two, model.output))  # without the importances
    weights = (one.weight[:a], one.bias[:a], inner[:b, :a], two.bias[:b], outer[:, :b])
    return torch.cat([weight.flatten() for weight in weights]).detach()


def terms(model: AdaptiveMLP, prior: Prior) -> dict[str, Tensor]:
    return awn.loss.terms(torch.zeros((), dtype=torch.float64), model, N, prior=prior)


@pytest.mark.parametrize(("scale", "spread"), [(10.0, 1.0), (0.6, 1.0), (0.6, 0.02), (1.0, 1.0)])
def test_with_the_price_the_weights_terms_are_their_divergence_from_the_prior(scale, spread):
    model = network()
    found = terms(model, Prior(scale, price=Price(posterior_scale=spread)))
    rho = governed(model)
    divergence = kl_divergence(Normal(rho, spread), Normal(torch.zeros_like(rho), scale)).sum()
    biases = model.output.bias.detach().square().sum() / (2 * scale**2)  # no width governs them, so they have no price
    assert (N * (found["weights"] + found["width"])).item() == pytest.approx((divergence + biases).item())


def test_at_first_order_it_is_the_ratio_of_the_densities_at_the_mean():
    model = network()
    found = terms(model, Prior(10.0, price=Price("first order")))
    rho = governed(model)
    ratio = (Normal(rho, 1.0).log_prob(rho) - Normal(0.0, 10.0).log_prob(rho)).sum()
    biases = model.output.bias.detach().square().sum() / 200
    assert (N * (found["weights"] + found["width"])).item() == pytest.approx((ratio + biases).item())


def test_the_gradient_is_the_price_times_what_a_unit_more_takes():
    model = network()
    terms(model, Prior(10.0, price=Price()))["width"].backward()
    a, b = UNITS
    price = math.log(10) + 0.005 - 0.5
    for hidden, weights in zip(model.hidden, (3 + 1 + b, a + 1 + 2), strict=True):
        by_log_nu = -hidden.width.soft_units().item()  # of the exponential, whose width is a constant over ν
        assert hidden.width.log_nu.grad.item() == pytest.approx(price * weights * by_log_nu / N)


def test_layers_are_priced_by_their_own_scale():
    model = network()
    found = terms(model, Prior({"hidden.0": 10.0, "hidden.1": None, "output": 2.0}, price=Price()))
    expected = Price().of(10.0) * 20 * (3 + 1) + Price().of(2.0) * 9 * 2
    assert (N * found["width"]).item() == pytest.approx(expected)


def test_a_price_adds_to_the_prior_on_the_widths():
    model = network()
    apart = [Prior(10.0, 0.05, 0.01), Prior(10.0, price=Price())]
    together = Prior(10.0, 0.05, 0.01, price=Price())
    expected = sum(terms(model, prior)["width"].item() for prior in apart)
    assert terms(model, together)["width"].item() == pytest.approx(expected)


def test_units_of_a_shared_width_are_charged_in_every_layer():
    model = AdaptiveMLP(3, 2, hidden_layers=2, importance=Exponential.for_units(20), shared_width=True)
    found = terms(model, Prior(10.0, price=Price()))["width"]
    found.backward()
    width = model.hidden[0].width
    price = Price().of(10.0)
    assert (N * found).item() == pytest.approx(price * (20 * (3 + 1) + 20 * (20 + 1) + 2 * 20), rel=1e-5)
    by_units = price * (3 + 1 + 2 * 20 + 1 + 2)
    assert width.log_nu.grad.item() == pytest.approx(-by_units * width.soft_units().item() / N, rel=1e-5)


def test_the_optimizer_takes_the_squares_and_leaves_the_price():
    prior = Prior(10.0, price=Price())
    model = network()
    outside = terms(model, prior)
    awn.param_groups(model, lr=0.1, prior=prior, n_samples=N)
    inside = terms(model, prior)
    assert (inside["weights"], inside["width"]) == (0, outside["width"])
    assert min(outside["weights"], outside["width"]) > 0


def test_a_price_makes_a_network_narrower():
    widths = {}
    for name, price in {"free": None, "priced": Price()}.items():
        torch.manual_seed(0)
        x = torch.randn(256, 3)
        model = AdaptiveMLP(3, 2)
        data = awn.training.Data(x, (x.sum(1) > 0).long())
        options = awn.training.FitOptions(epochs=30, choose=None)
        awn.training.fit(
            model, data, data, loss=awn.likelihood.categorical, prior=Prior(10.0, price=price), options=options
        )
        widths[name] = model.hidden[0].width.units
    assert widths["priced"] < 0.8 * widths["free"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Prior(None, price=Price()), "set weight_scale"),
        (lambda: Prior({"*": None}, price=Price()), "set weight_scale"),
        (lambda: Prior(10.0, price=1.0), "awn.loss.Price or None, got 1.0"),
        (lambda: Prior(10.0, price=Price), "awn.loss.Price or None"),
        (lambda: Price("exact"), "'kl' or 'first order'"),
        (lambda: Price(posterior_scale=0.0), "posterior_scale"),
    ],
)
def test_wrong_arguments_are_named(build, message):
    with pytest.raises(AwnError, match=message):
        build()
