"""Model folders: an adaptive model on disk, without pickle.

The folder has `model.safetensors`, which is complete, and `config.json`, its description in readable form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from awn._version import __version__
from awn.core.attribute import Attribute
from awn.core.axis import Axis, Block, Blocks
from awn.core.families import Exponential, PowerLaw, Sigmoid
from awn.core.groups import connect_, find_groups, is_width_entry, require_groups
from awn.core.importance import Importance
from awn.core.places import extent
from awn.core.state import check_shapes, follow_state_dicts_, load_state_dict_
from awn.core.width import Width, as_options
from awn.errors import AwnError, CheckpointError
from awn.files.model_schema import FIXED, FORMAT, OWN, Config, read_description
from awn.files.read import read_json, read_tensors
from awn.files.write import json_file, tensor_file, unfinished_name, write_files
from awn.nn.mlp import AdaptiveMLP
from awn.parallel.collectives import rank_of
from awn.parallel.unwrap import unwrapped


def save(model: nn.Module, folder: str | Path) -> None:
    """Write a model's weights, widths and settings to a folder, as config.json and model.safetensors.

    For a model in a DistributedDataParallel, rank 0 writes the model without the wrapper; other ranks do nothing.

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
    write_model(folder, dict(model.state_dict()), describe(model))


def write_model(folder: str | Path, tensors: dict[str, Tensor], config: Config) -> None:
    """Write tensors and their description to a folder, so that `read_model` finds them or what was there before."""
    weights, readable = Path(folder) / "model.safetensors", Path(folder) / "config.json"
    _finish_interrupted(weights, readable)
    write_files({weights: tensor_file(tensors, config), readable: json_file(config)})


def _finish_interrupted(weights: Path, readable: Path) -> None:
    """Make the second move of a save that was interrupted before it; this save would overwrite the file."""
    beside = unfinished_name(readable)
    if not (beside.is_file() and weights.is_file()):
        return
    try:
        description = read_tensors(weights)[1]
    except CheckpointError:
        return
    if description == _read_json(beside):
        beside.replace(readable)


def load(folder: str | Path, model: nn.Module | None = None, *, families: Iterable[type[Importance]] = ()) -> nn.Module:
    """Load a model from a folder that `save` wrote.

    An `AdaptiveMLP` is rebuilt. For any other model, pass one of the same architecture, plain or adaptive, with hidden
    layers of any size. It becomes adaptive in place, and is returned. `families` are your own importance families.

    >>> import awn, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> awn.save(awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(20)), folder)
    >>> awn.widths(awn.load(folder))
    {'hidden.0': 20}
    """
    tensors, config = read_model(folder)
    with damage_named(folder):
        return rebuild(tensors, config, model, families=families)


@contextmanager
def damage_named(folder: str | Path) -> Iterator[None]:
    """Raise a CheckpointError for any error that the content of a folder causes inside the block."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise error if str(folder) in str(error) else CheckpointError(f"{folder}: {error}") from None
        why = str(error) if isinstance(error, AwnError) else repr(error)
        raise CheckpointError(f"The description in {folder} was edited or is damaged: {why}") from error


def read_model(folder: str | Path) -> tuple[dict[str, Tensor], Config]:
    """The tensors and the description in a folder that `save` wrote."""
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}.")
    tensors, config = read_tensors(folder / "model.safetensors")
    upgraded = read_description(folder, config, tensors)
    _check_readable(folder, config)
    return upgraded


def rebuild(
    tensors: Mapping[str, Tensor],
    config: Config,
    model: nn.Module | None = None,
    *,
    families: Iterable[type[Importance]] = (),
) -> nn.Module:
    """Rebuild a model from its description by `describe` and its tensors.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> awn.widths(rebuild(model.state_dict(), describe(model)))
    {'hidden.0': 231}
    """
    own: list[type[Importance]] = [Exponential, PowerLaw, Sigmoid, *families]
    known = {family.__name__: family for family in own}
    importances = [_family(group, known) for group in config["groups"]]
    for group in config["groups"]:
        _check_bounds(group)
    if model is None:
        model = _build(config, tensors)
    elif not find_groups(model):
        _connect_as(model, config["groups"], tensors)
    else:
        _check_same_kind(model, config)
    groups = {group.name: group for group in find_groups(model)}
    if list(groups) != [described["name"] for described in config["groups"]]:
        raise CheckpointError(f"the description lists other layers than the network has: {', '.join(groups)}.")
    load_state_dict_(model, tensors)
    for described, importance in zip(config["groups"], importances, strict=True):
        width = groups[described["name"]].width
        width.family = importance
        for name, value in described["width"].items():
            setattr(width, name, value)
        width.set_units(width.units, width.capacity)  # applies its amplitude
    return model


def describe(model: nn.Module) -> Config:
    """The description of a model's widths and axes that `save` writes besides the weights."""
    model = unwrapped(model)
    groups = require_groups(model)
    paths = {module: path for path, module in model.named_modules()}
    names = {group.width: group.name for group in groups}
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
                "axes": [_describe_axis(axis, group.width, paths, names) for axis in group.axes],
                "attributes": [
                    {
                        "module": paths[attribute.module],
                        "name": attribute.name,
                        "counts": _describe_blocks(attribute.counts, group.width, names),
                        "index": attribute.index,
                    }
                    for attribute in group.width.attributes
                ],
            }
            for group in groups
        ],
    }


def _describe_axis(axis: Axis, width: Width, paths: Mapping[nn.Module, str], names: Mapping[Width, str]) -> Config:
    fields = {field.name: getattr(axis, field.name) for field in dataclasses.fields(axis)}
    layout = _describe_blocks(axis.blocks_of(width), width, names)
    return {**fields, "module": paths[axis.module], "layout": layout}


def _describe_blocks(blocks: Blocks, own: Width, names: Mapping[Width, str]) -> list[Config]:
    """Blocks by the names of the groups that their entries belong to."""
    return [
        {"entries": entries, "of": FIXED if width is None else OWN if width is own else names[width]}
        for width, entries in blocks
    ]


def _check_readable(folder: Path, config: Any) -> None:
    """Raise unless config.json agrees with the description in model.safetensors."""
    readable = folder / "config.json"
    # If a save was interrupted between its last two moves, both files are complete, but one has its temporary name.
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
        return read_json(path)
    except CheckpointError:
        return None


def _build(config: Config, tensors: Mapping[str, Tensor]) -> AdaptiveMLP:
    described = config["model"]
    if described["type"] != AdaptiveMLP.__name__:
        raise CheckpointError(
            f"the folder holds a {described['type']}. Pass a model of this class: awn.load(folder, model). A model of "
            "a table, from `awn fit` or an estimator, is read by awn.tabular.load_estimator(folder)."
        )
    if "activation" in described:
        raise CheckpointError(
            f"the network was built with an activation module, {described['activation']}, whose code is not in the "
            "folder. Build an AdaptiveMLP with this activation and pass it: awn.load(folder, model)."
        )
    _check_tensors(described.get("options"), tensors)
    # One unit per layer: the state dict sets the widths.
    model = AdaptiveMLP(**described["options"], importance=Exponential.for_units(1), block=1)
    return model.to(tensors["output.weight"].dtype)


def _check_tensors(options: Config | None, tensors: Mapping[str, Tensor]) -> None:
    """Raise unless a network's options agree with the tensors of the file, whose size then bounds that of the network.

    Otherwise an edited number of inputs could ask for any amount of memory.
    """
    if options is None:
        raise CheckpointError("the description of the AdaptiveMLP has no options. Restore the folder.")
    layers = options["hidden_layers"]
    found = [tensors.get(name) for name in ("hidden.0.weight", f"hidden.{layers - 1}.weight", "output.weight")]
    if any(one is None or one.dim() != 2 or not one.numel() or not one.is_floating_point() for one in found):
        raise CheckpointError(f"the weights of a network with {layers} hidden layers are not in the file.")
    kinds = {one.dtype for name, one in tensors.items() if one.is_floating_point() and not is_width_entry(name)}
    if len(kinds) > 1:
        raise CheckpointError(f"the weights in the file are of several types: {', '.join(sorted(map(str, kinds)))}.")
    sizes = {"in_features": found[0].shape[1], "out_features": found[2].shape[0]}  # type: ignore[union-attr]
    for name, size in sizes.items():
        if options[name] != size:
            raise CheckpointError(f"{name} is {options[name]:,}, but the weights in the file have {size:,}.")


def _check_same_kind(model: nn.Module, config: Config) -> None:
    """Raise unless an adaptive model has the groups, and an AdaptiveMLP the options, of the saved one."""
    here, there = ([group["name"] for group in each["groups"]] for each in (describe(model), config))
    if here != there:
        raise CheckpointError(f"the model has the learned widths {here}, the folder {there}. Nothing was loaded.")
    saved = config["model"].get("options")
    if isinstance(model, AdaptiveMLP) and saved is not None:
        other = [name for name, value in saved.items() if model.options[name] != value]
        if other:
            raise CheckpointError(
                f"the saved network has {other[0]}={saved[other[0]]!r}, the one passed {other[0]}="
                f"{model.options[other[0]]!r}. Build it with the same options. Nothing was loaded."
            )


def _connect_as(model: nn.Module, groups: Sequence[Config], tensors: Mapping[str, Tensor]) -> None:
    """Make a plain model adaptive as described, after all checks."""
    modules = dict(model.named_modules())
    # Its options follow with its family, once the state dict has set the width.
    widths = {group["name"]: Width(Exponential.for_units(1)) for group in groups}
    governed: dict[str, list[int]] = {}
    connections = []
    for group in groups:
        own = widths[group["name"]]
        axes = [_axis(described, own, widths, modules) for described in group["axes"]]
        attributes = [_attribute(described, own, widths, modules) for described in group["attributes"]]
        for axis, described in zip(axes, group["axes"], strict=True):
            governed.setdefault(_tensor_name(described), []).append(axis.dim)
        own.to(axes[0].tensor.device, axes[0].tensor.dtype)
        connections.append((own, axes, attributes))
    _set_capacities_([(width, axis) for width, axes, _ in connections for axis in axes])
    for _, _, attributes in connections:
        for attribute in attributes:
            if type(attribute.value) is not int or attribute.value != extent(attribute.counts):
                raise CheckpointError(
                    f"{attribute.name!r} of {type(attribute.module).__name__} is no size of a layer. "
                    "The model was not changed."
                )
    # A tensor may have several names.
    held = model.state_dict(keep_vars=True)
    dims = {id(held[name]): axes for name, axes in governed.items()}
    governed = {name: dims[id(tensor)] for name, tensor in held.items() if id(tensor) in dims}
    check_shapes(held, {name: tensor for name, tensor in tensors.items() if not is_width_entry(name)}, governed)
    for width, axes, attributes in connections:
        connect_(width, axes, attributes)
    follow_state_dicts_(model)


def _set_capacities_(axes: Sequence[tuple[Width, Axis]]) -> None:
    """Give widths the capacities of a plain model's tensors."""
    known: set[Width] = set()
    waiting = list(axes)
    while waiting:
        ready = [one for one in waiting if all(block.of is None or block.of in known for block in one[1].blocks)]
        for width, axis in ready:
            if width not in known:
                fixed = extent(tuple((other, n) for other, n in axis.blocks_of(width) if other is not width))
                size = (axis.tensor.shape[axis.dim] - fixed) // axis.per_unit
                width.set_units(max(1, size), max(1, size))
                known.add(width)
        if not ready:
            raise CheckpointError("the layouts of the axes refer to each other. The model was not changed.")
        waiting = [one for one in waiting if one not in ready]


def _tensor_name(described: Config) -> str:
    return f"{described['module']}.{described['name']}".lstrip(".")


def _module(described: Config, modules: Mapping[str, nn.Module]) -> nn.Module:
    module = modules.get(described["module"])
    if module is None:
        raise CheckpointError(
            f"the model has no {_tensor_name(described)}, but the saved one did: the architectures differ. "
            "The model was not changed."
        )
    return module


def _axis(described: Config, own: Width, widths: Mapping[str, Width], modules: Mapping[str, nn.Module]) -> Axis:
    """An axis of a plain model as described."""
    module, name = _module(described, modules), _tensor_name(described)
    if not isinstance(getattr(module, described["name"], None), Tensor):
        raise CheckpointError(
            f"the model has no {name}, but the saved one did: the architectures differ. The model was not changed."
        )
    layout = [
        Block(entries, fixed=True) if width is None else Block(entries, None if width is own else width)
        for width, entries in _blocks(described["layout"], own, widths)
    ]
    plain = len(layout) == 1 and not layout[0].fixed and layout[0].of is None
    axis = Axis(**{**described, "module": module, "layout": layout[0].entries if plain else tuple(layout)})
    _check_sizes(axis, name)
    return axis


def _attribute(
    described: Config, own: Width, widths: Mapping[str, Width], modules: Mapping[str, nn.Module]
) -> Attribute:
    """A number in a module that follows widths, as described."""
    counts = _blocks(described["counts"], own, widths)
    return Attribute(_module(described, modules), described["name"], counts, described["index"])


def _blocks(described: Sequence[Config], own: Width, widths: Mapping[str, Width]) -> Blocks:
    found: list[tuple[Width | None, int]] = []
    for block in described:
        if block["of"] not in (OWN, FIXED, *widths):
            raise CheckpointError(f"a layout names {block['of']!r}, which is no adaptive layer of the description.")
        width = None if block["of"] == FIXED else own if block["of"] == OWN else widths[block["of"]]
        found.append((width, block["entries"]))
    return tuple(found)


def _check_sizes(axis: Axis, name: str) -> None:
    """Raise unless the attributes to keep up to date are sizes: a folder may not overwrite anything else."""
    for size_name in axis.size_names:
        if type(getattr(axis.module, size_name, None)) is not int:
            raise CheckpointError(f"{size_name!r} is no size of the layer of {name}. The model was not changed.")


def _check_bounds(group: Config) -> None:
    fewest, most = group["width"]["min_units"], group["width"]["max_units"]
    if most is not None and most < fewest:
        raise CheckpointError(f"layer {group['name']!r} has max_units={most}, below min_units={fewest}.")


def _family(group: Config, families: Mapping[str, type[Importance]]) -> Importance:
    options = dict(group["family"])
    name = options.pop("type")
    if name not in families:
        raise CheckpointError(
            f"layer {group['name']!r} uses the importance family {name!r}, which is unknown to awn. "
            f"If it is your own, pass it: awn.load(folder, families=[{name}])."
        )
    return families[name](**options)
