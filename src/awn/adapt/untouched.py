"""Untouched: whatever runs, a model and the random states are as they were in the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from awn.basics.random_states import random_states, set_random_states


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Undo what happens to a model inside: attributes, batch statistics, random numbers that are drawn.

    Recordings run on copies, but a forward may reach the model itself, by a closure. Batch norms change their
    statistics without counting a version of the tensor, so values are compared.

    >>> layer = nn.Dropout()
    >>> with untouched(layer):
    ...     layer.note, layer.training = torch.rand(2), False
    >>> layer.training, hasattr(layer, "note")
    (True, False)
    """
    containers: dict[int, tuple[Any, Any]] = {}
    tensors: dict[int, tuple[Tensor, Tensor]] = {}
    for module in model.modules():
        _note(module.__dict__, containers, tensors)
    states = random_states()
    try:
        yield
    finally:
        set_random_states(states)
        for container, content in containers.values():
            _refill_(container, content)
        with torch.no_grad():
            for tensor, values in tensors.values():
                if not torch.equal(tensor, values):
                    tensor.copy_(values)


def _note(value: Any, containers: dict[int, tuple[Any, Any]], tensors: dict[int, tuple[Tensor, Tensor]]) -> None:
    """Take down a container with all that it contains, and every tensor that a forward may write to."""
    if isinstance(value, dict | list | set) and id(value) not in containers:
        containers[id(value)] = value, value.copy()
        for one in value.values() if isinstance(value, dict) else value:
            _note(one, containers, tensors)
    elif isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and not value.is_inference():
        tensors[id(value)] = value, value.detach().clone()


def _refill_(container: Any, content: Any) -> None:
    """Give a container its content back, if it has another: in place, for handles of hooks know these very objects."""
    if _identity(container) == _identity(content):
        return
    container.clear()
    if isinstance(container, list):
        container.extend(content)
    else:
        container.update(content)


def _identity(container: Any) -> Any:
    if isinstance(container, dict):
        return [(key, id(value)) for key, value in container.items()]
    return list(map(id, container)) if isinstance(container, list) else set(map(id, container))
