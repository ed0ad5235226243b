"""Importance: the factors that multiply a layer's units, and what follows from a family of them.

A family is a survival function S(x; value): 1 at x = 0, falling to 0, with one learned `value`.
Everything else follows from S and its inverse:

- the importance of unit j is the mass between j and j + 1: f(j) = S(j) − S(j + 1);
- the width at quantile k is the number of units whose mass reaches k: D = ⌈S⁻¹(1 − k)⌉.

To write your own family, subclass `Importance` as a frozen dataclass and define these two functions:

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class HalfNormal(Importance):
...     learned = "sigma"
...     sigma: float = 100.0
...     def survival(self, x, value):
...         return torch.erfc(x / (value * 2**0.5))
...     def inverse_survival(self, p, value):
...         return value * 2**0.5 * torch.erfinv(1 - p)
>>> HalfNormal.for_units(128).width(quantile=0.9)
128
"""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, TypeVar, get_args

import torch
from torch import Tensor

from awn.basics.checks import check_quantile, check_units
from awn.errors import ArgumentError, NonFiniteError

Scale = Literal["anchored", "mass", "unit"]
# The anchored scale gives the first unit of a layer of this width, at this quantile, an importance of 1.
_ANCHOR_UNITS, _ANCHOR_QUANTILE = 128, 0.9
FamilyT = TypeVar("FamilyT", bound="Importance")


@dataclass(frozen=True)
class Importance(ABC):
    """A decreasing importance over an infinite list of units, with one learned value.

    `learned` names the field with the initial learned value. The value stays above `lower`. Three scales:

    - `"anchored"` multiplies f(j) by a constant of the family, the same at every learned value. The first unit has
      importance 1 in a layer of 128 units, so weights have their ordinary size.
    - `"mass"` uses f(j) itself, as in the paper, so that all importances sum to one.
    - `"unit"` divides by f(0), so that the first unit always has importance 1.

    With the first two, the prior on the weights has a width at which ν comes to rest; see `log_slope`. On the unit
    scale it has none, and layers widen until something else stops them.
    """

    learned: ClassVar[str]
    lower: ClassVar[float] = 0.0

    scale: Scale = dataclasses.field(default="anchored", kw_only=True)

    def __post_init__(self) -> None:
        if self.scale not in get_args(Scale):
            raise ArgumentError(f"scale must be 'anchored', 'mass' or 'unit', got {self.scale!r}.")
        start = getattr(self, self.learned)
        if not (isinstance(start, Real) and math.isfinite(start) and float(start) > self.lower):
            raise ArgumentError(
                f"{self.learned} must be a finite number above {self.lower:g}, got {start!r}: "
                f"{type(self).__name__} has no decreasing importance otherwise."
            )

    @abstractmethod
    def survival(self, x: Tensor, value: Tensor) -> Tensor:
        """S(x; value): the share of the importance that lies beyond x."""

    @abstractmethod
    def inverse_survival(self, p: Tensor, value: Tensor) -> Tensor:
        """The x at which S(x; value) = p."""

    def mass(self, index: Tensor, value: Tensor) -> Tensor:
        """f(j) = S(j) − S(j + 1), in double precision, since the two are nearly equal at large widths.

        The families below have closed forms that are also exact in single precision.
        """
        exact = torch.float64 if index.device.type != "mps" else index.dtype  # MPS has no float64
        j, v = index.to(exact), value.to(exact)
        return (self.survival(j, v) - self.survival(j + 1, v)).to(index.dtype)

    @property
    def start(self) -> float:
        """The initial learned value."""
        return float(getattr(self, self.learned))

    def importance(self, index: Tensor, value: Tensor) -> Tensor:
        """The importance of the units in `index`, whose first entry is unit 0, on this family's scale.

        >>> import awn
        >>> awn.Exponential(scale="unit").importance(torch.arange(3.0), torch.tensor(0.5))
        tensor([1.0000, 0.6065, 0.3679])
        """
        profile = self.profile(index, value)
        return profile * self.anchor if self.scale == "anchored" else profile

    def profile(self, index: Tensor, value: Tensor) -> Tensor:
        """The importance without the constant `anchor`."""
        return self.relative_mass(index, value) if self.scale == "unit" else self.mass(index, value)

    @property
    def anchor(self) -> float:
        """The constant factor of the anchored scale, 1 on the others.

        >>> import awn
        >>> round(awn.Exponential().anchor, 2), awn.Exponential(scale="mass").anchor
        (55.87, 1.0)
        """
        return _anchor(self) if self.scale == "anchored" else 1.0

    def relative_mass(self, index: Tensor, value: Tensor) -> Tensor:
        """f(j) / f(0)."""
        mass = self.mass(index, value)
        return mass / mass[..., :1]

    def slope(self, index: Tensor, value: Tensor, mass: Tensor) -> Tensor | None:
        """The derivative of `mass` with respect to the learned value; None leaves it to autograd.

        A family that has a closed form of it trains faster. `mass` is f at the same index and value.
        """
        return None

    def importance_and_slope(self, index: Tensor, value: Tensor) -> tuple[Tensor, Tensor] | None:
        """The importance and its derivative with respect to the learned value; None if the family has no slope.

        `value` may be a column of values, one per layer.

        >>> import awn
        >>> family = awn.Exponential(scale="unit")
        >>> importance, slope = family.importance_and_slope(torch.arange(3.0), torch.tensor([[0.5]]))
        >>> slope[0, 1:]
        tensor([-0.6065, -0.7358])
        """
        mass = self.mass(index, value)
        slope = self.slope(index, value, mass)
        if slope is None or self.scale != "unit":
            return None if slope is None else (mass * self.anchor, slope * self.anchor)
        first, first_slope = mass[..., :1], slope[..., :1]
        relative = mass / first
        return relative, (slope - relative * first_slope) / first

    def log_slope(self, index: Tensor, value: Tensor) -> Tensor:
        """The derivative d log f(j) / dν: the relative change of every unit's importance with the learned value ν.

        >>> import awn
        >>> awn.Exponential().log_slope(torch.tensor([0.0, 100.0, 200.0]), torch.tensor(0.01))
        tensor([  99.5008,   -0.4992, -100.4992])

        It decides where ν rests. Change ν and undo the change in the weights w_j that read unit j: the function stays,
        and the prior on the weights changes in proportion to −Σ ‖w_j‖² d log f(j). So it leaves ν at rest where
        Σ ‖w_j‖² · log_slope(j) = 0. On the anchored and mass scales the slope has both signs, so ν has a resting point:
        for an exponential, where the mean index of the weights' energy ‖w_j‖² is 1/(e^ν − 1). On the unit scale no unit
        gains by a narrower layer (for an exponential, the slope is −j), and the prior only ever widens the layer.
        """
        computed = self.importance_and_slope(index, value)
        if computed is None:
            # Twice backward: torch's forward mode compiles on first use, and warns as it does.
            computed = torch.autograd.functional.jvp(
                lambda v: self.importance(index, v), value, torch.ones_like(value), strict=True
            )
        importance, slope = computed
        return slope / importance

    def width(self, quantile: float = 0.9, value: float | None = None) -> int:
        """The number of units that together hold the share `quantile` of the importance.

        >>> import awn
        >>> awn.Exponential(rate=0.01).width(quantile=0.9)
        231
        """
        soft = self.soft_width(quantile, value)
        if not math.isfinite(soft):
            at = self.start if value is None else value
            raise NonFiniteError(f"{type(self).__name__} has no finite width at {self.learned} = {at:g}")
        return round_up(soft)

    def soft_width(self, quantile: float = 0.9, value: float | None = None) -> float:
        """The width before it is rounded up: S⁻¹(1 − quantile)."""
        check_quantile(quantile)
        try:
            return self.number_beyond(1 - quantile, self.start if value is None else value)
        except ArithmeticError:  # overflow
            return math.inf

    def number_beyond(self, p: float, value: float) -> float:
        """`inverse_survival` of plain numbers. Every step needs it, so the families below compute it without tensors.

        >>> import awn
        >>> awn.Exponential().number_beyond(0.1, value=0.01)
        230.25...
        """
        exact = torch.tensor([p, value], dtype=torch.float64)
        return self.inverse_survival(exact[0], exact[1]).item()

    def value_for(self, soft_width: float, quantile: float = 0.9) -> float:
        """The learned value at which the soft width is `soft_width`.

        >>> import awn
        >>> round(awn.Exponential().value_for(230.26), 5)
        0.01
        """
        return _value_for(self, soft_width, quantile)

    def value_inside(self, units: int, quantile: float = 0.9) -> float:
        """A learned value inside the range that gives `units` units, so that rounding cannot change the width."""
        try:
            return self.value_for(units - 0.5, quantile)
        except ArgumentError:
            return self.value_for(units - 0.1, quantile)  # close to the smallest width of the family

    def share(self, units: float, value: float) -> float:
        """The share of the importance that the first `units` units hold.

        >>> import awn
        >>> round(awn.Exponential().share(231, value=0.01), 4)
        0.9007
        """
        exact = torch.tensor([float(units), value], dtype=torch.float64)
        return 1.0 - self.survival(exact[0], exact[1]).item()

    def starting_at(self: FamilyT, value: float) -> FamilyT:
        """The same family with another initial value.

        >>> import awn
        >>> awn.Exponential(scale="unit").starting_at(0.05)
        Exponential(scale='unit', rate=0.05)
        """
        start: dict[str, Any] = {self.learned: value}
        return dataclasses.replace(self, **start)

    @classmethod
    def for_units(cls: type[FamilyT], units: int, quantile: float = 0.9, **options: Any) -> FamilyT:
        """The family with the initial value that gives a width of `units`.

        >>> import awn
        >>> awn.Exponential.for_units(128).width(quantile=0.9)
        128
        """
        check_units("units", units)
        family = cls(**options)
        return family.starting_at(family.value_inside(units, quantile))


def round_up(soft_width: float) -> int:
    """Round a soft width up to a number of units, ignoring rounding errors just above a whole number.

    >>> round_up(9.000000000000002), round_up(9.1), round_up(0.2)
    (9, 10, 1)
    """
    return max(1, math.ceil(soft_width * (1 - 1e-12)))


@functools.lru_cache(maxsize=4096)
def _anchor(family: Importance) -> float:
    # A family that has no such width is anchored at the nearest that it has.
    value = _nearest_value(family, _ANCHOR_UNITS - 0.5, _ANCHOR_QUANTILE)
    exact = torch.tensor([0.0, value], dtype=torch.float64, device="cpu")  # also where the default device is meta
    return 1 / family.mass(exact[:1], exact[1]).item()


@functools.lru_cache(maxsize=4096)
def _value_for(family: Importance, soft_width: float, quantile: float) -> float:
    check_quantile(quantile)
    if not (math.isfinite(soft_width) and soft_width > 0):
        raise ArgumentError(f"a width must be a finite number above 0, got {soft_width}.")
    value = _nearest_value(family, soft_width, quantile)
    if not math.isclose(family.soft_width(quantile, value), soft_width, rel_tol=1e-6):
        raise ArgumentError(
            f"{family} has no {family.learned} that gives a width of {soft_width:g} at quantile {quantile:g}."
        )
    return value


def _nearest_value(family: Importance, soft_width: float, quantile: float) -> float:
    """The value with the nearest soft width: bisection on its logarithm, since S⁻¹ is monotonic in it."""

    def width_at(exponent: float) -> float:
        return family.soft_width(quantile, family.lower + math.exp(exponent))

    low, high = -30.0, 30.0
    rising = width_at(1.0) > width_at(0.0)
    for _ in range(80):
        middle = (low + high) / 2
        if (width_at(middle) < soft_width) == rising:
            low = middle
        else:
            high = middle
    return family.lower + math.exp(high)
