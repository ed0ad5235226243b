"""An optimizer's parameter groups for a model with learned widths."""

from __future__ import annotations

from typing import Any

from torch import nn

from awn.basics.checks import check_number
from awn.core.groups import find_groups


def param_groups(
    model: nn.Module, lr: float, *, width_lr: float | None = None, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer: ν with a learning rate of its own, weight decay on weights alone.

    Biases, norms and ν are never decayed. Groups with the same options are one, since each costs time.

    >>> import awn, torch
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> optimizer = torch.optim.AdamW(awn.param_groups(model, lr=0.01, width_lr=0.003, weight_decay=0.1))
    >>> [(group["lr"], group["weight_decay"], len(group["params"])) for group in optimizer.param_groups]
    [(0.01, 0.1, 2), (0.01, 0.0, 2), (0.003, 0.0, 1)]
    """
    for name, number in (
        ("lr", lr),
        ("width_lr", lr if width_lr is None else width_lr),
        ("weight_decay", weight_decay),
    ):
        check_number(name, number, or_equal=True)
    learned = {group.width.log_nu for group in find_groups(model)}
    merged: dict[tuple[float, float], list[nn.Parameter]] = {}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # Weights first, then what is not decayed, then ν.
    for parameter in sorted(trained, key=lambda p: (p in learned, p.dim() < 2)):
        if parameter in learned:
            options = (lr if width_lr is None else width_lr, 0.0)
        else:
            options = (lr, weight_decay if parameter.dim() >= 2 else 0.0)
        merged.setdefault(options, []).append(parameter)
    return [{"params": params, "lr": rate, "weight_decay": decay} for (rate, decay), params in merged.items()]
