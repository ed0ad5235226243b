"""Copies of a model, on which everything is tried."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

from awn.adapt.operation import tensors_in
from awn.core.attention import free_heads_
from awn.errors import ArgumentError

ModelT = TypeVar("ModelT", bound=nn.Module)


def copied(model: ModelT) -> ModelT:
    """A deep copy, whose attention may have any number of heads.

    Of results of a forward that the model holds, such as a weight that a hook computes, it has the values.

    >>> layer = nn.Linear(2, 2)
    >>> layer.last = layer.weight * 2
    >>> copied(layer).last.requires_grad
    False
    """
    held = [tensor for module in model.modules() for tensor in tensors_in(vars(module)) if not tensor.is_leaf]
    memo = {id(tensor): tensor.detach().clone() for tensor in held}
    try:
        twin = copy.deepcopy(model, memo)
    except Exception as error:
        raise ArgumentError(
            f"{type(model).__name__} cannot be copied, and awn tries everything on a copy: {error}"
        ) from error
    for module in twin.modules():
        free_heads_(module)
    return twin
