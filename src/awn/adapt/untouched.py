"""Untouched: run the forward of a model, or trace it, and leave everything as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from awn.basics.random_states import random_states, set_random_states


@contextlib.contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """What a forward inside does to the model is undone: attributes it sets, batch statistics, random numbers it draws.

    >>> layer = nn.Dropout()
    >>> with untouched(layer):
    ...     layer.note, layer.training = torch.rand(2), False
    >>> layer.training, hasattr(layer, "note")
    (True, False)
    """
    containers: dict[int, tuple[Any, Any]] = {}
    tensors: dict[int, tuple[Tensor, int, Tensor]] = {}
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
            for tensor, version, values in tensors.values():
                if tensor._version != version:
                    tensor.copy_(values)


def _note(value: Any, containers: dict[int, tuple[Any, Any]], tensors: dict[int, tuple[Tensor, int, Tensor]]) -> None:
    """Take down a container with all that it contains, and every tensor that a forward may write to."""
    if isinstance(value, dict | list | set) and id(value) not in containers:
        containers[id(value)] = value, value.copy()
        for one in value.values() if isinstance(value, dict) else value:
            _note(one, containers, tensors)
    elif isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and not value.is_inference():
        tensors[id(value)] = value, value._version, value.detach().clone()


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
