"""The gradient of the priors, for frameworks that call `loss.backward()` themselves."""

from __future__ import annotations

from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from awn.core.optimizers import Optimizers, list_optimizers
from awn.errors import ArgumentError
from awn.loss.budget import Budget
from awn.loss.objective import terms
from awn.loss.prior import Prior

# The unit of time of an annealed prior.
Clock = Literal["epochs", "steps"]


class Scaler(Protocol):
    """A gradient scaler of mixed precision."""

    def scale(self, outputs: Tensor, /) -> Tensor:
        """The scaled loss, to be differentiated."""


def add_prior_gradient_(
    model: nn.Module,
    optimizer: Optimizers,
    *,
    n_samples: int,
    prior: Prior,
    budget: Budget | None = None,
    time: float | None = None,
    scaler: Scaler | None = None,
) -> dict[str, Tensor]:
    """Add the gradient of the terms that `awn.objective` adds to the loss; returns the terms, with data term 0.

    Call it once per optimizer step, also with gradient accumulation. Only parameters of the optimizer get a gradient.
    Pass `scaler` if the gradients are scaled at this time.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> terms = add_prior_gradient_(model, optimizer, n_samples=100, prior=awn.Prior(weight_scale=2.0))
    >>> weight = model.hidden[0].weight
    >>> torch.allclose(weight.grad, weight / (2.0**2 * 100))
    True
    """
    nothing = next(model.parameters()).new_zeros((), dtype=torch.float32)
    added = terms(nothing, model, n_samples, prior=prior, budget=budget, time=time)
    loss = torch.stack(list(added.values())).sum()
    trained = [p for one in list_optimizers(optimizer) for group in one.param_groups for p in group["params"]]
    trained = [parameter for parameter in trained if parameter.requires_grad]
    if loss.requires_grad and trained:
        torch.autograd.backward(loss if scaler is None else scaler.scale(loss), inputs=trained)
    return added


def count_samples(loader: Any) -> int:
    """The size of a data loader's data set.

    >>> from torch.utils.data import DataLoader
    >>> count_samples(DataLoader(range(100), batch_size=8))
    100
    """
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError):
        raise ArgumentError(
            f"the size of the data set of a {type(loader).__name__} is unknown, but the prior's weight in the loss "
            "depends on it. Pass n_samples=…."
        ) from None


def check_clock(clock: Any) -> None:
    """Raise for an unknown clock."""
    if clock not in get_args(Clock):
        raise ArgumentError(f"clock must be one of {', '.join(get_args(Clock))}; got {clock!r}.")
