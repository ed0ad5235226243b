"""Known importances: computed once per step for all layers together, with their slopes.

With autograd alone, an importance takes nine small operations per layer, forward and backward. In a small network they
cost more than the matrix products. But log ν is one number per layer, and families have their slopes in closed form. So
the importances of all layers are computed together as soon as their ν is known, and autograd sees a single operation.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from awn.core.importance import Importance


class Asked(NamedTuple):
    """A layer whose importance is to be computed.

    `units` numbers its slots from 0. `active` is 0 for inert slots and the amplitude for active ones.
    """

    family: Importance
    log_nu: float
    units: Tensor
    active: Tensor


@dataclass(frozen=True, eq=False)
class Known:
    """The importance of a layer and its derivative with respect to log ν, at one value of ν."""

    log_nu: float
    family: Importance
    importance: Tensor
    slope: Tensor


class KnownImportance(torch.autograd.Function):
    """The importance as a function of log ν. `traced` computes it by single operations, for higher derivatives."""

    @staticmethod
    def forward(ctx: Any, log_nu: Tensor, known: Known, traced: Any) -> Tensor:
        """Return the known importance."""
        ctx.save_for_backward(log_nu)
        ctx.slope, ctx.traced = known.slope, traced
        return known.importance.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        """Gradient · slope."""
        if torch.is_grad_enabled():  # create_graph=True
            (log_nu,) = ctx.saved_tensors
            return (*torch.autograd.grad(ctx.traced(log_nu), log_nu, gradients[0], create_graph=True), None, None)
        return torch.dot(gradients[0], ctx.slope), None, None


def compute_known(layers: Sequence[Asked]) -> list[Known | None]:
    """The importances of layers, with slopes; None for a family without a slope.

    >>> from awn.core.importance import Exponential
    >>> (known,) = compute_known([Asked(Exponential(scale="unit"), 0.0, torch.arange(3.0), torch.ones(3))])
    >>> known.importance
    tensor([1.0000, 0.3679, 0.1353])
    """
    found: list[Known | None] = [None] * len(layers)
    alike: dict[Any, list[int]] = {}
    for number, layer in enumerate(layers):
        alike.setdefault((_without_start(layer.family), layer.units.dtype), []).append(number)
    # Autograd cannot use tensors made in inference mode, and these may outlive it.
    with torch.inference_mode(False), torch.no_grad():
        for (family, dtype), numbers in alike.items():
            longest = max((layers[number].units for number in numbers), key=len)
            above = torch.tensor([[layers[number].log_nu] for number in numbers], dtype=dtype).exp_()
            computed = family.importance_and_slope(longest, above + family.lower if family.lower else above)
            if computed is None:
                continue
            importance, slope = computed[0], computed[1] * above  # dν / d log ν
            for row, number in enumerate(numbers):
                layer, slots = layers[number], len(layers[number].active)
                found[number] = Known(
                    layer.log_nu,
                    layer.family,
                    importance[row, :slots] * layer.active,
                    slope[row, :slots] * layer.active,
                )
    return found


@functools.lru_cache(maxsize=256)
def _without_start(family: Importance) -> Importance:
    """The family with a fixed initial value, so that layers that differ only in it are computed together."""
    return family.starting_at(family.lower + 1.0)
