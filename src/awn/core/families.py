"""The three families of the paper: exponential, power law and sigmoid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from awn.basics.checks import check_number
from awn.core.importance import Importance


@dataclass(frozen=True)
class Exponential(Importance):
    """The paper's family: S(x) = e^(−rate·x). Every unit has a fixed share of the importance of the one before it."""

    learned = "rate"

    rate: float = 0.01

    def survival(self, x: Tensor, value: Tensor) -> Tensor:
        """S(x) = e^(−rate·x)."""
        return torch.exp(-value * x)

    def inverse_survival(self, p: Tensor, value: Tensor) -> Tensor:
        """Solve S(x) = p: x = −ln p / rate."""
        return -torch.log(p) / value

    def number_beyond(self, p: float, value: float) -> float:
        """−ln p / rate."""
        return -math.log(p) / value

    def mass(self, index: Tensor, value: Tensor) -> Tensor:
        """e^(−rate·j) · (1 − e^(−rate))."""
        falling = -value
        return torch.exp(falling * index) * -torch.expm1(falling)

    def relative_mass(self, index: Tensor, value: Tensor) -> Tensor:
        """e^(−rate·j)."""
        return torch.exp(-index * value)

    def slope(self, index: Tensor, value: Tensor, mass: Tensor) -> Tensor:
        """f(j) · (1/(e^rate − 1) − j)."""
        return mass * (torch.expm1(value).reciprocal() - index)


@dataclass(frozen=True)
class PowerLaw(Importance):
    """A long tail: S(x) = (1 + x/x₀)^−(exponent − 1), with x₀ = 1 + saturation.

    `saturation` (the paper's low-degree saturation) flattens the importance of the first units.
    """

    learned = "exponent"
    lower = 1.0

    exponent: float = 2.0
    saturation: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("saturation", self.saturation, or_equal=True)

    def survival(self, x: Tensor, value: Tensor) -> Tensor:
        """S(x) = (1 + x/x₀)^−(exponent − 1)."""
        return torch.exp((1 - value) * torch.log1p(x / (1 + self.saturation)))

    def inverse_survival(self, p: Tensor, value: Tensor) -> Tensor:
        """Solve S(x) = p: x = x₀ (p^(−1/(exponent − 1)) − 1)."""
        return (1 + self.saturation) * torch.expm1(-torch.log(p) / (value - 1))

    def number_beyond(self, p: float, value: float) -> float:
        """x₀ (p^(−1/(exponent − 1)) − 1)."""
        return (1 + self.saturation) * math.expm1(-math.log(p) / (value - 1))

    def mass(self, index: Tensor, value: Tensor) -> Tensor:
        """S(j) · (1 − ((x₀ + j)/(x₀ + j + 1))^(exponent − 1))."""
        step = torch.log1p(1 / (1 + self.saturation + index))
        return self.survival(index, value) * -torch.expm1((1 - value) * step)

    def slope(self, index: Tensor, value: Tensor, mass: Tensor) -> Tensor:
        """S(j + 1) · ln((x₀ + j + 1)/(x₀ + j)) − f(j) · ln(1 + j/x₀)."""
        offset = 1 + self.saturation
        beyond = self.survival(index + 1, value)
        return beyond * torch.log1p(1 / (offset + index)) - mass * torch.log1p(index / offset)


@dataclass(frozen=True)
class Sigmoid(Importance):
    """A plateau with an edge: units up to `midpoint` have about the same importance, units beyond it little.

    S(x) = softplus((midpoint − x)/steepness) / softplus(midpoint/steepness), whose slope is a sigmoid.
    A network with this family loses accuracy when it is truncated: its last units are as important as its first.
    """

    learned = "midpoint"

    midpoint: float = 128.0
    steepness: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("steepness", self.steepness)

    def survival(self, x: Tensor, value: Tensor) -> Tensor:
        """S(x) = softplus((midpoint − x)/steepness) / softplus(midpoint/steepness)."""
        return F.softplus((value - x) / self.steepness) / F.softplus(value / self.steepness)

    def inverse_survival(self, p: Tensor, value: Tensor) -> Tensor:
        """Solve S(x) = p: x = midpoint − steepness · softplus⁻¹(p · softplus(midpoint/steepness))."""
        level = p * F.softplus(value / self.steepness)
        return value - self.steepness * (level + torch.log(-torch.expm1(-level)))

    def number_beyond(self, p: float, value: float) -> float:
        """Solve S(x) = p for plain numbers; see `inverse_survival`."""
        scaled = value / self.steepness
        level = p * (scaled + math.log1p(math.exp(-scaled)))
        return value - self.steepness * (level + math.log(-math.expm1(-level)))

    def mass(self, index: Tensor, value: Tensor) -> Tensor:
        """log(1 + σ((midpoint − j − 1)/steepness) · (e^(1/steepness) − 1)) / softplus(midpoint/steepness)."""
        if self.steepness < 0.1:  # e^(1/steepness) would overflow: split softplus into its bend and its straight part
            above, below = (value - index) / self.steepness, (value - index - 1) / self.steepness
            # Written out: at a whole midpoint, clamp would count the slope of both its edges.
            straight = torch.where(above > 1 / self.steepness, 1 / self.steepness, torch.relu(above))
            bend = torch.log1p(torch.exp(-above.abs())) - torch.log1p(torch.exp(-below.abs()))
            return (straight + bend) / F.softplus(value / self.steepness)
        inside = torch.sigmoid((value - index - 1) / self.steepness) * math.expm1(1 / self.steepness)
        return torch.log1p(inside) / F.softplus(value / self.steepness)

    def slope(self, index: Tensor, value: Tensor, mass: Tensor) -> Tensor:
        """(σ((midpoint − j)/steepness) − σ((midpoint − j − 1)/steepness) − f(j) σ(midpoint/steepness)) / total."""
        above, below = ((value - index - step) / self.steepness for step in (0, 1))
        total = self.steepness * F.softplus(value / self.steepness)
        change = torch.sigmoid(above) - torch.sigmoid(below)
        return (change - mass * torch.sigmoid(value / self.steepness)) / total
