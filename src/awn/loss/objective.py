"""The objective: the negative ELBO divided by the number of samples, plus a budget if one is set."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from awn.basics.checks import check_units
from awn.core.groups import non_finite_tensors, require_groups
from awn.errors import ArgumentError, NonFiniteError
from awn.loss.budget import Budget
from awn.loss.prior import Prior, is_left_to_optimizer, weight_term

_DEFAULT_PRIOR = Prior()
_TERMS = ("data", "weights", "width", "budget")


def objective(
    nll: Tensor,
    model: nn.Module,
    n_samples: int,
    *,
    prior: Prior = _DEFAULT_PRIOR,
    budget: Budget | None = None,
    time: float | None = None,
) -> Tensor:
    """The loss of a step: mean NLL over the batch + (−log prior of the weights − log prior of the widths) / N.

    `nll` is the mean over the batch, so that the terms are in proportion to the ELBO of all `n_samples` samples (the
    paper's sum over the batch times N/M, all divided by N). Constants are left out, unless the prior has a `price`. An
    annealed prior needs `time`, in epochs or steps. If the optimizer applies the prior on the weights as weight decay
    (see `awn.param_groups`), the objective leaves it out. `awn.loss.terms` takes the same arguments and returns the
    terms by name.

    >>> import awn, torch
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> nll = awn.likelihood.categorical(model(torch.zeros(4, 2)), torch.tensor([0, 1, 0, 1]))
    >>> loss = awn.objective(nll, model, n_samples=1000)
    >>> loss.backward()
    """
    present = _present_terms(nll, model, n_samples, prior, budget, time)
    total = sum(list(present.values())[1:], start=nll)
    # On an accelerator, reading the loss would make the host wait at every step; resize_ detects it there.
    if nll.is_cpu and not math.isfinite(total.item()):
        raise NonFiniteError(_what_is_lost(model, present, time))
    return total


def terms(
    nll: Tensor,
    model: nn.Module,
    n_samples: int,
    *,
    prior: Prior = _DEFAULT_PRIOR,
    budget: Budget | None = None,
    time: float | None = None,
) -> dict[str, Tensor]:
    """The terms of `objective` by name: data, weights, width and budget; terms that are not in the loss are 0.

    A `price` of the weights is a part of the width term.

    >>> import awn, torch
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> terms = awn.loss.terms(torch.tensor(0.7), model, n_samples=1000)
    >>> {name: round(term.item(), 3) for name, term in terms.items()}
    {'data': 0.7, 'weights': ..., 'width': 0.0, 'budget': 0.0}
    >>> bool(torch.isclose(sum(terms.values()), awn.objective(torch.tensor(0.7), model, n_samples=1000)))
    True
    """
    present = _present_terms(nll, model, n_samples, prior, budget, time)
    return {name: present.get(name, nll.new_zeros(())) for name in _TERMS}


def _present_terms(
    nll: Tensor, model: nn.Module, n_samples: int, prior: Prior, budget: Budget | None, time: float | None
) -> dict[str, Tensor]:
    """The terms of the loss, the data term first."""
    if not isinstance(nll, Tensor) or nll.dim() != 0:
        found = f"shape {tuple(nll.shape)}" if isinstance(nll, Tensor) else repr(nll)
        raise ArgumentError(f"nll must be a scalar tensor, the mean over the batch; got {found}.")
    if not isinstance(prior, Prior) or not (budget is None or isinstance(budget, Budget)):
        raise ArgumentError(f"prior must be an awn.Prior and budget an awn.Budget or None; got {prior!r}, {budget!r}.")
    check_units("n_samples", n_samples)
    groups = require_groups(model)
    width = prior.width_term(model, groups, time)
    found_terms = {
        "data": nll,
        "weights": None
        if is_left_to_optimizer(prior, groups, n_samples)
        else weight_term(prior.weight_factors(model, groups, n_samples)),
        "width": None if width is None else width / n_samples,
        "budget": None if budget is None else budget.penalty(model, groups),
    }
    return {name: term for name, term in found_terms.items() if term is not None}


@torch.no_grad()
def _what_is_lost(model: nn.Module, present: dict[str, Tensor], time: float | None) -> str:
    terms = [f"{name} = {term.item():g}" for name, term in present.items()]
    layers = non_finite_tensors(model)
    where = (
        f"not finite: {', '.join(layers)}"
        if layers
        else "all weights are finite, so the cause is the data or the range of the output layer"
    )
    when = "" if time is None else f" at time {time:g}"
    return (
        f"the loss is not finite{when} ({', '.join(terms)}); {where}. "
        "Nothing was changed. Lower the learning rate, clip gradients, or check the data."
    )
