"""The model inside its wrappers: DistributedDataParallel, torch.compile."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unwrapped(model: nn.Module) -> nn.Module:
    """The model without its wrappers: DistributedDataParallel and torch.compile.

    >>> import torch
    >>> model = nn.Linear(2, 2)
    >>> unwrapped(model) is unwrapped(torch.compile(model, backend="eager")) is model
    True
    """
    parallel = parallel_of(model)
    return uncompiled(model if parallel is None else parallel.module)


def uncompiled(model: nn.Module) -> nn.Module:
    """The original of a model that torch.compile returned; any other model is returned as it is.

    >>> import torch
    >>> model = nn.Linear(2, 2)
    >>> uncompiled(torch.compile(model, backend="eager")) is model
    True
    """
    return model._modules.get("_orig_mod") or model


def parallel_of(model: nn.Module) -> DistributedDataParallel | None:
    """The DistributedDataParallel around a model, compiled or not; None without one.

    >>> parallel_of(nn.Linear(2, 2))
    """
    outer = uncompiled(model)
    # The name first: this runs several times per step, and isinstance is slow for a class with an abstract base.
    return outer if "module" in outer._modules and isinstance(outer, DistributedDataParallel) else None
