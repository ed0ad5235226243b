"""Run checkpoints: the complete state of an interrupted training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from awn._version import __version__
from awn.basics.random_states import random_states, set_random_states
from awn.core.groups import find_groups
from awn.core.optimizers import Optimizers, list_optimizers
from awn.core.state import load_state_dict_
from awn.errors import CheckpointError
from awn.files.model_folder import FORMAT
from awn.files.tree import pack, unpack
from awn.files.write import read_tensors, tensor_file, write_files
from awn.parallel.collectives import rank_of
from awn.parallel.unwrap import unwrapped


class Stateful(Protocol):
    """Anything with a state dict: a scheduler, a gradient scaler, an average of weights."""

    def state_dict(self) -> dict[str, Any]:
        """Its state."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Restore its state."""


def save_run(
    path: str | Path, model: nn.Module, optimizer: Optimizers, *, extra: Any = None, **parts: Stateful
) -> None:
    """Write the complete state of a run to one file, from which it continues exactly.

    The file holds the model and its optimizer; the random states of Python, NumPy and torch; `parts`, any objects with
    a state dict (`scheduler=…, scaler=…`); and `extra`, numbers, strings, tensors, and lists and dicts of them. With a
    DistributedDataParallel, rank 0 writes; other ranks do nothing.

    >>> import awn, tempfile
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> awn.save_run(Path(tempfile.mkdtemp()) / "run.safetensors", model, optimizer, extra={"epoch": 7})
    """
    find_groups(model)  # raises for a sharded model
    if rank_of(model) > 0:
        return
    tensors: dict[str, Tensor] = {}
    state = {
        "model": dict(unwrapped(model).state_dict()),
        "optimizers": [one.state_dict() for one in list_optimizers(optimizer)],
        "kinds": [type(one).__name__ for one in list_optimizers(optimizer)],
        "parts": {name: part.state_dict() for name, part in parts.items()},
        "random": random_states(),
        "extra": extra,
    }
    description = {"format": FORMAT, "awn": __version__, "run": pack(state, "run", tensors)}
    write_files({Path(path): tensor_file(tensors, description)})


def resume_run_(path: str | Path, model: nn.Module, optimizer: Optimizers, **parts: Stateful) -> Any:
    """Restore a model, its optimizer and other parts from a file of `save_run`; returns `extra`.

    With several processes, call it on every rank. The number of ranks may differ from that of the saved run. Rank 0
    restores its random states; the other ranks keep their own.

    >>> import awn, tempfile
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> path = Path(tempfile.mkdtemp()) / "run.safetensors"
    >>> awn.save_run(path, model, optimizer, extra={"epoch": 7})
    >>> awn.resume_run_(path, model, optimizer)
    {'epoch': 7}
    """
    state = _read_run(Path(path))
    optimizers = list_optimizers(optimizer)
    _check_run(path, state, optimizers, parts)
    load_state_dict_(model, state["model"], optimizers)
    for one, saved in zip(optimizers, state["optimizers"], strict=True):
        one.load_state_dict(saved)
    for name, part in parts.items():
        part.load_state_dict(state["parts"][name])
    if rank_of(model) == 0:
        set_random_states(state["random"])
    return state["extra"]


def read_extra(path: str | Path) -> Any:
    """The `extra` of a file of `save_run`, without restoring anything."""
    return _read_run(Path(path))["extra"]


def _read_run(path: Path) -> Any:
    tensors, description = read_tensors(path)
    if not isinstance(description, dict) or description.get("format") != FORMAT or "run" not in description:
        raise CheckpointError(f"{path} is not a run that this version of awn can resume.")
    return unpack(description["run"], tensors)


def _check_run(
    path: str | Path, state: Any, optimizers: Sequence[torch.optim.Optimizer], parts: Mapping[str, Any]
) -> None:
    if len(state["optimizers"]) != len(optimizers):
        raise CheckpointError(f"{path} holds {len(state['optimizers'])} optimizers, but {len(optimizers)} were passed.")
    kinds = [type(one).__name__ for one in optimizers]
    if kinds != state["kinds"]:
        raise CheckpointError(f"{path} holds the state of {state['kinds']}, but {kinds} were passed.")
    for one, saved in zip(optimizers, state["optimizers"], strict=True):
        there = [len(group["params"]) for group in saved["param_groups"]]
        here = [len(group["params"]) for group in one.param_groups]
        if there != here:
            raise CheckpointError(
                f"{path} holds an optimizer with {there} parameters in its groups, but the one passed has {here}: "
                "build it over the same model, in the same groups."
            )
    if set(parts) != set(state["parts"]):
        raise CheckpointError(
            f"{path} holds the parts {sorted(state['parts'])}, but {sorted(parts)} were passed; pass the same ones."
        )
