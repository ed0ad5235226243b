"""The gradients of the prior on the widths, of its price and of a budget, with respect to log ν."""

from __future__ import annotations

import math
from collections.abc import Sequence

from awn.core.width import Width
from awn.loss.budget import Budget
from awn.loss.cost import Cost, at_units, slope
from awn.loss.prior import Anneal, Prior
from awn.training.by_hand.structure import Structure

_STEP = 1e-3  # of log ν


class WidthTerms:
    """What the terms of the objective besides the data term add to dL/dlog ν, in one epoch."""

    def __init__(self, structure: Structure, prior: Prior, budget: Budget | None, samples: int, time: float) -> None:
        self.widths = [group.width for group in structure.groups]
        self.samples, self.prior, self.budget = samples, prior, budget
        scale = prior.width_scale
        self.scale = scale.at(time) if isinstance(scale, Anneal) else scale
        self.cost = [] if budget is None else budget.cost(structure.model, structure.groups)
        self.price = prior.price_cost(structure.model, structure.groups)
        #: Whether there is anything to add.
        self.present = self.scale is not None or budget is not None or bool(self.price)

    def add_to(self, slopes: list[float], log_nus: Sequence[float], units: Sequence[int]) -> None:
        """Add the terms' gradients, at these log ν and widths."""
        if self.scale is not None and self.prior.width_mean is not None:
            for number, log_nu in enumerate(log_nus):
                slopes[number] += self._prior_slope(self.widths[number], log_nu, self.prior.width_mean, self.scale)
        if self.budget is not None and at_units(self.cost, units) > self.budget.cap:
            self._add_cost(slopes, self.cost, self.budget.strength / self.budget.cap, log_nus, units)
        if self.price:
            self._add_cost(slopes, self.price, 1 / self.samples, log_nus, units)

    def _add_cost(
        self, slopes: list[float], cost: Cost, factor: float, log_nus: Sequence[float], units: Sequence[int]
    ) -> None:
        for number, log_nu in enumerate(log_nus):
            slopes[number] += factor * slope(cost, number, units) * soft_width_slope(self.widths[number], log_nu)

    def _prior_slope(self, width: Width, log_nu: float, mean: float, scale: float) -> float:
        above, lower = math.exp(log_nu), width.family.lower
        by_nu = (above + lower - mean) / scale**2
        if self.prior.folded:
            rate = 2 * (mean - lower) / scale**2
            by_nu += rate * _sigmoid(-rate * above)
        return above * by_nu / self.samples


def soft_width_slope(width: Width, log_nu: float) -> float:
    """The derivative of the width before rounding with respect to log ν.

    A difference of four values, with a relative error of about 1e-9 at most. Autograd would take longer than the rest
    of a small step. A width beyond all numbers has no slope, NaN.

    >>> from awn import Exponential
    >>> round(soft_width_slope(Width(Exponential(rate=0.01)), math.log(0.01)), 2)   # −S⁻¹(0.1)
    -230.26
    """

    def change(step: float) -> float:
        above, below = (
            width.family.number_beyond(1 - width.quantile, width.family.lower + math.exp(log_nu + side))
            for side in (step, -step)
        )
        return above - below

    try:
        return (8 * change(_STEP) - change(2 * _STEP)) / (12 * _STEP)
    except ArithmeticError:  # overflow
        return math.nan


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))
