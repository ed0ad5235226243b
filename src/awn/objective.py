"""The objective: the negative ELBO over the number of samples, and a budget on top if one is wanted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, nn

from awn.budget import Budget
from awn.errors import ArgumentError, NonFiniteError
from awn.groups import non_finite_tensors, require_groups
from awn.importance import check_units
from awn.prior import Prior

_DEFAULT_PRIOR = Prior()


@dataclass(frozen=True)
class Objective:
    """The loss and its terms. Call `total.backward()`."""

    total: Tensor
    data: Tensor
    weights: Tensor
    width: Tensor
    budget: Tensor

    @classmethod
    def of_data(cls, nll: Tensor) -> Objective:
        """The objective of a network whose widths are fixed: the data term alone."""
        none = nll.new_zeros(())
        return cls(nll, nll, none, none, none)

    def terms(self) -> dict[str, float]:
        """Every term as a number, for logs."""
        return {name: getattr(self, name).item() for name in ("total", "data", "weights", "width", "budget")}


def objective(
    nll: Tensor,
    model: nn.Module,
    n_samples: int,
    *,
    prior: Prior = _DEFAULT_PRIOR,
    budget: Budget | None = None,
    time: float | None = None,
) -> Objective:
    """The loss of a step: mean NLL over the batch + (−log prior of the weights − log prior of the widths) / N.

    `nll` is the mean over the batch, so that the terms stand as in the ELBO of the whole set of `n_samples`
    (the paper's sum over the batch times N/M, all divided by N). Constants are left out.
    `time`, in epochs or steps, is what an annealed prior goes by.

    >>> import awn, torch
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> nll = awn.likelihood.categorical(model(torch.zeros(4, 2)), torch.tensor([0, 1, 0, 1]))
    >>> sorted(awn.objective(nll, model, n_samples=1000).terms())
    ['budget', 'data', 'total', 'weights', 'width']
    """
    if not isinstance(nll, Tensor) or nll.dim() != 0:
        found = f"shape {tuple(nll.shape)}" if isinstance(nll, Tensor) else repr(nll)
        raise ArgumentError(f"nll must be a tensor of one number, the mean over the batch; got {found}.")
    if not isinstance(prior, Prior) or not isinstance(budget, Budget | None):
        raise ArgumentError(f"prior must be an awn.Prior and budget an awn.Budget or None; got {prior!r}, {budget!r}.")
    check_units("n_samples", n_samples)
    groups = require_groups(model)
    none = nll.new_zeros(())
    weights, width = prior.weight_term(model, groups, n_samples), prior.width_term(groups, time)
    penalty = None if budget is None else budget.penalty(model, groups)
    total = nll
    if weights is not None:
        total = total + weights
    if width is not None:
        width = width / n_samples
        total = total + width
    if penalty is not None:
        total = total + penalty
    result = Objective(
        total,
        nll,
        none if weights is None else weights,
        none if width is None else width,
        none if penalty is None else penalty,
    )
    # On an accelerator the look would make the host wait at every step; there, resize_ finds out.
    if total.device.type == "cpu" and not math.isfinite(total.item()):
        raise NonFiniteError(_what_is_lost(model, result, time))
    return result


def _what_is_lost(model: nn.Module, result: Objective, time: float | None) -> str:
    terms = [f"{name} = {value}" for name, value in result.terms().items() if name != "total"]
    layers = non_finite_tensors(model)
    where = (
        f"not finite: {', '.join(layers)}"
        if layers
        else "all weights are finite, so the data or the output layer's range is to blame"
    )
    when = "" if time is None else f" at time {time:g}"
    return (
        f"the loss is not finite{when} ({', '.join(terms)}); {where}. "
        "Nothing was changed: lower the learning rate, clip gradients, or look at the data."
    )
