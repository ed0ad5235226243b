"""Operations that reshape, move, pick or join dimensions."""

from __future__ import annotations

import math

from awn.adapt.operation import Operation, Rule
from awn.adapt.table.entrywise import mixes
from awn.adapt.terms import Term, concatenation, cut, product, regroup, split


def reshaped(op: Operation) -> None:
    """A view of the same entries."""
    if op["dtype"] is not None:
        mixes(op)
        return
    op.give(regroup(op.dims(op.x), tuple(op.outs[0].shape), f"{op.why} splits its units"))


def squeezed(op: Operation) -> None:
    """Dimensions of one entry come or go."""
    rest = [term for term in op.dims(op.x) if term.size != 1]
    op.give([Term(1) if size == 1 else rest.pop(0) for size in op.outs[0].shape], moves=True)


def repeated(op: Operation) -> None:
    """Copies are alike: how many there are is a number of units, too."""
    shape = op.outs[0].shape
    dims = [Term(1)] * (len(shape) - op.x.dim()) + list(op.dims(op.x))
    op.give(
        [product([Term(n // d.size if d.size else 0), d]) if n else Term(0) for d, n in zip(dims, shape, strict=True)]
    )


def permuted(op: Operation) -> None:
    """Dimensions change places."""
    dims = list(op.dims(op.x))
    if op["dims"] is not None:
        dims = [dims[dim] for dim in op["dims"]]
    elif len(dims) > 1:
        i, j = (0, 1) if op.name == "t" else (op["dim0"], op["dim1"])
        dims[i], dims[j] = dims[j], dims[i]
    op.give(dims, moves=True)


def picked(op: Operation) -> None:
    """One entry after the other along a dimension."""
    dims = list(op.dims(op.x))
    if op.name == "view_as_real":
        op.give([*dims, *op.fixed([2])])
        return
    op.freeze(dims.pop(-1 if op.name == "view_as_complex" else op["dim"] or 0), does="picks single units")
    for out in op.outs:
        op.give(list(dims), out)


def sliced(op: Operation) -> None:
    """A range of entries."""
    dims = list(op.dims(op.x))
    dim, step = (op["dim"] or 0) % len(dims), op["step"] or 1
    size, length = dims[dim].size, op.outs[0].shape[dim]
    start = slice(op["start"], op["end"], step).indices(size)[0]
    why = f"{op.why} takes some of its units"
    if step == 1:
        dims[dim] = cut(cut(dims[dim], start, why)[1], length, why)[0] if length else Term(0)
    elif size == length * step:  # every other one, as some rotations of pairs have it
        dims[dim], places = split(dims[dim], step, why)
        op.freeze(places)
    else:
        op.freeze(dims[dim], does="takes some of its units")
        dims[dim] = Term(length, why)
    op.give(dims)


def divided(op: Operation) -> None:
    """Several ranges of entries. Parts that `chunk` makes have as many units each; those of given sizes need not."""
    dims, pieces = list(op.dims(op.x)), list[Term]()
    dim = (op["dim"] if op["dim"] is not None else -(op.name == "glu")) % len(dims)
    rest = dims[dim]
    for out in op.outs * (2 if op.name == "glu" else 1):
        here, rest = cut(rest, out.shape[dim], f"{op.why} splits its units")
        pieces.append(here)
        if "sizes" not in op.name and here.size == pieces[0].size:
            op.unify(pieces[0], here)
        op.give([*dims[:dim], here, *dims[dim + 1 :]], out)


def joined(op: Operation) -> None:
    """Tensors one after the other along a dimension."""
    tensors = [t for t in op.inputs if t.dim() > 1 or t.numel() or op.name == "stack"] or op.inputs
    dim, many = (op["dim"] or 0) % op.outs[0].dim(), [list(op.dims(t)) for t in tensors]
    if op.name == "stack":
        many = [[*dims[:dim], Term(1), *dims[dim:]] for dims in many]
    for place, terms in enumerate(zip(*many, strict=True)):
        for other in terms[1:] if place != dim else ():
            op.unify(terms[0], other)
    op.give([*many[0][:dim], concatenation([dims[dim] for dims in many]), *many[0][dim + 1 :]])


def padded(op: Operation) -> None:
    """Entries are added or taken away at both ends of the last dimensions."""
    dims = list(op.dims(op.x))
    for back, (before, after) in enumerate(zip(op["pad"][::2], op["pad"][1::2], strict=True), 1):
        term = cut(dims[-back], max(-before, 0), op.why)[1]
        term = cut(term, term.size + min(after, 0), op.why)[0]
        ends = op.fixed([max(before, 0), max(after, 0)])
        dims[-back] = concatenation([ends[0], term, ends[1]])
    op.give(dims)


def rearranged(op: Operation) -> None:
    """Channels and positions that trade places."""
    first = op.dims(op.x)[: -2 if op.name == "col2im" else -3]
    channels, *places = op.dims(op.x)[len(first) :]
    shape, size = op.outs[0].shape, op.outs[0].shape[len(first)]
    if size < channels.size:
        channels, inside = split(channels, channels.size // size, op.why)
        places.append(inside)
    op.freeze(*places)
    inner = op.fixed([math.prod(shape[len(first) : len(first) + 1]) // channels.size])
    op.give([*first, product([channels, *inner]), *op.fixed(shape[len(first) + 1 :])])


RULES: dict[str, Rule] = {
    **dict.fromkeys(["view", "_unsafe_view", "reshape", "_reshape_alias", "view_copy"], reshaped),
    **dict.fromkeys(["squeeze", "unsqueeze"], squeezed),
    **dict.fromkeys(["expand", "repeat"], repeated),
    **dict.fromkeys(["permute", "transpose", "t"], permuted),
    **dict.fromkeys(["view_as_real", "view_as_complex", "select", "unbind"], picked),
    "slice": sliced,
    **dict.fromkeys(["split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "glu"], divided),
    **dict.fromkeys(["cat", "stack"], joined),
    "constant_pad_nd": padded,
    **dict.fromkeys(["im2col", "col2im", "pixel_shuffle", "pixel_unshuffle"], rearranged),
}
