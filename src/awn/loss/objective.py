"""The objective: the negative ELBO over the number of samples, and a budget on top if one is wanted."""

from __future__ import annotations

import copy
import math
from functools import cached_property

import torch
from torch import Tensor, nn

from awn.basics.checks import check_units
from awn.core.groups import non_finite_tensors, require_groups
from awn.errors import ArgumentError, NonFiniteError
from awn.loss.budget import Budget
from awn.loss.prior import Prior, WeightTerm

_DEFAULT_PRIOR, _NO_WEIGHTS = Prior(), WeightTerm({})


class Objective:
    """The loss and its terms. Call `backward()`, or `total.backward()`.

    The two give the same gradients. `backward` takes less time: autograd does not see the weights' prior, whose
    gradient is known, and the total is not even added up unless it is read. Where something must see the whole loss or
    every gradient as it comes, such as a gradient scaler or a hook, use `total`.
    """

    def __init__(
        self,
        data: Tensor,
        weights: WeightTerm = _NO_WEIGHTS,
        width: Tensor | None = None,
        budget: Tensor | None = None,
    ) -> None:
        self.data = data
        self._weights, self._width, self._budget = weights, width, budget
        #: The total but for the weights' prior.
        self.without_weights = data
        for term in (width, budget):
            if term is not None:
                self.without_weights = self.without_weights + term

    @classmethod
    def of_data(cls, nll: Tensor) -> Objective:
        """The objective of a network whose widths are fixed: the data term alone."""
        return cls(nll)

    @cached_property
    def total(self) -> Tensor:
        """The sum of all terms, a tensor that all gradients flow through."""
        weights = self._weights.tensor()
        return self.without_weights if weights is None else self.without_weights + weights

    def backward(self) -> None:
        """Add the gradients of the total to those of the parameters."""
        if self.without_weights.requires_grad:
            self.without_weights.backward()
        self._weights.add_gradient_()

    def terms(self) -> dict[str, float]:
        """Every term as a number, for logs."""
        return {name: getattr(self, name).item() for name in ("total", "data", "weights", "width", "budget")}

    @cached_property
    def weights(self) -> Tensor:
        """−log prior of the weights / N; zero without one."""
        return self._or_zero(self._weights.tensor())

    @property
    def width(self) -> Tensor:
        """−log prior of the widths / N; zero without one."""
        return self._or_zero(self._width)

    @property
    def budget(self) -> Tensor:
        """What the network costs above its budget; zero without one."""
        return self._or_zero(self._budget)

    @torch.no_grad()
    def __repr__(self) -> str:
        """The terms as numbers, which on an accelerator waits for them."""
        # Of a copy: what is made here without gradients must not be kept as the total to go backward from.
        terms = copy.copy(self).terms()
        return f"Objective({', '.join(f'{name}={value:.4g}' for name, value in terms.items())})"

    def _or_zero(self, term: Tensor | None) -> Tensor:
        return self.data.new_zeros(()) if term is None else term


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
    >>> awn.objective(nll, model, n_samples=1000)
    Objective(total=..., data=..., weights=..., width=0, budget=0)
    """
    if not isinstance(nll, Tensor) or nll.dim() != 0:
        found = f"shape {tuple(nll.shape)}" if isinstance(nll, Tensor) else repr(nll)
        raise ArgumentError(f"nll must be a tensor of one number, the mean over the batch; got {found}.")
    if not isinstance(prior, Prior) or not (budget is None or isinstance(budget, Budget)):
        raise ArgumentError(f"prior must be an awn.Prior and budget an awn.Budget or None; got {prior!r}, {budget!r}.")
    check_units("n_samples", n_samples)
    groups = require_groups(model)
    width = prior.width_term(groups, time)
    result = Objective(
        nll,
        prior.weight_term(model, groups, n_samples),
        None if width is None else width / n_samples,
        None if budget is None else budget.penalty(model, groups),
    )
    # On an accelerator the look would make the host wait at every step; there, resize_ finds out.
    if nll.is_cpu and not math.isfinite(result.without_weights.item()):
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
