"""The price of a weight: what the ELBO charges for each weight, whatever its value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from awn.basics.checks import check_number
from awn.errors import ArgumentError

Approximation = Literal["kl", "first order"]


@dataclass(frozen=True)
class Price:
    """What every weight of a unit costs, in nats, besides its square.

    A weight has the prior N(0, σ_θ²) and the approximate posterior N(ρ, s²), and s is `posterior_scale`. Their
    Kullback-Leibler divergence ("kl") has the constant log(σ_θ/s) + s²/(2σ_θ²) − ½. The paper's first-order
    approximation of the ELBO ("first order") has log(σ_θ/s), which is negative for σ_θ < s and then rewards width.

    >>> round(Price().of(10.0), 3), round(Price("first order").of(10.0), 3), Price().of(1.0)
    (1.808, 2.303, 0.0)
    """

    approximation: Approximation = "kl"
    posterior_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.approximation not in get_args(Approximation):
            raise ArgumentError(f"approximation must be 'kl' or 'first order', got {self.approximation!r}.")
        check_number("posterior_scale", self.posterior_scale)

    def of(self, scale: float) -> float:
        """The price of a weight whose prior has the standard deviation `scale`."""
        ratio = self.posterior_scale / scale
        return -math.log(ratio) + (ratio**2 / 2 - 0.5 if self.approximation == "kl" else 0.0)
