"""Optimizers: checks that one fits a model whose widths change."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adadelta, Adagrad, Adam, NAdam, Optimizer, RAdam, RMSprop, Rprop

from awn.core.groups import WidthGroup, tensor_names
from awn.errors import ArgumentError, OptimizerError

Optimizers: TypeAlias = Optimizer | Iterable[Optimizer] | None

# Marks a parameter group whose weight decay includes the prior on the weights.
HAS_PRIOR = "has_weight_prior"
# Optimizers that add weight decay to the gradient. Decoupled weight decay is not equivalent to a prior.
_DECAY_IN_GRADIENT = (SGD, Adam, RMSprop, Adagrad, NAdam, RAdam, Adadelta)


def list_optimizers(optimizer: Optimizers) -> list[Optimizer]:
    """One optimizer, several, or None, as a list; raises for optimizers that cannot be resized.

    >>> list_optimizers(None)
    []
    """
    if optimizer is None:
        return []
    optimizers = list(optimizer) if isinstance(optimizer, Iterable) else [optimizer]
    for one in optimizers:
        if not isinstance(one, Optimizer):
            raise ArgumentError(f"optimizer must be a torch optimizer, several, or None; got {type(one).__name__}.")
        if isinstance(one, Rprop):
            raise OptimizerError("Rprop keeps a step size for every weight, and new units have none. Use Adam or SGD.")
        if isinstance(one, LBFGS):
            raise OptimizerError(
                "LBFGS keeps the history of all parameters in one flat vector, so its state cannot follow a change of "
                "width. Use Adam or SGD, or finalize the model and continue with LBFGS."
            )
    return optimizers


def check_optimizers(model: nn.Module, tensors: Sequence[Tensor], optimizers: Sequence[Optimizer]) -> None:
    """Raise unless every trained tensor is in an optimizer, and all its state can be resized."""
    if not optimizers:
        return
    held = {parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]}
    trained = [tensor for tensor in tensors if isinstance(tensor, nn.Parameter) and tensor.requires_grad]
    missing = [tensor for tensor in trained if tensor not in held]
    if missing:
        raise OptimizerError(
            f"The optimizer does not hold {tensor_names(model)[missing[0]]!r}; it was probably built before the layer "
            "became adaptive, or before a state dict of another width was loaded. Build it afterwards, or load with "
            "awn.advanced.load_state_dict_(model, state, optimizer). If several optimizers share the model, pass them "
            "all."
        )
    for optimizer in optimizers:
        for tensor in trained:
            for key, value in optimizer.state.get(tensor, {}).items():
                if not _can_follow(value, tensor):
                    raise OptimizerError(
                        f"{type(optimizer).__name__} keeps {key!r} for {tensor_names(model)[tensor]!r} in a form "
                        f"that is neither a number nor of the parameter's shape {tuple(tensor.shape)}, so it cannot "
                        "follow a change of width. Use an optimizer with state per weight, such as Adam or SGD."
                    )


def check_prior_decay(groups: Sequence[WidthGroup], optimizers: Sequence[Optimizer]) -> None:
    """Raise unless the prior on the weights is applied once: by the objective, or by the optimizer as decay."""
    expected = any(group.width.prior_decay is not None for group in groups)
    holding = [
        (optimizer, options) for optimizer in optimizers for options in optimizer.param_groups if HAS_PRIOR in options
    ]
    if expected and not holding:
        raise OptimizerError(
            "awn.param_groups(…, prior=…) left the prior on the weights to an optimizer, but this one was not built "
            "from those groups, so nothing would apply the prior. Build it from them, or call awn.param_groups again "
            "without prior."
        )
    if holding and not expected:
        raise OptimizerError(
            "this optimizer applies the prior on the weights as weight decay, and the objective applies it too: "
            "awn.param_groups was called again without prior. Build the optimizer from the latest groups."
        )
    for optimizer, options in holding:
        if not isinstance(optimizer, _DECAY_IN_GRADIENT) or options.get("decoupled_weight_decay"):
            raise OptimizerError(
                f"{type(optimizer).__name__} decouples weight decay from the gradient, or is unknown to awn, so its "
                "weight decay is not the prior on the weights. Use Adam or SGD, or leave prior out of "
                "awn.param_groups: the objective then includes the term."
            )


def _can_follow(value: Any, parameter: Tensor) -> bool:
    if isinstance(value, Tensor):
        return value.shape == parameter.shape or value.dim() == 0
    return value is None or isinstance(value, bool | int | float | str)


def warn_of_decay(groups: Sequence[WidthGroup], optimizers: Sequence[Optimizer]) -> None:
    """Warn if weight decay pulls log ν to 0, an arbitrary width. AdamW decays by default."""
    learned = {group.width.log_nu: group.name for group in groups}
    decayed = [
        learned[parameter]
        for optimizer in optimizers
        for options in optimizer.param_groups
        if options.get("weight_decay")
        for parameter in options["params"]
        if parameter in learned
    ]
    if decayed:
        warnings.warn(
            f"the optimizer's weight decay pulls at the learned width of {', '.join(map(repr, decayed))}. "
            "Leave it out: build the optimizer with awn.param_groups(model, lr, weight_decay=…).",
            stacklevel=4,
        )
