"""Operations that take entries, or write them, by indices."""

from __future__ import annotations

import torch

from awn.adapt.operation import Operation, Rule
from awn.adapt.table.entrywise import mixes
from awn.adapt.terms import Term


def looked_up(op: Operation) -> None:
    """Rows of a table."""
    dims, dim = op.dims(op.x), op["dim"] or 0
    op.freeze(*dims[dim:][:1], does="looks up single units")
    op.give([*dims[:dim], *op.dims(op.inputs[1]), *dims[dim:][1:]] if dims else [])


def bagged(op: Operation) -> None:
    """Sums, means or maxima of rows of a table."""
    rows, units = op.dims(op.x)
    op.freeze(rows, *(term for tensor in op.inputs[1:] for term in op.dims(tensor)), does="looks up single units")
    op.give([*op.fixed(op.outs[0].shape[:1]), units])
    for out in op.outs[1:]:
        op.give(op.fixed(out.shape), out)


def _picked_by(op: Operation) -> list[Term]:
    """The dimensions of what an index by tensors picks out."""
    dims, taken, picks, here = op.dims(op.x), list[int](), list[list[Term]](), 0
    for index in op["indices"]:
        mask = index is not None and index.dtype in (torch.bool, torch.uint8)
        if index is not None:
            picks.append(op.fixed([int(index.count_nonzero())]) if mask else op.dims(index))
            taken += range(here, here + (index.dim() if mask else 1))
        here += index.dim() if mask else 1
    op.freeze(*(dims[dim] for dim in taken), does="picks single units")
    shape, block = torch.broadcast_shapes(*([term.size for term in pick] for pick in picks)), list[Term]()
    for back in range(len(shape), 0, -1):
        same = [pick[-back] for pick in picks if len(pick) >= back and pick[-back].size == shape[-back]]
        for other in same[1:]:
            op.unify(same[0], other)
        block.append(same[0])
    rest = [term for dim, term in enumerate(dims) if dim not in taken]
    start = taken[0] if taken == list(range(taken[0], taken[0] + len(taken))) else 0
    return [*rest[:start], *block, *rest[start:]]


def indexed(op: Operation) -> None:
    """Entries by tensors of indices, read or written."""
    dims = _picked_by(op)
    if op["values"] is not None:
        for one, two in zip(reversed(dims), reversed(op.dims(op["values"])), strict=False):
            if two.size != 1:
                op.unify(one, two)
        dims = op.dims(op.x)
    op.give(dims)


def scattered(op: Operation) -> None:
    """By places along one dimension; the others belong together."""
    dims = op.dims(op.x)
    if not dims or op["dim"] is None:
        mixes(op)
        op.give(dims)
        return
    for terms in (op.dims(tensor) for tensor in op.inputs[1:]):
        for dim, (one, two) in enumerate(zip(dims, terms, strict=False)):
            whole = len(terms) == len(dims)
            if whole and dim != op["dim"] % len(dims) and one.size == two.size:
                op.unify(one, two)
            else:
                op.freeze(*((one, two) if whole else (two,)), does="picks single units")
    op.freeze(dims[op["dim"]], does="picks single units")
    op.give(op.dims(op["index"]) if op.name == "gather" else dims)


def packed(op: Operation) -> None:
    """Sequences of several lengths, one after the other."""
    dims = op.dims(op.x)
    op.freeze(*dims[:2], does="packs its entries")
    op.give([*op.fixed(op.outs[0].shape[:1]), *dims[2:]])
    op.give(op.fixed(op.outs[1].shape), op.outs[1])


RULES: dict[str, Rule] = {
    "_pack_padded_sequence": packed,
    **dict.fromkeys(["embedding", "index_select"], looked_up),
    **dict.fromkeys(["_embedding_bag", "_embedding_bag_forward_only"], bagged),
    **dict.fromkeys(["index", "index_put", "_unsafe_index", "_index_put_impl"], indexed),
    **dict.fromkeys(
        [
            "gather",
            "scatter",
            "scatter_add",
            "scatter_reduce",
            "index_add",
            "index_copy",
            "index_reduce",
            "masked_scatter",
        ],
        scattered,
    ),
}
