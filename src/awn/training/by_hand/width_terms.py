"""The gradients of the prior on the widths and of a budget, with respect to log ν."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from awn.core.width import Width
from awn.loss.budget import Budget
from awn.loss.prior import Anneal, Prior
from awn.training.by_hand.structure import Structure


class WidthTerms:
    """What the terms of the objective besides the data term add to dL/dlog ν, in one epoch."""

    def __init__(self, structure: Structure, prior: Prior, budget: Budget | None, samples: int, time: float) -> None:
        self.widths = [group.width for group in structure.groups]
        self.samples, self.prior, self.budget = samples, prior, budget
        scale = prior.width_scale
        self.scale = scale.at(time) if isinstance(scale, Anneal) else scale
        #: Whether there is anything to add.
        self.present = self.scale is not None or budget is not None
        self.cost = [] if budget is None else budget.cost(structure.model, structure.groups)

    def add_to(self, slopes: list[float], log_nus: Sequence[float], units: Sequence[int]) -> None:
        """Add the terms' gradients, at these log ν and widths."""
        if self.scale is not None and self.prior.width_mean is not None:
            for number, log_nu in enumerate(log_nus):
                slopes[number] += self._prior_slope(self.widths[number], log_nu, self.prior.width_mean, self.scale)
        if self.budget is not None:
            over = sum(factor * math.prod(units[i] for i in used) for factor, used in self.cost) / self.budget.cap - 1
            if over > 0:
                for number, log_nu in enumerate(log_nus):
                    by_width = self.budget.strength / self.budget.cap * self._cost_slope(number, units)
                    slopes[number] += by_width * soft_width_slope(self.widths[number], log_nu)

    def _prior_slope(self, width: Width, log_nu: float, mean: float, scale: float) -> float:
        above, lower = math.exp(log_nu), width.family.lower
        slope = (above + lower - mean) / scale**2
        if self.prior.folded:
            rate = 2 * (mean - lower) / scale**2
            slope += rate * _sigmoid(-rate * above)
        return above * slope / self.samples

    def _cost_slope(self, number: int, units: Sequence[int]) -> float:
        """The derivative of the cost with respect to one width."""
        return sum(
            factor * used.count(number) * math.prod(units[i] for i in used) / units[number]
            for factor, used in self.cost
            if number in used
        )


def soft_width_slope(width: Width, log_nu: float) -> float:
    """The derivative of the width before rounding with respect to log ν.

    >>> from awn import Exponential
    >>> round(soft_width_slope(Width(Exponential(rate=0.01)), math.log(0.01)), 2)   # −S⁻¹(0.1)
    -230.26
    """
    with torch.inference_mode(False), torch.enable_grad():
        stored = torch.tensor(log_nu, dtype=torch.float64, requires_grad=True)
        p = torch.tensor(1 - width.quantile, dtype=torch.float64)
        soft = width.family.inverse_survival(p, stored.exp() + width.family.lower)
        return float(torch.autograd.grad(soft, stored)[0])


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))
