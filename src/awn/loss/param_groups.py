"""Parameter groups: the options that an optimizer applies to weights, biases and ν."""

from __future__ import annotations

from typing import Any

from torch import nn

from awn.basics.checks import check_number, check_units
from awn.core.groups import find_groups, require_groups
from awn.core.optimizers import HAS_PRIOR
from awn.errors import ArgumentError
from awn.loss.prior import Prior


def param_groups(
    model: nn.Module,
    lr: float,
    *,
    width_lr: float | None = None,
    weight_decay: float = 0.0,
    prior: Prior | None = None,
    n_samples: int | None = None,
) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer: a separate learning rate for ν, and weight decay on weights alone.

    The prior on the weights is a weight decay of 1/(σ²N). Given `prior` and `n_samples`, the optimizer applies it in
    its own update, at no extra cost, and `awn.objective` leaves the term out. This needs an optimizer whose decay is
    part of the gradient: SGD, Adam, RMSprop, Adagrad, NAdam, RAdam or Adadelta, but not AdamW. Gradient clipping does
    not include it. `resize_` raises an error if an optimizer would apply the prior twice or not at all. A prior on ν
    and a price stay in the objective.

    `weight_decay` does not apply to biases, norms and ν. The prior applies to biases, too. Groups with the same options
    are merged, because each group costs time.

    >>> import awn, torch
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> optimizer = torch.optim.AdamW(awn.param_groups(model, lr=0.01, width_lr=0.003, weight_decay=0.1))
    >>> [(group["lr"], group["weight_decay"], len(group["params"])) for group in optimizer.param_groups]
    [(0.01, 0.1, 2), (0.01, 0.0, 2), (0.003, 0.0, 1)]
    >>> optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.01, prior=awn.Prior(10.0), n_samples=500))
    >>> [(group["weight_decay"], len(group["params"])) for group in optimizer.param_groups]
    [(2e-05, 4), (0.0, 1)]
    """
    rates = {"lr": lr, "width_lr": lr if width_lr is None else width_lr, "weight_decay": weight_decay}
    for name, rate in rates.items():
        check_number(name, rate, or_equal=True)
    factors = _mark_prior_(model, prior, n_samples)
    learned = {group.width.log_nu for group in find_groups(model)}
    merged: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # Weights first, then parameters without decay, then ν.
    for parameter in sorted(trained, key=lambda p: (p in learned, p.dim() < 2)):
        if parameter in learned:
            options = (rates["width_lr"], 0.0, False)
        else:
            decay = weight_decay if parameter.dim() >= 2 else 0.0
            options = (lr, decay + factors.get(parameter, 0.0), parameter in factors)
        merged.setdefault(options, []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "weight_decay": decay, **({HAS_PRIOR: True} if has_prior else {})}
        for (rate, decay, has_prior), parameters in merged.items()
    ]


def _mark_prior_(model: nn.Module, prior: Prior | None, n_samples: int | None) -> dict[nn.Parameter, float]:
    """Record on the widths the decays that the optimizer applies, so that `objective` leaves them out."""
    if (prior is None) != (n_samples is None):
        raise ArgumentError(
            "prior and n_samples go together: the prior is a weight decay of 1/(σ²N). Give both or neither."
        )
    for group in find_groups(model):
        group.width.prior_decay = None
    if prior is None or n_samples is None:
        return {}
    check_units("n_samples", n_samples)
    groups = require_groups(model)
    factors = prior.weight_factors(model, groups, n_samples)
    if factors:
        for group in groups:
            group.width.prior_decay = (prior.weight_scale, n_samples)
    return factors
