"""Run checkpoints: the complete state of an interrupted training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from awn._version import __version__
from awn.basics.random_states import can_be_restored, random_states, set_random_states
from awn.basics.schema import Schema, anything, entries, items, record, text, whole
from awn.core.groups import find_groups, tensor_names
from awn.core.optimizers import Optimizers, list_optimizers
from awn.core.state import load_state_dict_
from awn.errors import CheckpointError
from awn.files.model_schema import FORMAT
from awn.files.read import check_content, read_tensors
from awn.files.tree import pack, unpack
from awn.files.write import tensor_file, write_files
from awn.parallel.collectives import rank_of
from awn.parallel.unwrap import unwrapped

# What torch's optimizers keep in the shape of the parameter.
_MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer")
# A float32 counts no further by ones, but a damaged file may hold any number.
_MOST_STEPS = 2**53
# What they cannot do without, once they have made a step.
_NEEDED: dict[type[torch.optim.Optimizer], set[str]] = {
    torch.optim.Adam: {"step", "exp_avg", "exp_avg_sq"},
    torch.optim.AdamW: {"step", "exp_avg", "exp_avg_sq"},
}


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
    _check_run(path, state, model, optimizers, parts)
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
    known = isinstance(description, dict) and type(description.get("format")) is int and "run" in description
    if not known or not 1 <= description["format"] <= FORMAT:
        raise CheckpointError(f"{path} is not a run that this version of awn can resume.")
    state = unpack(description["run"], tensors)
    check_content(state, _RUN, str(path))
    if not can_be_restored(state["random"]):
        raise CheckpointError(f"{path} is damaged: its random states are not valid. Restore the file.")
    return state


def _check_run(
    path: str | Path,
    state: Any,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    parts: Mapping[str, Any],
) -> None:
    saved_shapes = {name: tensor.shape for name, tensor in state["model"].items() if isinstance(tensor, Tensor)}
    names = tensor_names(unwrapped(model))
    shapes = {tensor: saved_shapes[name] for tensor, name in names.items() if name in saved_shapes}
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
        _check_options(path, saved, one)
        _check_moments(path, saved, one, shapes)
    if set(parts) != set(state["parts"]):
        raise CheckpointError(
            f"{path} holds the parts {sorted(state['parts'])}, but {sorted(parts)} were passed; pass the same ones."
        )


def _check_options(path: str | Path, saved: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """Raise unless the saved options have the types of the optimizer's own, and the states belong to its parameters."""
    for there, here in zip(saved["param_groups"], optimizer.param_groups, strict=True):
        for name, value in here.items():
            # Later versions of torch have more switches, and fill them in themselves.
            required = value is not None and not isinstance(value, bool)
            other = there.get(name, None if required else value)
            wrong = kind_of(other) != kind_of(value) and (required or None not in (value, other))
            if name != "params" and wrong:
                raise CheckpointError(f"{path} is damaged: it gives an optimizer {name}={other!r}. Restore the file.")
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    if sorted(numbers) != list(range(len(numbers))) or not saved["state"].keys() <= set(numbers):
        raise CheckpointError(f"{path} is damaged: its optimizers hold states of other parameters. Restore the file.")


def _check_moments(
    path: str | Path, saved: Mapping[str, Any], optimizer: torch.optim.Optimizer, shapes: Mapping[Tensor, Any]
) -> None:
    """Raise unless the moments have the shapes of their parameters; torch would only find out at the next step."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    needed = _NEEDED.get(type(optimizer), set())
    for number, state in saved["state"].items():
        parameter = parameters[number]
        shape = shapes.get(parameter, parameter.shape)
        moments = [state[name] for name in _MOMENTS if isinstance(state.get(name), Tensor)]
        step = state.get("step", 0)
        counted = kind_of(step) == "number" and (not isinstance(step, Tensor) or step.numel() == 1)
        counted = counted and 0 <= step <= _MOST_STEPS
        if not needed <= state.keys() or not counted or any(moment.shape != shape for moment in moments):
            raise CheckpointError(
                f"{path} is damaged: the state of an optimizer does not fit the model. Restore the file."
            )


def kind_of(value: Any) -> Any:
    """The type of an option, where a whole number may stand for any number, and a list for a tuple.

    >>> kind_of(1) == kind_of(0.5), kind_of(True) == kind_of(1), kind_of((0.9, 0.99)) == kind_of(0.9)
    (True, False, False)
    """
    if isinstance(value, list | tuple):
        return [kind_of(entry) for entry in value]
    numeric = isinstance(value, int | float | Tensor) and not isinstance(value, bool)
    return "number" if numeric else type(value).__name__


_OPTIMIZER = record(
    {
        "state": Schema(
            "a dict", lambda state: isinstance(state, dict) and all(isinstance(own, dict) for own in state.values())
        ),
        "param_groups": items(record({"params": items(whole(0))}, others=anything())),
    },
    others=anything(),
)
_RUN = record(
    {
        "model": entries(anything()),
        "optimizers": items(_OPTIMIZER),
        "kinds": items(text()),
        "parts": entries(anything()),
        "random": entries(anything()),
        "extra": anything(),
    }
)
