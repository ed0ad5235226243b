"""Convolutions, norms over samples or groups of channels, pooling and resampling."""

from __future__ import annotations

import re

from awn.adapt.operation import Operation, Rule
from awn.adapt.terms import product, split


def convolved(op: Operation) -> None:
    """Channels are read and made; positions stay. Groups of channels are like heads."""
    (x, w), groups = op.inputs[:2], op["groups"]
    xs, ws = op.dims(x), op.dims(w)
    op.freeze(*xs[2:], *ws[2:], does="goes over positions")
    outs = ws[0]
    if op["transposed"]:
        op.contract((x, 1), (w, 0))
        outs = product([split(ws[0], ws[0].size // groups, op.why)[0], ws[1]])
    elif groups == 1:
        op.contract((x, 1), (w, 1))
    else:
        (group, _), (same, inside) = (split(term, term.size // groups, op.why) for term in (ws[0], xs[1]))
        op.unify(group, same)
        op.unify(inside, ws[1])
        op.reads(ws[1])
    if op["bias"] is not None:
        op.unify(op.dims(op["bias"])[0], outs)
    op.give([xs[0], outs, *op.fixed(op.outs[0].shape[2:])])


def normed(op: Operation) -> None:
    """Norms with one mean for each channel, or for each group of channels."""
    dims = op.dims(op.x)
    if op.name == "native_group_norm":
        op.freeze(split(dims[1], dims[1].size // op["group"], op.why)[1], *dims[2:])
    for vector in op.inputs[1:]:
        op.unify(op.dims(vector)[0], dims[1])
    op.give(dims)


def spatial(op: Operation) -> None:
    """Pooling, resampling and padding of the last dimensions."""
    found = re.search(r"([123])d", op.name)
    assert found is not None
    last = int(found[1])
    op.freeze(*op.dims(op.x)[-last:], does="goes over positions")
    op.give([*op.dims(op.x)[:-last], *op.fixed(op.outs[0].shape[-last:])])


_SPATIAL = [
    "avg_pool",
    "max_pool",
    "adaptive_avg_pool",
    "_adaptive_avg_pool",
    "adaptive_max_pool",
    "reflection_pad",
    "replication_pad",
    "upsample_nearest",
    "upsample_linear",
    "_upsample_nearest_exact",
    "upsample_bilinear",
    "upsample_bicubic",
    "upsample_trilinear",
    "_upsample_bilinear",
    "_upsample_bicubic",
    "grid_sampler_",
]

RULES: dict[str, Rule] = {
    "convolution": convolved,
    **dict.fromkeys(
        ["native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "native_group_norm"],
        normed,
    ),
    **{
        f"{kind}{number}d{end}": spatial
        for kind in _SPATIAL
        for number in (1, 2, 3)
        for end in ("", "_with_indices", "_aa")
    },
}
