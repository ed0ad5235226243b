"""The objective: its terms add up, are divided as the ELBO is, and a loss that is lost is reported and used nowhere."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import awn
from awn import AdaptiveMLP, AwnError, Budget, Exponential, Prior
from awn.errors import NonFiniteError


def network(**options) -> AdaptiveMLP:
    torch.manual_seed(0)
    return AdaptiveMLP(3, 2, hidden_layers=2, importance=Exponential(rate=0.1), **options)


def squares(model: nn.Module) -> float:
    weights = [p for name, p in model.named_parameters() if not name.endswith("log_nu")]
    return sum(p.detach().double().square().sum().item() for p in weights)


def test_terms_by_name():
    model = network()
    prior = Prior(weight_scale=2.0, width_mean=0.3, width_scale=0.5)
    options = {"prior": prior, "budget": Budget(max_units=23, strength=2.0)}
    expected = {
        "data": 1.5,
        "weights": squares(model) / (2 * 2.0**2) / 40,
        "width": 2 * (0.1 - 0.3) ** 2 / (2 * 0.5**2) / 40,
        "budget": 2.0 * (2 * 24 / 23 - 1),  # 24 = ⌈ln 10 / 0.1⌉
    }
    terms = awn.loss.terms(torch.tensor(1.5), model, 40, **options)
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-5)
    loss = awn.objective(torch.tensor(1.5), model, 40, **options)
    assert loss.item() == pytest.approx(sum(expected.values()), rel=1e-5)


def test_the_loss_is_an_ordinary_tensor():
    model = network()
    nll = awn.likelihood.categorical(model(torch.ones(4, 3)), torch.tensor([0, 1] * 2))
    loss = awn.objective(nll, model, 8, prior=Prior(weight_scale=0.5, width_mean=0.3, width_scale=0.5))
    assert type(loss) is torch.Tensor
    assert loss.shape == ()
    assert f"{loss.item():.3f}" in f"{loss:.3f}"
    (loss / 2 + 0.0 * loss).backward(retain_graph=True)
    half = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    loss.backward()
    for parameter, gradient in zip(model.parameters(), half, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


def test_without_priors_the_loss_is_the_data_term():
    nll = torch.tensor(1.5, requires_grad=True)
    assert awn.objective(nll, network(), 40, prior=Prior(weight_scale=None)) is nll
    terms = awn.loss.terms(nll, network(), 40, prior=Prior(weight_scale=None))
    assert {name: term.item() for name, term in terms.items()} == {"data": 1.5, "weights": 0, "width": 0, "budget": 0}


@pytest.mark.parametrize("n_samples", [1, 10, 100_000])
def test_priors_weigh_less_the_more_data_there_is(n_samples):
    model = network()
    prior = Prior(weight_scale=1.0, width_mean=0.3, width_scale=0.5)
    terms = awn.loss.terms(torch.tensor(0.0), model, n_samples, prior=prior)
    assert terms["weights"].item() * n_samples == pytest.approx(squares(model) / 2, rel=1e-5)
    assert terms["width"].item() * n_samples == pytest.approx(2 * 0.2**2 / 0.5, rel=1e-4)


def test_gradients_of_all_terms_add_up():
    x, y = torch.randn(8, 3), torch.tensor([0, 1] * 4)
    prior = Prior(weight_scale=0.5, width_mean=0.3, width_scale=0.5)

    def gradients(term: str) -> list[torch.Tensor]:
        model = network()
        nll = awn.likelihood.categorical(model(x), y)
        options = {"prior": prior, "budget": Budget(max_units=10)}
        loss = awn.objective if term == "total" else lambda *given, **more: awn.loss.terms(*given, **more)[term]
        found = torch.autograd.grad(loss(nll, model, 8, **options), list(model.parameters()), allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for g, p in zip(found, model.parameters(), strict=True)]

    parts = [gradients(term) for term in ("data", "weights", "width", "budget")]
    for total, *terms in zip(gradients("total"), *parts, strict=True):
        torch.testing.assert_close(total, sum(terms))


def test_every_parameter_is_reached():
    model = network(batch_norm=True)
    nll = awn.likelihood.categorical(model(torch.randn(8, 3)), torch.tensor([0, 1] * 4))
    awn.objective(nll, model, 8).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_works_in_double_precision():
    model = network().double()
    nll = awn.likelihood.gaussian(model(torch.zeros(4, 3).double()), torch.zeros(4, 2).double())
    assert awn.objective(nll, model, 4).dtype == torch.float64
    weights = awn.loss.terms(nll, model, 4)["weights"]
    assert weights.item() == pytest.approx(squares(model) / (2 * 0.6**2) / 4, rel=1e-12)


# A loss that is not a number


def snapshot(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def unchanged(model: nn.Module, before: dict[str, torch.Tensor]) -> bool:
    return all(
        torch.equal(tensor.nan_to_num(7), before[name].nan_to_num(7)) for name, tensor in model.state_dict().items()
    )


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
def test_lost_data_are_told_from_lost_weights(lost):
    model = network()
    before = snapshot(model)
    nll = (model(torch.ones(1, 3)) * lost).sum()
    with pytest.raises(NonFiniteError, match=r"not finite \(data = .*all weights are finite, so the cause is the data"):
        awn.objective(nll, model, 10)
    assert unchanged(model, before)
    assert all(p.grad is None for p in model.parameters())
    assert awn.widths(model) == {"hidden.0": 24, "hidden.1": 24}


def test_a_lost_weight_is_named_with_the_time():
    model = network()
    model.hidden[1]._parameters["weight"].data[0, 0] = math.nan
    before = snapshot(model)
    nll = awn.likelihood.categorical(model(torch.ones(1, 3)), torch.tensor([0]))
    with pytest.raises(NonFiniteError, match=r"at time 17 .*not finite: hidden\.1\.weight\. Nothing was changed"):
        awn.objective(nll, model, 10, time=17)
    assert unchanged(model, before)


def test_a_lost_nu_is_named():
    model = network()
    model.hidden[0].width.log_nu.data.fill_(math.nan)
    with pytest.raises(NonFiniteError, match=r"not finite: hidden\.0\.width\.log_nu"):
        awn.objective(model(torch.ones(1, 3)).sum(), model, 10)
    assert awn.widths(model) == {"hidden.0": 24, "hidden.1": 24}


def test_every_term_is_shown_when_the_loss_is_lost():
    with pytest.raises(NonFiniteError, match=r"data = nan, weights = [\d.e+-]+, budget = [\d.]+\)"):
        awn.objective(torch.tensor(math.nan), network(), 10, budget=Budget(max_units=10))


# Wrong arguments


def test_a_loss_for_each_sample_is_refused():
    with pytest.raises(AwnError, match=r"nll must be a scalar tensor, the mean over the batch; got shape \(8,\)"):
        awn.objective(torch.zeros(8), network(), 10)


@pytest.mark.parametrize("n_samples", [0, -3, 2.5, True, None])
def test_a_number_of_samples_is_a_whole_number(n_samples):
    with pytest.raises(AwnError, match=rf"n_samples must be a whole number of at least 1, got {n_samples}"):
        awn.objective(torch.tensor(0.0), network(), n_samples)


def test_a_model_without_learned_widths_is_refused():
    with pytest.raises(AwnError, match="Linear has no layer with a learned width"):
        awn.objective(torch.tensor(0.0), nn.Linear(2, 2), 10)


def test_backward_reaches_weights_that_the_data_do_not_and_leaves_frozen_ones():
    model = network()
    model.output.bias.requires_grad_(False)
    awn.objective(torch.tensor(1.0), model, 10, prior=Prior(weight_scale=0.5)).backward()
    for name, parameter in model.named_parameters():
        if name == "output.bias" or name.endswith("log_nu"):
            assert parameter.grad is None
        else:
            torch.testing.assert_close(parameter.grad, parameter.detach() / (0.5**2 * 10))


def test_backward_leaves_inert_units_without_a_gradient():
    model = network()
    nll = awn.likelihood.categorical(model(torch.randn(8, 3)), torch.tensor([0, 1] * 4))
    awn.objective(nll, model, 8).backward()
    assert not model.hidden[0].weight.grad[24:].any()
    assert not model.output._parameters["weight"].grad[:, 24:].any()
