"""The description of a saved model: its schema, its format number, and the formats before it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from awn.basics.limits import limits
from awn.basics.schema import Schema, either, entries, flag, items, maybe, number, one_of, record, text, whole
from awn.basics.schema import anything as any_value
from awn.core.axis import Role
from awn.core.width import NewUnits
from awn.errors import CheckpointError
from awn.files.read import check_content

#: The format that this version writes. It reads this one and all before it.
#:
#: 1. Until 18 November 2026. Gated weights had the names of a parametrization, widths had no `ordered`, and the scaling
#:    of a table's numbers had `deviations`.
#: 2. Gated weights keep their names. The history of an estimator has no times, so equal runs give equal files. An axis
#:    had a number `repeat` of entries per unit.
#: 3. An axis has a layout of blocks, and a group has the attributes that follow it.
FORMAT = 3
#: Whose the entries of a block are: the units of the axis's own group, no units, or another group, by its name.
OWN, FIXED = "units", "fixed"
Config = dict[str, Any]
_LARGEST_BLOCK = 2**16
# The name of a gated weight in format 1: a parametrization of torch.
_PARAMETRIZED = ".parametrizations."


def read_description(folder: Path, config: Any, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Config]:
    """The tensors and the description of a saved model in the present format, checked."""
    known = isinstance(config, dict) and type(config.get("format")) is int and "groups" in config
    if not known or not config["format"] >= 1:
        raise CheckpointError(f"{folder} was not written by awn.save.")
    if config["format"] > FORMAT:
        raise CheckpointError(
            f"{folder} has format {config['format']}, and this version of awn reads formats 1 to {FORMAT}. It was "
            f"written by awn {config.get('awn', 'of a later version')}: install that version or a later one."
        )
    config, tensors = copy.deepcopy(config), dict(tensors)
    if config["format"] == 1:
        config, tensors = _from_format_1(config, tensors)
    if config["format"] == 2:
        config = _from_format_2(config)
    check_content(config, _description(), str(folder))
    return tensors, config


def _from_format_1(config: Config, tensors: Mapping[str, Tensor]) -> tuple[Config, dict[str, Tensor]]:
    for group in config["groups"] if isinstance(config["groups"], list) else ():
        if isinstance(group, dict) and isinstance(group.get("width"), dict):
            group["width"].setdefault("ordered", 0.0)
    return {**config, "format": 2}, {_plain_name(name): tensor for name, tensor in tensors.items()}


def _from_format_2(config: Config) -> Config:
    for group in config["groups"] if isinstance(config["groups"], list) else ():
        if isinstance(group, dict):
            group.setdefault("attributes", [])
            for axis in group["axes"] if isinstance(group.get("axes"), list) else ():
                if isinstance(axis, dict) and "repeat" in axis:
                    axis["layout"] = [{"entries": axis.pop("repeat"), "of": OWN}]
    return {**config, "format": FORMAT}


def _plain_name(name: str) -> str:
    """The name of a weight without that of its parametrization.

    >>> _plain_name("hidden.1.parametrizations.weight.original"), _plain_name("hidden.0.bias")
    ('hidden.1.weight', 'hidden.0.bias')
    """
    return name.replace(_PARAMETRIZED, ".").removesuffix(".original") if _PARAMETRIZED in name else name


def network_options() -> Schema:
    """The schema of the options of an `AdaptiveMLP`."""
    return record(
        {name: whole(1) for name in ("in_features", "out_features")}
        | {"hidden_layers": whole(1, limits().layers), "dropout": number(low=0, below=1)}
        | {name: flag() for name in ("shared_width", "batch_norm", "bias")},
        {"activation": text()},
    )


def _description() -> Schema:
    """The schema of a model's description."""
    bounds = limits()
    units = whole(1, bounds.units)
    block = record({"entries": units, "of": text()})
    layout = items(block, 1, bounds.tensors)
    attribute = record(
        {"module": text(), "name": text(), "counts": layout, "index": maybe(whole(0, _LARGEST_BLOCK))},
    )
    axis = record(
        {"module": text(), "name": text(), "dim": whole(0, 16), "role": one_of(*get_args(Role)), "layout": layout},
        {"fill": maybe(number()), "size_name": maybe(either(text(), items(text(), 0, 16)))},
    )
    width = record(
        {
            "quantile": number(above=0, below=1),
            "min_units": units,
            "max_units": maybe(units),
            "block": whole(1, _LARGEST_BLOCK),
            "new_units": one_of(*get_args(NewUnits)),
            "gain": number(above=0),
            "amplitude": number(above=0),
            "ordered": number(low=0, below=1 + 1e-9),
        }
    )
    group = record(
        {
            "name": text(),
            "units": units,
            "family": record({"type": text()}, others=either(number(), text())),
            "width": width,
            "axes": items(axis, 1, bounds.tensors),
            "attributes": items(attribute, 0, bounds.tensors),
        }
    )
    return record(
        {
            "format": whole(1, FORMAT),
            "awn": text(),
            "model": record({"type": text()}, {"activation": text(), "options": network_options()}),
            "groups": items(group, 1, bounds.layers),
        },
        {"estimator": entries(any_value())},
    )
