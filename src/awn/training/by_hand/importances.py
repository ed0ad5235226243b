"""The importances that hidden layers' units have, and the gradients of their log ν.

Two tables have a row per hidden layer and a column per slot, the row of ones included, whose importance is 1: the
importances f_j, and q_j = f_j dL/df_j, which the backward pass fills in. It is Σ w dL/dw over the weights that read a
unit, and Σ g dL/dg over the samples, so it needs no gradient of f. Then dL/dlog ν = Σ q_j · dlog f_j/dlog ν.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from awn.core.families import Exponential
from awn.core.width import Width


class Importances(ABC):
    """The importances `f` of hidden layers, whose widths may be one and the same, and `q` = f dL/df."""

    def __init__(self, widths: Sequence[Width], slots: Sequence[int], lead: int, dtype: torch.dtype) -> None:
        self.widths = widths
        most = max(slots)
        self.f = torch.zeros(len(widths), lead + most, dtype=dtype)
        self.f[:, :lead] = 1
        self.q = torch.zeros_like(self.f)
        self._units_f, self._units_q = self.f[:, lead:], self.q[:, lead:]
        self._numbers = torch.arange(most, dtype=dtype)

    @abstractmethod
    def set_units(self, layer: int, units: int) -> None:
        """Make a layer's slots from `units` on inert."""

    @abstractmethod
    def update(self, log_nus: Sequence[float]) -> None:
        """Compute `f` at these log ν, one per layer."""

    @abstractmethod
    def slopes(self) -> list[float]:
        """dL/dlog ν per layer, from `q`, at the log ν of the last update."""


class ExponentialImportances(Importances):
    """In a closed form: log f_j = −ν j, and on the mass and anchored scales + log(1 − e^−ν), up to a constant.

    Then dL/dlog ν = ν (c Σ q_j − Σ j q_j), where c = 1/(e^ν − 1) or 0.
    """

    def __init__(self, widths: Sequence[Width], slots: Sequence[int], lead: int, dtype: torch.dtype) -> None:
        super().__init__(widths, slots, lead, dtype)
        self._f, self._q, self._index = self._units_f.numpy(), self._units_q.numpy(), self._numbers.numpy()
        self._sums = np.stack([np.ones_like(self._index), self._index], 1)  # for Σ q and Σ j q
        # Per layer: −ν and the importance of the first unit, as arrays of one number, which NumPy reads fastest, and
        # views of the active units' numbers and importances.
        self._factors = [(np.ones((), self._f.dtype), np.ones((), self._f.dtype)) for _ in widths]
        self._active = [(self._index, row) for row in self._f]
        self._mass = [width.family.scale != "unit" for width in widths]
        self._constants = [width.amplitude * width.family.anchor for width in widths]
        self._nus = [0.0] * len(widths)

    def set_units(self, layer: int, units: int) -> None:
        """See `Importances`."""
        self._active[layer] = self._index[:units], self._f[layer, :units]
        self._f[layer, units:] = 0

    def update(self, log_nus: Sequence[float]) -> None:
        """See `Importances`."""
        for layer, log_nu in enumerate(log_nus):
            self._nus[layer] = nu = math.exp(min(log_nu, 700.0))  # e^710 overflows a double
            (falling, first), (index, f) = self._factors[layer], self._active[layer]
            falling[...] = -nu
            first[...] = self._constants[layer] * (-math.expm1(-nu) if self._mass[layer] else 1.0)
            np.multiply(index, falling, f)
            np.exp(f, f)
            np.multiply(f, first, f)

    def slopes(self) -> list[float]:
        """See `Importances`."""
        sums = np.dot(self._q, self._sums).tolist()
        return [
            nu * ((total / math.expm1(nu) if 0 < nu < 700 else 0.0) - moment if mass else -moment)
            for nu, mass, (total, moment) in zip(self._nus, self._mass, sums, strict=True)
        ]


class FamilyImportances(Importances):
    """Of any families that state their slope."""

    def __init__(self, widths: Sequence[Width], slots: Sequence[int], lead: int, dtype: torch.dtype) -> None:
        super().__init__(widths, slots, lead, dtype)
        self._active = torch.zeros_like(self._units_f)
        self._slope = torch.zeros_like(self._units_f)

    def set_units(self, layer: int, units: int) -> None:
        """See `Importances`."""
        self._active[layer, :units] = self.widths[layer].amplitude
        self._active[layer, units:] = 0

    def update(self, log_nus: Sequence[float]) -> None:
        """See `Importances`."""
        above = torch.tensor(log_nus, dtype=self.f.dtype).exp_()
        for layer, width in enumerate(self.widths):
            computed = width.family.importance_and_slope(self._numbers, above[layer] + width.family.lower)
            assert computed is not None  # `why_not` has looked
            self._units_f[layer] = computed[0]
            self._slope[layer] = computed[1] * above[layer]  # dν / dlog ν
        # d log f / d log ν; where f is 0, so is q.
        self._slope.div_(self._units_f).masked_fill_(self._units_f == 0, 0)
        self._units_f.mul_(self._active)

    def slopes(self) -> list[float]:
        """See `Importances`."""
        found: list[float] = (self._units_q * self._slope).sum(1).tolist()
        return found


def make_importances(
    widths: Sequence[Width], units: Sequence[int], slots: Sequence[int], lead: int, dtype: torch.dtype
) -> Importances:
    """The importances of hidden layers with these widths.

    >>> importances = make_importances([Width(Exponential.for_units(2, scale="unit"))], [2], [4], 1, torch.float32)
    >>> importances.update([0.0])
    >>> importances.f
    tensor([[1.0000, 1.0000, 0.3679, 0.0000, 0.0000]])
    """
    closed = all(type(width.family) is Exponential for width in widths)
    made = (ExponentialImportances if closed else FamilyImportances)(widths, slots, lead, dtype)
    for layer, number in enumerate(units):
        made.set_units(layer, number)
    return made
