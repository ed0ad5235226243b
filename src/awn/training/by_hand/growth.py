"""New units: drawn as `awn.core.initialise` draws them, number by number, into the flat buffers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from awn.training.by_hand.importances import Importances
from awn.training.by_hand.layout import WEIGHT, Buffers
from awn.training.by_hand.structure import Layer, Structure


def draw_new_units_(
    structure: Structure, buffers: Buffers, importances: Importances, before: Sequence[int], units: Sequence[int]
) -> None:
    """Give values to the units that widths have now and had not before."""
    for number, layer in enumerate(structure.layers):
        reads, makes, lead = layer.reads, layer.makes, structure.lead
        rows = slice(*((before[makes], units[makes]) if makes is not None else (0, 0)))
        columns = slice(*((before[reads], units[reads]) if reads is not None else (0, 0)))
        if rows.stop <= rows.start and columns.stop <= columns.start:
            continue
        outputs = layer.linear.out_features if makes is None else units[makes]
        inputs = layer.linear.in_features if reads is None else units[reads]
        block = buffers.blocks[number][WEIGHT, :outputs]
        weight = block[:, lead : lead + inputs]
        deviation = _deviation(structure, layer, importances)
        parts = [(columns, 1, reads), (rows, 0, makes)]
        for new, dim, width in reversed(parts) if layer.rows_first else parts:
            if width is None or new.stop <= new.start:
                continue
            part, kind = weight[new] if dim == 0 else weight[:, new], structure.groups[width].width.new_units
            if kind == "zero" and dim == 1:
                part.zero_()
            else:
                part.copy_(_normal(part) if kind == "normal" else _normal(part) * deviation)
        if lead and makes is not None and rows.stop > rows.start:
            bias = block[rows, 0]
            normal = structure.groups[makes].width.new_units == "normal"
            bias.copy_(_normal(bias) if normal else _uniform(bias).div_(math.sqrt(inputs)))


def _deviation(structure: Structure, layer: Layer, importances: Importances) -> float:
    """Kaiming+, see `awn.core.initialise`: gain / √Σf² over the units that a weight reads."""
    if layer.reads is None:
        assert layer.makes is not None
        return structure.groups[layer.makes].width.gain / math.sqrt(layer.linear.in_features)
    maker = next(number for number, one in enumerate(structure.layers) if one.makes == layer.reads)
    f = importances.f[maker, structure.lead :]
    return structure.groups[layer.reads].width.gain / math.sqrt(torch.dot(f, f).item())


def _normal(like: Tensor) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype)


def _uniform(like: Tensor) -> Tensor:
    """Between −1 and 1."""
    return torch.rand(like.shape, dtype=like.dtype).mul_(2).sub_(1)
