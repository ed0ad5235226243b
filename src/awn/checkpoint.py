"""Checkpoints: a model as a folder, a whole run as a file. Neither holds a pickle.

The folder has `model.safetensors`, which is complete in itself, and `config.json`, its description for people to read.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from awn._version import __version__
from awn.axis import Axis
from awn.distributed import rank_of, unwrapped
from awn.errors import CheckpointError
from awn.files import json_file, read_tensors, tensor_file, unfinished_name, write_files
from awn.groups import connect_, find_groups, is_width_entry, plain_name, require_groups
from awn.importance import Exponential, Importance, PowerLaw, Sigmoid
from awn.mlp import AdaptiveMLP
from awn.optimizers import Optimizers, list_optimizers
from awn.state import check_shapes, follow_state_dicts_, load_state_dict_
from awn.tree import pack, unpack
from awn.width import Width, as_options

FORMAT = 1
Config = dict[str, Any]


class Stateful(Protocol):
    """Anything with a state dict: a scheduler, a gradient scaler, an average of weights."""

    def state_dict(self) -> dict[str, Any]:
        """What it needs to go on."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Go on from there."""


def save(model: nn.Module, folder: str | Path) -> None:
    """Write a model's weights, widths and settings to a folder, as config.json and model.safetensors.

    A model in a DistributedDataParallel is written by rank 0, without the wrapper; other ranks do nothing.

    >>> import awn, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> awn.save(awn.AdaptiveMLP(2, 2), folder)
    >>> awn.widths(awn.load(folder))
    {'hidden.0': 231}
    """
    require_groups(model)
    if rank_of(model) > 0:
        return
    model = unwrapped(model)
    config = describe(model)
    content = tensor_file(dict(model.state_dict()), config)
    write_files({Path(folder) / "model.safetensors": content, Path(folder) / "config.json": json_file(config)})


def load(folder: str | Path, model: nn.Module | None = None, *, families: Iterable[type[Importance]] = ()) -> nn.Module:
    """The model of a folder that `save` wrote.

    An `AdaptiveMLP` is built anew. For any other model pass one of the same architecture: it may be plain, with hidden
    layers of any size; it is made adaptive, filled, and returned. `families` are importance families of your own.

    >>> import awn, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> awn.save(awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(20)), folder)
    >>> awn.widths(awn.load(folder))
    {'hidden.0': 20}
    """
    return rebuild(*read_model(folder), model, families=families)


def read_model(folder: str | Path) -> tuple[dict[str, Tensor], Config]:
    """The tensors and the description in a folder that `save` wrote."""
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}.")
    tensors, config = read_tensors(folder / "model.safetensors")
    _check_config(folder, config)
    return tensors, config


def rebuild(
    tensors: Mapping[str, Tensor],
    config: Config,
    model: nn.Module | None = None,
    *,
    families: Iterable[type[Importance]] = (),
) -> nn.Module:
    """The model that has a description by `describe` and these tensors.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> awn.widths(rebuild(model.state_dict(), describe(model)))
    {'hidden.0': 231}
    """
    own: list[type[Importance]] = [Exponential, PowerLaw, Sigmoid, *families]
    known = {family.__name__: family for family in own}
    importances = [_family(group, known) for group in config["groups"]]
    if model is None:
        model = _build(config, tensors)
    elif not find_groups(model):
        _connect_as(model, config["groups"], tensors)
    else:
        _check_same_kind(model, config)
    load_state_dict_(model, tensors)
    groups = {group.name: group for group in find_groups(model)}
    for described, importance in zip(config["groups"], importances, strict=True):
        width = groups[described["name"]].width
        width.family = importance
        for name, value in described["width"].items():
            setattr(width, name, value)
        width.set_units(width.units, width.capacity)  # by its amplitude
    return model


def save_run(
    path: str | Path, model: nn.Module, optimizer: Optimizers, *, extra: Any = None, **parts: Stateful
) -> None:
    """Write all that a run needs to go on as if it had never stopped: one file, replaced whole.

    Besides the model and its optimizer: the random states of Python, NumPy and torch; `parts`, anything with a state
    dict (`scheduler=…, scaler=…`); and `extra`, numbers, strings, tensors, and lists and dicts of them. A run of
    several processes, whose model is in a DistributedDataParallel, is written by rank 0; other ranks do nothing.

    >>> import awn, tempfile
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> awn.save_run(Path(tempfile.mkdtemp()) / "run.safetensors", model, optimizer, extra={"epoch": 7})
    """
    find_groups(model)  # which refuses a model that is spread over the ranks
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
    """Bring a model, its optimizer and other parts to where `save_run` left them; returns `extra`.

    Of several processes every one calls it; they may be more or fewer than those of the run that was saved. The random
    states are rank 0's, and the other ranks keep their own.

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
    """What `save_run` was given as `extra`, with nothing else read into anything."""
    return _read_run(Path(path))["extra"]


def _read_run(path: Path) -> Any:
    tensors, description = read_tensors(path)
    if not isinstance(description, dict) or description.get("format") != FORMAT or "run" not in description:
        raise CheckpointError(f"{path} is not a run that this version of awn can resume.")
    return unpack(description["run"], tensors)


def random_states() -> dict[str, Any]:
    """The states of the random generators of Python, torch, and NumPy if it is in use."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["numpy"] = (name, keys.tolist(), *rest)
    return states


def set_random_states(states: Mapping[str, Any]) -> None:
    """Set the random generators to states that `random_states` read."""
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in states:
        numpy.random.set_state(states["numpy"])


def describe(model: nn.Module) -> Config:
    """A model's widths and axes as data: what `save` writes beside the weights."""
    model = unwrapped(model)
    groups = require_groups(model)
    paths = {module: path for path, module in model.named_modules()}
    described: Config = {"type": type(model).__name__}
    if isinstance(model, AdaptiveMLP):
        if isinstance(model.options["activation"], nn.Module):
            described["activation"] = repr(model.options["activation"])
        described["options"] = {key: value for key, value in model.options.items() if not isinstance(value, nn.Module)}
    return {
        "format": FORMAT,
        "awn": __version__,
        "model": described,
        "groups": [
            {
                "name": group.name,
                "units": group.width.units,
                "family": {
                    "type": type(group.width.family).__name__,
                    **dataclasses.asdict(group.width.family),
                },
                "width": as_options(group.width),
                "axes": [_describe_axis(axis, paths) for axis in group.axes],
            }
            for group in groups
        ],
    }


def _plain(options: Mapping[str, Any]) -> Config:
    """Options with NumPy's numbers as Python's, which JSON knows."""
    return {name: float(value) if isinstance(value, Real) else value for name, value in options.items()}


def _describe_axis(axis: Axis, paths: Mapping[nn.Module, str]) -> Config:
    fields = {field.name: getattr(axis, field.name) for field in dataclasses.fields(axis)}
    return {**fields, "module": paths[axis.module]}


def _check_config(folder: Path, config: Any) -> None:
    """The description in model.safetensors must be ours, and config.json must say the same."""
    if not isinstance(config, dict) or config.get("format") != FORMAT or "groups" not in config:
        raise CheckpointError(f"{folder} was not written by awn.save, or by a version that this one cannot read.")
    readable = folder / "config.json"
    # Where a save was stopped between its last two moves, both files are whole, and one has not its name yet.
    if config in (_read_json(readable), _read_json(unfinished_name(readable))):
        return
    if _read_json(readable) is None:
        raise CheckpointError(f"{readable} is missing or cannot be read as JSON. Save the model again, or restore it.")
    raise CheckpointError(
        f"{readable} differs from the description inside model.safetensors: one of the two was edited, or belongs "
        "to another model. Save the model again, or restore the file."
    )


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _build(config: Config, tensors: Mapping[str, Tensor]) -> AdaptiveMLP:
    described = config["model"]
    if described["type"] != AdaptiveMLP.__name__:
        raise CheckpointError(f"the folder holds a {described['type']}; pass one to fill: awn.load(folder, model).")
    if "activation" in described:
        raise CheckpointError(
            f"the network was built with an activation module, {described['activation']}, which is code and not in the "
            "folder. Build an AdaptiveMLP with it and pass that: awn.load(folder, model)."
        )
    # Of one unit a layer: the state dict brings the widths.
    model = AdaptiveMLP(**described["options"], importance=Exponential.for_units(1))
    return model.to(next(tensor.dtype for name, tensor in tensors.items() if name.endswith("weight")))


def _check_same_kind(model: nn.Module, config: Config) -> None:
    """A model that is adaptive already must have the groups, and an AdaptiveMLP the options, of the saved one."""
    here, there = ([group["name"] for group in each["groups"]] for each in (describe(model), config))
    if here != there:
        raise CheckpointError(
            f"the model's learned widths are {here}, those in the folder {there}. Nothing was loaded."
        )
    saved = config["model"].get("options")
    if isinstance(model, AdaptiveMLP) and saved is not None:
        other = [name for name, value in saved.items() if model.options[name] != value]
        if other:
            raise CheckpointError(
                f"the saved network has {other[0]}={saved[other[0]]!r}, the one passed {other[0]}="
                f"{model.options[other[0]]!r}. Build it with the same options. Nothing was loaded."
            )


def _connect_as(model: nn.Module, groups: Sequence[Config], tensors: Mapping[str, Tensor]) -> None:
    """Make a plain model adaptive as described; everything is looked up before the first change."""
    modules = dict(model.named_modules())
    connections = []
    governed: dict[str, list[int]] = {}
    for group in groups:
        axes = []
        for described in group["axes"]:
            module, name = modules.get(described["module"]), f"{described['module']}.{described['name']}".lstrip(".")
            if module is None or not isinstance(getattr(module, described["name"], None), Tensor):
                raise CheckpointError(
                    f"the model has no {name}, which the saved one had: it is of another architecture. "
                    "It was left as it was."
                )
            axes.append(Axis(**{**described, "module": module}))
            governed.setdefault(name, []).append(described["dim"])
        size = axes[0].tensor.shape[axes[0].dim] // axes[0].repeat
        like = axes[0].tensor
        width = Width(Exponential.for_units(1), **group["width"], device=like.device, dtype=like.dtype)
        width.set_units(size, size)
        connections.append((width, axes))
    # A tensor may have several names; and parametrizations of others, such as spectral norm, stay as they are.
    held = model.state_dict(keep_vars=True)
    dims = {id(held[name]): axes for name, axes in governed.items()}
    governed = {name: dims[id(tensor)] for name, tensor in held.items() if id(tensor) in dims}
    plain = {name: plain_name(name) for name in tensors if not is_width_entry(name)}
    names = {name: short if short in governed else name for name, short in plain.items()}
    check_shapes(held, {short: tensors[name] for name, short in names.items()}, governed)
    for width, axes in connections:
        connect_(width, axes)
    follow_state_dicts_(model)


def _family(group: Config, families: Mapping[str, type[Importance]]) -> Importance:
    options = dict(group["family"])
    name = options.pop("type")
    if name not in families:
        raise CheckpointError(
            f"layer {group['name']!r} uses the importance family {name!r}, which awn does not have. "
            f"If it is yours: awn.load(folder, families=[{name}])."
        )
    return families[name](**options)


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
