"""Families: survival, inverse, mass and width, against closed forms in 50-digit arithmetic."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import awn
from awn import AwnError, Exponential, PowerLaw, Sigmoid
from awn.advanced import Importance
from awn.errors import NonFiniteError
from cases import pairwise


@dataclass(frozen=True)
class Hyperbolic(Importance):
    """A family as a user writes it: the two functions and nothing else."""

    learned = "half"

    half: float = 10.0

    def survival(self, x: Tensor, value: Tensor) -> Tensor:
        return value / (value + x)

    def inverse_survival(self, p: Tensor, value: Tensor) -> Tensor:
        return value * (1 / p - 1)


@pytest.fixture(autouse=True)
def fifty_digits():
    with localcontext() as context:
        context.prec = 50
        yield


def softplus(x: Decimal) -> Decimal:
    return (1 + x.exp()).ln()


def exponential(x: Decimal, rate: Decimal) -> Decimal:
    return (-rate * x).exp()


def power_law(saturation: float) -> Callable[[Decimal, Decimal], Decimal]:
    return lambda x, exponent: (1 + x / (1 + Decimal(saturation))) ** (1 - exponent)


def sigmoid(steepness: float) -> Callable[[Decimal, Decimal], Decimal]:
    s = Decimal(steepness)
    return lambda x, midpoint: softplus((midpoint - x) / s) / softplus(midpoint / s)


def hyperbolic(x: Decimal, half: Decimal) -> Decimal:
    return half / (half + x)


RATES = (1e-6, 1e-4, 0.01, 0.3, 1.0, 10.0)
EXACT: list[tuple[Importance, Callable[[Decimal, Decimal], Decimal], tuple[float, ...]]] = [
    (Exponential(), exponential, RATES),
    (PowerLaw(), power_law(0.0), tuple(1 + rate for rate in RATES)),
    (PowerLaw(saturation=2.0), power_law(2.0), tuple(1 + rate for rate in RATES)),
    (Sigmoid(), sigmoid(1.0), (*RATES, 128.0, 1e5)),
    (Sigmoid(steepness=0.125), sigmoid(0.125), (*RATES, 128.0)),
    (Sigmoid(steepness=8.0), sigmoid(8.0), (*RATES, 128.0, 1e5)),
    (Sigmoid(steepness=0.0625), sigmoid(0.0625), (0.5, 128.0, 1e4)),
    (Hyperbolic(), hyperbolic, (*RATES, 128.0, 1e5)),
]
CASES = [
    pytest.param(family, exact, value, id=f"{family}-{value}") for family, exact, values in EXACT for value in values
]
# The formulas of awn itself. Those of Hyperbolic stand in this file, and its mass is the difference by definition.
CLOSED_FORMS = [case for case in CASES if not isinstance(case.values[0], Hyperbolic)]
FAMILIES = [
    pytest.param(family, id=type(family).__name__) for family in (Exponential(), PowerLaw(), Sigmoid(), Hyperbolic())
]
SCALES = ("anchored", "mass", "unit")
INDICES = (0, 1, 2, 5, 17, 100, 127, 128, 1000, 10_000, 99_999)


def relevant(exact: Callable[[Decimal, Decimal], Decimal], value: float) -> list[int]:
    """The units before which at least 1e-12 of the importance is left."""
    return [j for j in INDICES if exact(Decimal(j), Decimal(value)) > Decimal("1e-12")]


def exact_mass(exact: Callable[[Decimal, Decimal], Decimal], value: float, j: int) -> float:
    return float(exact(Decimal(j), Decimal(value)) - exact(Decimal(j + 1), Decimal(value)))


@pytest.mark.parametrize(("family", "exact", "value"), CLOSED_FORMS)
def test_survival_is_the_closed_form(family, exact, value):
    found = family.survival(torch.tensor(INDICES, dtype=torch.float64), torch.tensor(value, dtype=torch.float64))
    expected = [float(exact(Decimal(j), Decimal(value))) for j in INDICES]
    assert found[0] == 1
    assert found.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-35)


@pytest.mark.parametrize(("family", "exact", "value"), CLOSED_FORMS)
def test_inverse_undoes_survival(family, exact, value):
    v = torch.tensor(value, dtype=torch.float64)
    p = torch.tensor([1 - 1e-6, 0.999, 0.9, 0.5, 0.1, 0.01], dtype=torch.float64)
    x = family.inverse_survival(p, v)
    within = x.isfinite()  # a power law close to exponent 1 has quantiles that no double can hold
    assert within[0]
    assert family.survival(x[within], v).tolist() == pytest.approx(p[within].tolist(), rel=1e-8)


@pytest.mark.parametrize(("family", "exact", "value"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 1e-5)])
def test_mass_keeps_its_digits(family, exact, value, dtype, tolerance):
    stored = torch.tensor(value, dtype=dtype)
    indices = relevant(exact, stored.item())
    found = family.mass(torch.tensor(indices, dtype=dtype), stored)
    assert found.dtype == dtype
    expected = [exact_mass(exact, stored.item(), j) for j in indices]
    assert found.tolist() == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("steepness", [0.03, 0.01, 0.001])
def test_a_steep_sigmoid_is_a_plain_cut(steepness):
    # So steep an edge at 4.5 leaves units 0 to 3 with equal shares, unit 4 with half of one, and the rest with none.
    mass = Sigmoid(midpoint=4.5, steepness=steepness).mass(torch.arange(8.0), torch.tensor(4.5))
    assert mass.tolist() == pytest.approx([1 / 4.5] * 4 + [0.5 / 4.5] + [0.0] * 3, abs=1e-6)


@pytest.mark.parametrize(("family", "exact", "value"), CLOSED_FORMS)
def test_closed_form_mass_is_the_difference_of_survivals(family, exact, value):
    j = torch.arange(2000, dtype=torch.float64)
    v = torch.tensor(value, dtype=torch.float64)
    difference = family.survival(j, v) - family.survival(j + 1, v)
    torch.testing.assert_close(family.mass(j, v), difference, rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize(("family", "exact", "value"), CASES)
@pytest.mark.parametrize("n", [1, 7, 5000])
def test_mass_sums_to_one_less_survival(family, exact, value, n):
    mass = family.mass(torch.arange(n, dtype=torch.float64), torch.tensor(value, dtype=torch.float64))
    assert mass.sum().item() == pytest.approx(float(1 - exact(Decimal(n), Decimal(value))), rel=1e-8)


@pytest.mark.parametrize(("family", "exact", "value"), CASES)
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_mass_is_positive_and_never_rises(family, exact, value, dtype, rounding):
    indices = torch.tensor(relevant(exact, value), dtype=dtype)
    mass = family.mass(indices, torch.tensor(value, dtype=dtype))
    assert (mass > 0).all()
    assert (mass[1:] <= mass[:-1] * (1 + rounding)).all()
    if len(mass) > 1 and not isinstance(family, Sigmoid):  # a sigmoid has a plateau
        assert mass[-1] < mass[0]


def test_sigmoid_is_flat_before_its_midpoint_and_falls_after_it():
    mass = Sigmoid(midpoint=50.0).mass(torch.arange(80.0), torch.tensor(50.0))
    assert mass[20] == pytest.approx(mass[0].item(), rel=1e-5)
    assert mass[70] < mass[0] * 1e-6


@pytest.mark.parametrize(
    ("case", "scale", "dtype"),
    pairwise([(case.values[0], case.values[2]) for case in CASES], SCALES, (torch.float32, torch.float64)),
    ids=str,
)
def test_gradients_are_finite_even_far_beyond_the_width(case, scale, dtype):
    family, value = case
    v = torch.tensor(value, dtype=dtype, requires_grad=True)
    importance = dataclasses.replace(family, scale=scale).importance(torch.tensor(INDICES, dtype=dtype), v)
    assert importance.isfinite().all()
    for one in importance:
        (gradient,) = torch.autograd.grad(one, v, retain_graph=True)
        assert gradient.isfinite()


@pytest.mark.parametrize(("family", "exact", "value"), CASES)
def test_unit_scale_gives_the_first_unit_importance_one(family, exact, value):
    j, v = torch.arange(50, dtype=torch.float64), torch.tensor(value, dtype=torch.float64)
    mass, unit = (dataclasses.replace(family, scale=scale).importance(j, v) for scale in ("mass", "unit"))
    assert unit[0] == 1
    torch.testing.assert_close(unit * exact_mass(exact, value, 0), mass, rtol=1e-8, atol=1e-300)


@pytest.mark.parametrize(("family", "exact", "value"), CASES)
def test_anchored_scale_is_the_mass_times_what_makes_the_first_of_128_units_one(family, exact, value):
    j, v = torch.arange(50, dtype=torch.float64), torch.tensor(value, dtype=torch.float64)
    at_128 = exact_mass(exact, family.value_inside(128), 0)
    torch.testing.assert_close(family.importance(j, v) * at_128, family.mass(j, v), rtol=1e-8, atol=1e-300)


def test_anchored_is_the_default_scale():
    assert Exponential().anchor == pytest.approx(1 / (1 - 10 ** (-1 / 127.5)))
    assert Exponential().importance(torch.arange(2.0), torch.tensor(0.5)).tolist() == pytest.approx(
        [(1 - math.exp(-0.5)) * Exponential().anchor, (math.exp(-0.5) - math.exp(-1)) * Exponential().anchor]
    )


def test_a_family_that_is_never_as_narrow_as_128_units_is_anchored_at_its_narrowest():
    steepness = 100.0
    assert smallest_sigmoid(steepness, 0.9) > 128
    narrowest = 1 - softplus(Decimal(-1) / 100) / Decimal(2).ln()  # f(0) at a midpoint of 0
    assert Sigmoid(steepness=steepness).anchor == pytest.approx(float(1 / narrowest), rel=1e-6)


def test_a_model_on_the_meta_device_needs_no_anchor_from_there():
    with torch.device("meta"):
        # A saturation of its own, whose anchor is not in the cache yet.
        model = awn.AdaptiveMLP(2, 2, importance=PowerLaw.for_units(40, saturation=0.123))
    assert model.hidden[0].width.importance().is_meta


def power_law_width(exponent: float, saturation: float, k: float) -> int:
    return math.ceil((1 + saturation) * ((1 - k) ** (-1 / (exponent - 1)) - 1))


def sigmoid_width(midpoint: float, steepness: float, k: float) -> int:
    level = (1 - k) * math.log1p(math.exp(midpoint / steepness))
    return math.ceil(midpoint - steepness * math.log(math.expm1(level)))


@pytest.mark.parametrize(
    ("family", "k", "units"),
    [
        (Exponential(rate=0.01), 0.9, 231),
        (Exponential(rate=0.02), 0.9, 116),
        (Exponential(rate=0.01), 0.99, 461),
        (Exponential(rate=10.0), 0.9, 1),
        (Exponential(rate=1e-6), 0.5, 693_148),
        (PowerLaw(exponent=2.5), 0.9, power_law_width(2.5, 0.0, 0.9)),
        (PowerLaw(exponent=2.5, saturation=2.0), 0.9, power_law_width(2.5, 2.0, 0.9)),
        (PowerLaw(exponent=1.7), 0.97, power_law_width(1.7, 0.0, 0.97)),
        (Sigmoid(midpoint=128.0), 0.9, sigmoid_width(128.0, 1.0, 0.9)),
        (Sigmoid(midpoint=20.0, steepness=4.0), 0.8, sigmoid_width(20.0, 4.0, 0.8)),
        (Hyperbolic(half=10.3), 0.9, 93),
    ],
    ids=str,
)
def test_width_is_the_quantile_rounded_up(family, k, units):
    assert family.width(k) == units
    assert family.share(units, family.start) >= k > family.share(units - 1, family.start)


def test_a_quantile_that_falls_on_a_whole_unit_is_not_rounded_further():
    # S(9) = 1/10: the first nine units hold 0.9 of the importance exactly.
    assert PowerLaw(exponent=2.0).width(0.9) == 9


def test_width_at_another_value_than_the_start():
    assert Exponential(rate=0.01).width(0.9, value=0.02) == 116
    assert Exponential(rate=0.01).soft_width(0.9, value=0.02) == pytest.approx(math.log(10) / 0.02)


def test_share_is_the_mass_before():
    assert Exponential().share(231, value=0.01) == pytest.approx(1 - math.exp(-2.31))
    assert PowerLaw().share(9, value=2.0) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("family", "width", "value"),
    [
        (Exponential(), 100.0, math.log(10) / 100),
        (PowerLaw(), 99.0, 1.5),  # (1 + 99)^−1/2 = 1/10
        (Hyperbolic(), 90.0, 10.0),
    ],
    ids=str,
)
def test_value_for_is_the_closed_form(family, width, value):
    assert family.value_for(width, 0.9) == pytest.approx(value, rel=1e-9)


def smallest_sigmoid(steepness: float, k: float) -> float:
    """The width of a sigmoid whose midpoint is 0: it has none below."""
    return -steepness * math.log(math.expm1((1 - k) * math.log(2)))


FAMILY_TYPES = [(Exponential, {}), (PowerLaw, {}), (PowerLaw, {"saturation": 2.0}), (Sigmoid, {}), (Hyperbolic, {})]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.sampled_from(FAMILY_TYPES), st.integers(1, 100_000), st.floats(0.05, 0.999))
def test_for_units_starts_at_that_width(family_type, n, k):
    kind, options = family_type
    if kind is Sigmoid:
        n = max(n, math.ceil(smallest_sigmoid(1.0, k)) + 1)
    assert kind.for_units(n, k, **options).width(k) == n


@pytest.mark.parametrize(
    ("number", "n", "k"), pairwise(range(len(FAMILY_TYPES)), (100, 1000, 99_999, 100_000), (0.5, 0.9, 0.99))
)
def test_for_units_at_round_numbers(number, n, k):
    kind, options = FAMILY_TYPES[number]
    assert kind.for_units(n, k, **options).width(k) == n


def test_for_units_reaches_the_smallest_width_a_family_has():
    assert smallest_sigmoid(1.0, 0.9) == pytest.approx(2.63, abs=0.01)
    assert Sigmoid.for_units(3).width() == 3
    assert Exponential.for_units(1).width() == PowerLaw.for_units(1).width() == 1


def test_for_units_keeps_the_options():
    family = PowerLaw.for_units(50, 0.8, saturation=1.0, scale="unit")
    assert (family.saturation, family.scale, family.width(0.8)) == (1.0, "unit", 50)


def test_starting_at_changes_the_start_alone():
    assert PowerLaw(saturation=1.0, scale="unit").starting_at(3.0) == PowerLaw(3.0, 1.0, scale="unit")


@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_values(family):
    assert family == dataclasses.replace(family)
    assert hash(family) == hash(dataclasses.replace(family))
    with pytest.raises(dataclasses.FrozenInstanceError):
        family.scale = "unit"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Exponential(rate=0.0), "rate must be a finite number above 0, got 0"),
        (lambda: Exponential(rate=-1.0), "rate must be a finite number above 0, got -1"),
        (lambda: Exponential(rate=math.nan), "rate .* got nan"),
        (lambda: Exponential(rate=math.inf), "rate .* got inf"),
        (lambda: PowerLaw(exponent=1.0), "exponent must be a finite number above 1, got 1"),
        (lambda: PowerLaw(saturation=-0.1), "saturation must be .* at least 0, got -0.1"),
        (lambda: PowerLaw(saturation=math.nan), "saturation .* got nan"),
        (lambda: Sigmoid(midpoint=0.0), "midpoint must be a finite number above 0"),
        (lambda: Sigmoid(steepness=0.0), "steepness must be a finite number above 0, got 0"),
        (lambda: Sigmoid(steepness=math.inf), "steepness .* got inf"),
        (lambda: Hyperbolic(half=-2.0), "half must be a finite number above 0, got -2.0: Hyperbolic"),
        (lambda: Exponential(scale="log"), "scale must be 'anchored', 'mass' or 'unit', got 'log'"),
        (lambda: Exponential().width(0.0), "quantile must lie strictly between 0 and 1, got 0"),
        (lambda: Exponential().width(1.0), "quantile must lie strictly between 0 and 1, got 1"),
        (lambda: Exponential().soft_width(math.nan), "quantile .* got nan"),
        (lambda: Exponential.for_units(10, 1.5), "quantile .* got 1.5"),
        (lambda: Exponential.for_units(0), "units must be a whole number of at least 1, got 0"),
        (lambda: Exponential.for_units(-4), "units .* got -4"),
        (lambda: Exponential.for_units(2.5), "units .* got 2.5"),
        (lambda: Exponential.for_units(True), "units .* got True"),
        (lambda: Exponential().value_for(0.0), "width must be a finite number above 0, got 0"),
        (lambda: Exponential().value_for(math.inf), "width .* got inf"),
        (lambda: Sigmoid.for_units(1), "Sigmoid.* has no midpoint that gives a width"),
        (lambda: Exponential().starting_at(-3.0), "rate must be a finite number above 0, got -3"),
    ],
)
def test_wrong_arguments_are_named(build, message):
    with pytest.raises(AwnError, match=message) as caught:
        build()
    assert isinstance(caught.value, ValueError)


def test_a_width_without_end_is_an_error():
    with pytest.raises(NonFiniteError, match=r"PowerLaw.*exponent = 1"):
        PowerLaw(exponent=1 + 1e-9).width(0.9)


def test_a_family_must_state_both_functions():
    @dataclass(frozen=True)
    class Half(Importance):
        learned = "rate"
        rate: float = 1.0

        def survival(self, x: Tensor, value: Tensor) -> Tensor:
            return torch.exp(-x * value)

    with pytest.raises(TypeError, match="inverse_survival"):
        Half()


def test_a_family_of_ones_own_trains_and_resizes():
    torch.manual_seed(0)
    model = awn.AdaptiveMLP(2, 1, importance=Hyperbolic.for_units(20))
    assert awn.widths(model) == {"hidden.0": 20}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.hidden[0].width.soft_units().backward()  # wants fewer units
    optimizer.step()
    awn.resize_(model, optimizer)
    # S⁻¹ is proportional to the learned value, so the gradient of log ν is the soft width itself: 19.5.
    assert model.hidden[0].width.value == pytest.approx(19.5 / 9 * math.exp(-1.95), rel=1e-5)
    assert awn.widths(model) == {"hidden.0": math.ceil(19.5 * math.exp(-1.95))}


@pytest.mark.parametrize(
    "family",
    [Exponential(), PowerLaw(saturation=3.0), Sigmoid(steepness=2.0), Sigmoid(steepness=0.05)],
    ids=str,
)
@pytest.mark.parametrize("p", [1e-6, 0.1, 0.5, 0.999])
def test_plain_numbers_and_tensors_give_the_same_width(family, p):
    for above in (1e-3, 0.02, 1.0, 30.0, 500.0):
        value = family.lower + above
        exact = family.inverse_survival(*torch.tensor([1 - (1 - p), value], dtype=torch.float64)).item()
        assert family.soft_width(1 - p, value) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("family", [Exponential, PowerLaw, Sigmoid])
def test_first_and_second_derivatives_of_the_importance_are_exact(family, scale):
    width = awn.advanced.Width(family.for_units(6, scale=scale), block=4).double()

    def of(log_nu: torch.Tensor) -> torch.Tensor:
        return width.family.profile(width.index, log_nu.exp() + width.family.lower) * width.active

    at = width.log_nu.detach().requires_grad_()
    torch.testing.assert_close(of(at), width.importance())
    assert torch.autograd.gradcheck(of, (at,))
    assert torch.autograd.gradgradcheck(of, (at,))
