"""Where ν rests: the prior on the weights w_j that read unit j leaves it alone where Σ ‖w_j‖² · d log f_j/dν = 0."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from scipy import optimize
from torch import Tensor

import awn
from awn import Exponential, PowerLaw, Sigmoid
from awn.advanced import Importance
from awn.training import Data, FitOptions, fit
from cases import pairwise


@dataclass(frozen=True)
class HalfNormal(Importance):
    """A family that states no slope."""

    learned = "sigma"

    sigma: float = 20.0

    def survival(self, x: Tensor, value: Tensor) -> Tensor:
        return torch.erfc(x / (value * 2**0.5))

    def inverse_survival(self, p: Tensor, value: Tensor) -> Tensor:
        return value * 2**0.5 * torch.erfinv(1 - p)


SCALES = ("anchored", "mass", "unit")
# Each with some values of ν, from narrow to wide.
FAMILIES: dict[str, tuple[Importance, tuple[float, ...]]] = {
    "exponential": (Exponential(), (1.0, 0.1, 0.01)),
    "power law": (PowerLaw(), (3.0, 2.0, 1.3)),
    "power law, saturated": (PowerLaw(saturation=3.0), (3.0, 2.0, 1.3)),
    "sigmoid": (Sigmoid(), (5.0, 20.0, 100.0)),
    "sigmoid, soft": (Sigmoid(steepness=4.0), (5.0, 20.0, 100.0)),
    "half normal": (HalfNormal(), (5.0, 20.0, 100.0)),
}
UNITS = torch.arange(20, dtype=torch.float64)


def exactly(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


# The slope of the logarithm.


@pytest.mark.parametrize("rate", [1.0, 0.1, 0.01, 1e-4])
@pytest.mark.parametrize(("scale", "level"), [("anchored", 1), ("mass", 1), ("unit", 0)])
def test_an_exponentials_log_slope_is_the_closed_form(scale, level, rate):
    found = Exponential(scale=scale).log_slope(UNITS, exactly(rate))
    torch.testing.assert_close(found, level / math.expm1(rate) - UNITS, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("name", "scale", "place"), pairwise(FAMILIES, SCALES, range(3)))
def test_log_slope_is_the_difference_of_logarithms(name, scale, place):
    family, values = FAMILIES[name]
    family, value, step = dataclasses.replace(family, scale=scale), values[place], 1e-5 * values[place]
    above, below = (family.importance(UNITS, exactly(value + by)).log() for by in (step, -step))
    found = family.log_slope(UNITS, exactly(value))
    torch.testing.assert_close(
        found, (above - below) / (2 * step), rtol=1e-5, atol=1e-9 + 1e-5 * found.abs().max().item()
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_log_slope_takes_a_column_of_values(name):
    family, values = FAMILIES[name]
    rows = family.log_slope(UNITS, torch.tensor(values, dtype=torch.float64)[:, None])
    torch.testing.assert_close(rows, torch.stack([family.log_slope(UNITS, exactly(value)) for value in values]))


# The prior alone: the products w_j f_j, and with them the function, are held, and ν is free.


def prior_cost(family: Importance, products: Tensor, log_nu: float) -> float:
    """Σ ‖w_j‖² with the weights that give these products w_j f_j."""
    importance = family.importance(UNITS[: len(products)], exactly(family.lower + math.exp(log_nu)))
    return (products / importance).square().sum().log().item()


def torque(family: Importance, products: Tensor, log_nu: float) -> float:
    """Σ ‖w_j‖² d log f_j/dν, relative to its terms."""
    nu, units = exactly(family.lower + math.exp(log_nu)), UNITS[: len(products)]
    terms = (products / family.importance(units, nu)).square() * family.log_slope(units, nu)
    return (terms.sum() / terms.abs().sum()).item()


PRODUCTS = {
    "equal": torch.ones(10, dtype=torch.float64),
    "falling": torch.exp(-0.4 * UNITS[:12]),
    "few": torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64),
    "rising": 1 + UNITS[:8],
}
# log(ν − lower) between which they rest. A soft sigmoid is left out: it has no width below 11 units to rest at.
BOUNDS = {
    "exponential": (-7.0, 3.0),
    "power law": (-4.0, 3.0),
    "power law, saturated": (-4.0, 3.0),
    "sigmoid": (-4.0, 5.0),
    "half normal": (0.0, 5.0),
}


@pytest.mark.parametrize("products", PRODUCTS)
@pytest.mark.parametrize("scale", ["anchored", "mass"])
@pytest.mark.parametrize("name", BOUNDS)
def test_the_prior_is_lowest_where_the_law_says(name, scale, products):
    family, held = dataclasses.replace(FAMILIES[name][0], scale=scale), PRODUCTS[products]
    low, high = BOUNDS[name]
    assert torque(family, held, low) * torque(family, held, high) < 0
    law = optimize.brentq(partial(torque, family, held), low, high, xtol=1e-10)
    lowest = optimize.minimize_scalar(
        partial(prior_cost, family, held), bounds=(low, high), method="bounded", options={"xatol": 1e-9}
    )
    assert low + 0.01 < lowest.x < high - 0.01
    assert lowest.x == pytest.approx(law, abs=1e-5)


@pytest.mark.parametrize("products", PRODUCTS)
@pytest.mark.parametrize("name", BOUNDS)
def test_on_the_unit_scale_the_prior_only_ever_widens(name, products):
    family, held = dataclasses.replace(FAMILIES[name][0], scale="unit"), PRODUCTS[products]
    low, high = BOUNDS[name]
    costs = {log_nu: prior_cost(family, held, log_nu) for log_nu in torch.linspace(low, high, 40).tolist()}
    width = {log_nu: family.soft_width(0.9, family.lower + math.exp(log_nu)) for log_nu in costs}
    by_width = sorted(costs, key=width.__getitem__)
    assert costs[by_width[-1]] < costs[by_width[0]] - 0.1
    assert all(costs[wider] <= costs[narrower] + 1e-12 for narrower, wider in itertools.pairwise(by_width))


# A training. A linear network reproduces SIGNALS independent inputs of variance 1, so it needs one unit for each. The
# weights u_j and v_j on both sides of unit j give its signal a gain of s_j = |u_j| f_j |v_j|. The prior splits it
# evenly, ‖u_j‖² = ‖v_j‖² = s_j/f_j, so the objective is Σ (1 − s_j)²/(2δ²) + s_j/(f_j σ²N).

SIGNALS, SAMPLES = 8, 16
DEVIATION, PRIOR = 0.3, 0.1


def reproduce(family: Importance) -> tuple[awn.advanced.Width, Tensor]:
    """The width after a training whose learning rate falls to almost nothing, and the energies ‖v_j‖² of its units."""
    drawn = torch.randn(SAMPLES, SIGNALS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    signals = torch.linalg.qr(drawn)[0] * math.sqrt(SAMPLES)
    model = awn.AdaptiveMLP(
        SIGNALS,
        SIGNALS,
        activation="identity",
        bias=False,
        importance=family,
        quantile=0.99,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(0),
    )
    options = FitOptions(epochs=600, batch_size=SAMPLES, lr=0.02, schedule="cosine", patience=None, by_hand=True)
    loss = partial(awn.likelihood.gaussian, deviation=DEVIATION)
    fit(model, Data(signals, signals), loss=loss, options=options, prior=awn.Prior(PRIOR))
    width = model.hidden[0].width
    return width, model.output._parameters["weight"].detach()[:, : width.units].square().sum(0)


def resting_rate() -> float:
    """The ν at which the objective is lowest: there s_j = 1 − δ²/(f_j σ²N), and Σ s_j/f_j (1/(e^ν − 1) − j) = 0."""
    anchor = 1 / -math.expm1(-math.log(10) / 127.5)

    def law(nu: float) -> float:
        importances = [anchor * -math.expm1(-nu) * math.exp(-nu * j) for j in range(SIGNALS)]
        gains = [1 - DEVIATION**2 / (f * PRIOR**2 * SAMPLES) for f in importances]
        energies = [gain / f for gain, f in zip(gains, importances, strict=True)]
        return sum(energy * (1 / math.expm1(nu) - j) for j, energy in enumerate(energies))

    return optimize.brentq(law, 0.05, 0.4)


@pytest.mark.parametrize("start", [16, 64])
def test_training_ends_where_the_law_says_whatever_the_start(start):
    width, energy = reproduce(Exponential.for_units(start, 0.99))
    index = torch.arange(width.units, dtype=torch.float64)
    assert ((energy * index).sum() / energy.sum()).item() == pytest.approx(1 / math.expm1(width.value), rel=1e-3)
    assert width.value == pytest.approx(resting_rate(), rel=1e-3)
