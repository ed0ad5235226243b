"""The random states of Python, NumPy and torch, saved and restored."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_KEYS = 624  # of a Mersenne Twister


def random_states() -> dict[str, Any]:
    """The states of the random generators of Python, torch and, if it is imported, NumPy."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["numpy"] = (name, keys.tolist(), *rest)
    return states


def seed_torch(seed: int) -> None:
    """Seed the generators of torch.

    `torch.manual_seed` prepares a call for every kind of device that is missing, which takes as long as several
    training steps.

    >>> seed_torch(0)
    >>> first = torch.rand(())
    >>> seed_torch(0)
    >>> torch.equal(torch.rand(()), first)
    True
    """
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def set_random_states(states: Mapping[str, Any]) -> None:
    """Restore the states that `random_states` returned."""
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in states:
        numpy.random.set_state(states["numpy"])


def can_be_restored(states: Any) -> bool:
    """Whether states are complete and valid; nothing is changed.

    >>> can_be_restored(random_states()), can_be_restored({"python": (3, (1, 2), None)})
    (True, False)
    """
    try:
        random.Random().setstate(states["python"])
        torch.Generator().set_state(states["torch"])
        for state in states.get("cuda", ()):
            if not isinstance(state, Tensor) or state.dtype != torch.uint8:
                return False
        return "numpy" not in states or _is_mersenne_twister(*states["numpy"])
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return False


def _is_mersenne_twister(name: Any, keys: Any, place: Any, has_normal: Any, normal: Any) -> bool:
    """NumPy itself does not check the place, and would read beyond the keys."""
    whole = all(type(key) is int and 0 <= key < 2**32 for key in keys) and type(place) is int
    return (
        name == "MT19937"
        and len(keys) == _KEYS
        and whole
        and 0 <= place <= _KEYS
        and has_normal in (0, 1)
        and isinstance(normal, float | int)
    )
