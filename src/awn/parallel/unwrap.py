"""The model inside its wrappers: DistributedDataParallel, torch.compile."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, out of the DistributedDataParallel that it may be in, and of what torch.compile returned.

    >>> import torch
    >>> model = nn.Linear(2, 2)
    >>> unwrapped(model) is unwrapped(torch.compile(model, backend="eager")) is model
    True
    """
    parallel = parallel_of(model)
    return uncompiled(model if parallel is None else parallel.module)


def uncompiled(model: nn.Module) -> nn.Module:
    """What torch.compile was given, if the model is what it returned.

    >>> import torch
    >>> model = nn.Linear(2, 2)
    >>> uncompiled(torch.compile(model, backend="eager")) is model
    True
    """
    return model._modules.get("_orig_mod") or model


def parallel_of(model: nn.Module) -> DistributedDataParallel | None:
    """The DistributedDataParallel that a model is given in, which torch.compile may have been given; None without one.

    >>> parallel_of(nn.Linear(2, 2))
    """
    outer = uncompiled(model)
    return outer if isinstance(outer, DistributedDataParallel) else None
