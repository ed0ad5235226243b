"""The priors' gradient, for frameworks that call `loss.backward()` themselves and leave no place to add a term."""

from __future__ import annotations

from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from awn.core.optimizers import Optimizers, list_optimizers
from awn.errors import ArgumentError
from awn.loss.budget import Budget
from awn.loss.objective import terms
from awn.loss.prior import Prior

# What an annealed prior's times count.
Clock = Literal["epochs", "steps"]


class Scaler(Protocol):
    """A gradient scaler of mixed precision."""

    def scale(self, outputs: Tensor, /) -> Tensor:
        """The loss as it is to be differentiated."""


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
    """Add to the gradients what `awn.objective` would add to the loss; returns its terms, the data term being 0.

    Once for every step of the optimizer, whatever the number of batches whose gradients it sums up. Only parameters of
    the optimizer get a gradient. `scaler` is given where its gradients are scaled at this time.

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
    """The number of samples that a data loader draws from, where it says.

    >>> from torch.utils.data import DataLoader
    >>> count_samples(DataLoader(range(100), batch_size=8))
    100
    """
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError):
        raise ArgumentError(
            f"a {type(loader).__name__} does not say how many samples it draws from, which the prior's share of the "
            "loss goes by. Say it: n_samples=…."
        ) from None


def check_clock(clock: Any) -> None:
    """Refuse a clock that there is not."""
    if clock not in get_args(Clock):
        raise ArgumentError(f"clock must be one of {', '.join(get_args(Clock))}; got {clock!r}.")
