"""The paper's equations against closed forms, full densities, finite differences and a forward written by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F

import awn
from awn import AdaptiveMLP, Exponential, PowerLaw, Prior, Sigmoid
from awn.advanced import Importance
from awn.core.groups import find_groups
from awn.core.initialise import kaiming_plus_
from cases import pairwise

SCALES = ("mass", "unit")
FAMILIES = [
    pytest.param(kind.for_units(units, scale=scale), id=f"{kind.__name__}-{scale}")
    for kind, units in ((Exponential, 7), (PowerLaw, 7), (Sigmoid, 7))
    for scale in SCALES
]


def importance(family: Importance, value: Tensor, units: int) -> Tensor:
    """f(j; ν) in double precision as the paper has it: differences of a distribution function."""
    x = torch.arange(units + 1, dtype=torch.float64)
    if isinstance(family, Exponential):
        distribution = 1 - torch.exp(-value * x)
    elif isinstance(family, PowerLaw):
        distribution = 1 - (1 + x / (1 + family.saturation)) ** (1 - value)
    else:
        assert isinstance(family, Sigmoid)
        beyond = torch.log1p(torch.exp((value - x) / family.steepness))
        distribution = 1 - beyond / torch.log1p(torch.exp(value / family.steepness))
    mass = distribution[1:] - distribution[:-1]
    return mass / mass[0] if family.scale == "unit" else mass


def network(family: Importance, layers: int = 2, activation: str = "tanh", **options) -> AdaptiveMLP:
    torch.manual_seed(0)
    return AdaptiveMLP(3, 2, hidden_layers=layers, activation=activation, importance=family, **options).double()


def stored(layer: nn.Module) -> Tensor:
    return layer._parameters["weight"]


def forward_by_hand(model: AdaptiveMLP, x: Tensor, activation: Callable[[Tensor], Tensor] = torch.tanh) -> Tensor:
    """Each activation times its importance, with ν as a tensor so that gradients flow through it."""
    h = x
    for layer in model.hidden:
        width = layer.width
        pre = F.linear(h, stored(layer)[: width.units, : h.shape[1]], layer.bias[: width.units])
        nu = width.log_nu.exp() + width.family.lower
        h = activation(pre) * importance(width.family, nu, width.units)
    return F.linear(h, stored(model.output)[:, : h.shape[1]], model.output.bias)


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    return x, torch.tensor([0, 1, 1, 0, 1, 0])


# Discretised masses and quantiles (Section 3)


@pytest.mark.parametrize("rate", [1e-3, 0.05, 2.0])
def test_masses_are_differences_of_the_exponentials_distribution_function(rate):
    width = awn.advanced.Width(Exponential(rate=rate, scale="mass"), block=1).double()
    nu = width.value
    expected = [(1 - math.exp(-nu * (x + 1))) - (1 - math.exp(-nu * x)) for x in range(width.units)]
    assert width.importance().tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_masses_of_every_family_are_differences_of_its_distribution_function(family):
    width = awn.advanced.Width(family, block=1).double()
    expected = importance(family, torch.tensor(width.value, dtype=torch.float64), width.units)
    torch.testing.assert_close(width.importance(), expected)


@pytest.mark.filterwarnings("ignore:quantile=0.5:UserWarning")
@pytest.mark.parametrize("rate", [0.003, 0.05, 0.7])
@pytest.mark.parametrize("k", [0.5, 0.9, 0.99])
def test_the_width_is_where_the_masses_so_far_reach_the_quantile(rate, k):
    so_far, units = 0.0, 0
    while so_far < k:
        so_far += math.exp(-rate * units) - math.exp(-rate * (units + 1))
        units += 1
    assert awn.advanced.Width(Exponential(rate=rate), quantile=k).units == units == math.ceil(-math.log(1 - k) / rate)


# Rescaled activations


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block", [1, 32])
def test_a_gated_weight_computes_rescaled_activations(family, block, data):
    model = network(family, layers=3, block=block)
    torch.testing.assert_close(model(data[0]), forward_by_hand(model, data[0]))


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_rescaled_activations(family, data):
    model = network(family, layers=2)
    parameters = list(model.parameters())
    found = torch.autograd.grad(model(data[0]).square().sum(), parameters)
    expected = torch.autograd.grad(forward_by_hand(model, data[0]).square().sum(), parameters)
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two)


# The ELBO


def elbo(model: AdaptiveMLP, x: Tensor, y: Tensor, prior: Prior) -> Tensor:
    """The ELBO with full densities: priors and posteriors of ν and ρ, and the likelihood of all samples."""
    one = torch.ones((), dtype=torch.float64)
    total = Categorical(logits=forward_by_hand(model, x)).log_prob(y).sum()
    for layer in model.hidden:
        nu = layer.width.log_nu.exp() + layer.width.family.lower
        total = (
            total + Normal(prior.width_mean * one, prior.width_scale * one).log_prob(nu) - Normal(nu, one).log_prob(nu)
        )
    units = [layer.width.units for layer in model.hidden]
    for layer, out, into in zip((*model.hidden, model.output), (*units, 2), (3, *units), strict=True):
        for rho in (stored(layer)[:out, :into], layer.bias[:out]):
            theta = Normal(0 * one, prior.weight_scale * one)
            total = total + theta.log_prob(rho).sum() - Normal(rho, one).log_prob(rho).sum()
    return total


@pytest.mark.parametrize("family", FAMILIES)
def test_the_objective_is_minus_the_elbo_over_n_up_to_a_constant(family, data):
    x, y = data
    prior = Prior(weight_scale=2.0, width_mean=family.start * 1.2, width_scale=family.start)
    model = network(family)
    constants = []
    for _ in range(3):
        nll = awn.likelihood.categorical(model(x), y)
        loss = awn.objective(nll, model, len(y), prior=prior)
        constants.append((loss + elbo(model, x, y, prior) / len(y)).item())
        parameters = list(model.parameters())
        found = torch.autograd.grad(loss, parameters)
        expected = torch.autograd.grad(-elbo(model, x, y, prior) / len(y), parameters)
        for one, two in zip(found, expected, strict=True):
            torch.testing.assert_close(one, two)
        with torch.no_grad():  # somewhere else, at the same widths
            for layer in model.hidden:
                layer.width.log_nu += 0.01 * torch.randn((), dtype=torch.float64)
                layer.bias[: layer.width.units].normal_()
    assert constants[1:] == pytest.approx([constants[0]] * 2, rel=1e-10)


def test_the_elbo_of_a_regression_has_the_gaussian_likelihood(data):
    x = data[0]
    y = torch.randn(6, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    model = network(Exponential.for_units(7, scale="mass"))
    nll = awn.likelihood.gaussian(model(x), y, deviation=0.5)
    result = awn.objective(nll, model, 6, prior=Prior(weight_scale=None))
    torch.testing.assert_close(result * 6, -Normal(forward_by_hand(model, x), 0.5).log_prob(y).sum())


@pytest.mark.parametrize("size", [1, 2, 3])
def test_gradients_over_minibatches_are_unbiased(size, data):
    x, y = data
    model = network(Exponential.for_units(7, scale="mass"))
    prior = Prior(weight_scale=0.5, width_mean=0.1, width_scale=0.1)

    def gradient(rows: list[int]) -> list[Tensor]:
        nll = awn.likelihood.categorical(model(x[rows]), y[rows])
        return list(torch.autograd.grad(awn.objective(nll, model, 6, prior=prior), list(model.parameters())))

    batches = [gradient(list(rows)) for rows in itertools.combinations(range(6), size)]
    assert len(batches) == math.comb(6, size)
    for full, *parts in zip(gradient(list(range(6))), *batches, strict=True):
        torch.testing.assert_close(torch.stack(parts).mean(0), full)
    assert not torch.allclose(batches[0][0], batches[1][0])


# The gradient of ν


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("folded", [False, True])
def test_the_gradient_of_nu_is_a_finite_difference_of_the_loss(family, folded, data):
    x, y = data
    model = network(family)
    prior = Prior(weight_scale=1.0, width_mean=family.start * 0.8, width_scale=family.start / 2, folded=folded)

    def loss() -> Tensor:
        return awn.objective(awn.likelihood.categorical(model(x), y), model, 6, prior=prior)

    loss().backward()
    for layer in model.hidden:
        log_nu, step, sides = layer.width.log_nu, 1e-5, []
        for shift in (step, -2 * step):
            log_nu.data += shift
            sides.append(loss().item())
        log_nu.data += step
        assert log_nu.grad.item() == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-6)
        assert abs(log_nu.grad.item()) > 1e-4


# One unit more


@pytest.mark.parametrize(
    ("family", "activation", "new_units"),
    pairwise([each.values[0] for each in FAMILIES], ("tanh", "relu6"), ("normal", "rescaled")),
    ids=str,
)
def test_one_unit_more_changes_the_output_by_its_importance_times_its_weights_at_most(family, activation, new_units):
    bound = {"tanh": 1.0, "relu6": 6.0}[activation]
    model = network(family, layers=1, activation=activation, new_units=new_units)
    x = 10 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    width, before = model.hidden[0].width, model(x)
    f = importance(family, torch.tensor(width.value, dtype=torch.float64), 8)
    awn.advanced.set_units_(model, {"hidden.0": 8}, None)
    change = (model(x) - before).abs().detach()
    limit = f[7] * stored(model.output)[:, 7].abs().detach() * bound
    assert (change <= limit * (1 + 1e-9)).all()
    assert (change.amax(0) > 0.5 * limit).all()  # large inputs saturate the unit: the bound is nearly met
    assert f[7] < f[6] < f[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_one_unit_more_in_the_middle_changes_the_output_by_what_later_weights_let_through(family):
    model = network(family, layers=3, new_units="normal")
    x = 10 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before = model(x)
    value = torch.tensor(model.hidden[0].width.value, dtype=torch.float64)
    f = importance(family, value, 8)
    awn.advanced.set_units_(model, {"hidden.0": 8}, None)
    change = (model(x) - before).abs().detach()
    # tanh is bounded by 1 and has slopes of 1 at most, so that absolute weights bound what passes each layer.
    limit = stored(model.hidden[1])[:7, 7].abs() * f[7]
    limit = stored(model.hidden[2])[:7, :7].abs() @ (f[:7] * limit)
    limit = stored(model.output)[:, :7].abs() @ (f[:7] * limit)
    assert (change <= limit.detach() * (1 + 1e-9)).all()
    assert (change.amax(0) > 0).all()


def test_one_unit_more_without_outgoing_weights_changes_nothing():
    model = network(Exponential.for_units(7, scale="mass"), layers=2, new_units="zero")
    x = torch.randn(50, 3, dtype=torch.float64)
    before = model(x)
    awn.advanced.set_units_(model, {"hidden.0": 8, "hidden.1": 8}, None)
    torch.testing.assert_close(model(x), before, rtol=1e-12, atol=1e-12)


# The variance theorem

DEPTH = 10


def second_moments(
    initialise: Callable[[AdaptiveMLP, torch.Generator], object], activation: str, scale: str, draws: int, seed: int = 0
) -> Tensor:
    """E[α²] in each of ten hidden layers over draws of the weights, units and inputs, relative to the first."""
    generator = torch.Generator().manual_seed(seed)
    model = AdaptiveMLP(
        32, 1, hidden_layers=DEPTH, activation=activation, bias=False, importance=Exponential(0.01, scale=scale)
    )
    assert awn.widths(model)["hidden.9"] == 231
    x = torch.randn(4, 32, generator=generator)
    alphas: list[Tensor] = []
    model.activation.register_forward_hook(lambda _, __, output: alphas.append(output[:, :231]))
    total = torch.zeros(DEPTH, dtype=torch.float64)
    with torch.no_grad():
        for _ in range(draws):
            initialise(model, generator)
            alphas.clear()
            model(x)
            total += torch.stack([alpha.double().square().mean() for alpha in alphas])
    return total / total[0]


def plus(model: AdaptiveMLP, generator: torch.Generator) -> None:
    kaiming_plus_(find_groups(model), generator)


def plain(model: AdaptiveMLP, generator: torch.Generator) -> None:
    """Kaiming's own initialisation, which knows nothing of importance."""
    for layer, inputs in zip((*model.hidden, model.output), (32, *[231] * DEPTH), strict=True):
        part = stored(layer)[:231, :inputs]
        part.copy_(torch.randn(part.shape, generator=generator) * math.sqrt(2 / inputs))


@pytest.mark.parametrize(("scale", "seed"), [("mass", 0), ("unit", 1)])
def test_kaiming_plus_keeps_the_second_moment_through_ten_relu_layers(scale, seed):
    # A draw's tenth layer is off by a factor of about 1 ± 0.75, so the mean of 600 draws by 3 %.
    moments = second_moments(plus, "relu", scale, draws=600, seed=seed)
    assert moments.tolist() == pytest.approx([1.0] * DEPTH, rel=0.10)


def test_kaiming_plus_keeps_the_variance_through_ten_linear_layers():
    moments = second_moments(plus, "identity", "mass", draws=200)
    assert moments.tolist() == pytest.approx([1.0] * DEPTH, rel=0.10)


def test_plain_kaiming_collapses():
    # Each layer multiplies by Σf²/D: 0.214 where the first unit counts 1, and 2e-5 for masses.
    squares = sum(math.exp(-0.02 * j) for j in range(231)) / 231
    moments = second_moments(plain, "relu", "unit", draws=20)
    assert moments[-1].item() < 1e-5
    assert (moments[-1] / moments[1]).item() ** (1 / (DEPTH - 2)) == pytest.approx(squares, rel=0.2)
    assert second_moments(plain, "relu", "mass", draws=2)[-1].item() < 1e-30
