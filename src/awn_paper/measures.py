"""Measurements on a network, before or after its training, for the studies that look inside it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from awn.basics.plain import to_plain
from awn.core.groups import WidthGroup, find_groups
from awn.smaller.activations import activation_bands, activation_magnitudes, unit_activations
from awn.smaller.finalize import finalize
from awn.smaller.remove import remove_units
from awn.smaller.truncate import truncate
from awn.training.data import Data
from awn.training.evaluate import accuracy
from awn_paper.data.dataset import Dataset

_KEPT = [round(keep / 20, 2) for keep in range(20, 0, -1)]
_RANDOM_DRAWS = 5
_ROWS_LOOKED_AT = 1000

Measured = dict[str, Any]


def truncation(model: nn.Module, dataset: Dataset) -> Measured:
    """The accuracy with a share of each layer's units: the most important, random ones, those of large activations."""
    data, groups = _test_part(dataset), find_groups(model)
    magnitudes = activation_magnitudes(model, data.x[:_ROWS_LOOKED_AT])
    generator = torch.Generator().manual_seed(0)
    curves: dict[str, list[float]] = {"importance": [], "random": [], "magnitude": []}
    for keep in _KEPT:
        curves["importance"].append(accuracy(truncate(model, keep=keep), data))
        drawn = [
            {group.name: torch.rand(group.width.units, generator=generator) for group in groups}
            for _ in range(_RANDOM_DRAWS)
        ]
        at_random = [accuracy(_weakest_removed(model, groups, draw, keep), data) for draw in drawn]
        curves["random"].append(sum(at_random) / len(at_random))
        curves["magnitude"].append(accuracy(_weakest_removed(model, groups, magnitudes, keep), data))
    return {"keep": _KEPT, **curves}


def repaired(model: nn.Module, dataset: Dataset) -> Measured:
    """The accuracy with a share of the most important units, whose outgoing weights are refitted on training inputs."""
    data, inputs = _test_part(dataset), dataset.train.x
    return {"keep": _KEPT, "importance": [accuracy(truncate(model, keep=keep, repair=inputs), data) for keep in _KEPT]}


def removal(model: nn.Module, dataset: Dataset) -> Measured:
    """The accuracy without the first units of the first layer, in growing groups, and without each one alone."""
    data, layer = _test_part(dataset), find_groups(model)[0]
    numbers = range(layer.width.units)
    return {
        "first": [accuracy(_without(model, layer, numbers[:count]), data) for count in numbers],
        "each": [accuracy(_without(model, layer, [unit]), data) for unit in numbers] if len(numbers) > 1 else [],
    }


def activations(model: nn.Module, dataset: Dataset) -> Measured:
    """The smallest, mean and largest activation of every unit, scaled by its importance."""
    measured: Measured = to_plain(activation_bands(model, _test_part(dataset).x[:_ROWS_LOOKED_AT]), digits=4)
    return measured


def flops(model: nn.Module, dataset: Dataset) -> Measured:
    """The FLOPs of convolutions and matrix products for one sample, of the network without unused units."""
    plain = finalize(model) if find_groups(model) else copy.deepcopy(model)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        plain.eval()(_test_part(dataset).x[:1])
    return {"forward": counter.get_total_flops()}


def variance(model: nn.Module, dataset: Dataset) -> Measured:
    """The variance of every layer's activations, before they are scaled, over inputs from N(0, 1)."""
    x = torch.randn(_ROWS_LOOKED_AT, dataset.train.x.shape[1], generator=torch.Generator().manual_seed(0))
    return {name: found.var().item() for name, found in unit_activations(model, x).items()}


Measure = Callable[[nn.Module, Dataset], Measured]

#: What may be measured on a network that has just been built, and on one that is trained.
BEFORE: dict[str, Measure] = {"variance": variance}
AFTER: dict[str, Measure] = {
    "truncation": truncation,
    "repaired": repaired,
    "removal": removal,
    "activations": activations,
    "flops": flops,
}


def _test_part(dataset: Dataset) -> Data:
    assert dataset.test is not None, "only final runs are measured"
    return dataset.test


def _without(model: nn.Module, layer: WidthGroup, units: Iterable[int]) -> nn.Module:
    gone = list(units)
    return remove_units(model, {layer.name: gone}) if gone else model


def _weakest_removed(model: nn.Module, groups: list[WidthGroup], strength: dict[str, Tensor], keep: float) -> nn.Module:
    weakest = {
        group.name: strength[group.name].argsort()[: group.width.units - max(1, round(keep * group.width.units))]
        for group in groups
    }
    return remove_units(model, {name: units for name, units in weakest.items() if len(units)})
