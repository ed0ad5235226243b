"""New units: drawn as `awn.core.initialise` draws them, number by number, into the flat buffers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from awn.training.by_hand.importances import Importances
from awn.training.by_hand.layout import WEIGHT, Array, Buffers
from awn.training.by_hand.structure import Layer, Structure


def draw_new_units_(
    structure: Structure, buffers: Buffers, importances: Importances, before: Sequence[int], units: Sequence[int]
) -> None:
    """Give values to the units that widths have now and had not before."""
    lead, grown = structure.lead, [now > was for now, was in zip(units, before, strict=True)]
    for layer, block in zip(structure.layers, buffers.arrays, strict=True):
        reads, makes = layer.reads, layer.makes
        more_rows, more_columns = makes is not None and grown[makes], reads is not None and grown[reads]
        if not more_rows and not more_columns:
            continue
        inputs = layer.linear.in_features if reads is None else units[reads]
        active = block[WEIGHT][: layer.linear.out_features if makes is None else units[makes]]
        weight = active[:, lead : lead + inputs]
        parts = [(more_columns, 1, reads), (more_rows, 0, makes)]
        for more, dim, width in reversed(parts) if layer.rows_first else parts:
            if width is None or not more:
                continue
            kind = structure.groups[width].width.new_units
            if kind == "zero" and dim == 1 and not layer.rows_first:
                continue  # an inert slot holds zeros already
            new = weight[before[width] :] if dim == 0 else weight[:, before[width] :]
            if kind == "normal":
                new[...] = _normal(new)
            elif kind == "zero" and dim == 1:
                new[...] = 0
            else:
                new[...] = _normal(new) * _deviation(structure, layer, importances)
        if lead and more_rows and makes is not None:
            bias = active[before[makes] :, 0]
            normal = structure.groups[makes].width.new_units == "normal"
            bias[...] = _normal(bias) if normal else _uniform(bias) / math.sqrt(inputs)


def _deviation(structure: Structure, layer: Layer, importances: Importances) -> float:
    """Kaiming+, see `awn.core.initialise`: gain / √Σf² over the units that a weight reads."""
    if layer.reads is None:
        assert layer.makes is not None
        return structure.groups[layer.makes].width.gain / math.sqrt(layer.linear.in_features)
    maker = next(number for number, one in enumerate(structure.layers) if one.makes == layer.reads)
    f = importances.f.numpy()[maker, structure.lead :]
    return structure.groups[layer.reads].width.gain / math.sqrt(f @ f)


def _normal(like: Array) -> Array:
    """By torch, whose random numbers a seed and a checkpoint bring back."""
    return torch.randn(like.shape, dtype=_TYPES[like.dtype.itemsize]).numpy()


def _uniform(like: Array) -> Array:
    """Between −1 and 1."""
    return 2 * torch.rand(like.shape, dtype=_TYPES[like.dtype.itemsize]).numpy() - 1


_TYPES = {4: torch.float32, 8: torch.float64}
