"""Operations that sum, normalise or order entries along dimensions."""

from __future__ import annotations

import itertools
from typing import Any

from awn.adapt.operation import Operation, Rule
from awn.adapt.table.entrywise import entrywise
from awn.adapt.terms import Term


def named_dims(value: Any, rank: int) -> list[int]:
    """The dimensions that an argument names; none named are all.

    >>> named_dims(-1, 3), named_dims(None, 2)
    ([2], [0, 1])
    """
    value = [value] if isinstance(value, int) else value
    return [dim % max(rank, 1) for dim in value] if value else list(range(rank))


def along(op: Operation) -> None:
    """Mixes entries along some dimensions, and keeps the others."""
    dims, rank = op.dims(op.x), op.x.dim()
    named = next((op[name] for name in ("dims", "dim", "dimension") if op[name] is not None), None)
    over = named_dims((-2, -1) if op.name in ("tril", "triu") else named, rank) if rank else []
    if op["normalized_shape"] is not None:
        over = list(range(rank - len(op["normalized_shape"]), rank))
        for vector in op.inputs[1:]:
            for place, term in enumerate(op.dims(vector)):
                op.unify(term, dims[over[place]])
    elif op["g"] is not None:  # weight norm: one length for each unit, over all that it reads
        op.unify(op.dims(op["g"])[op["dim"]], dims[op["dim"]])
        over = [dim for dim in range(rank) if dim != op["dim"]]
    op.freeze(*(dims[dim] for dim in over))
    for out in op.outs:
        pairs = itertools.zip_longest(dims, out.shape)
        op.give([d if d is not None and d.size == n else op.fixed([n])[0] for d, n in pairs if n is not None], out)


def reduced(op: Operation) -> None:
    """One number for all entries along dimensions. New units may be 0 in a sum, but not in a mean or a maximum."""
    if op["other"] is not None:
        entrywise(op)
        return
    dims = op.dims(op.x)
    over = named_dims(op["dim"], len(dims))
    for dim in over:
        if op.name == "sum":
            op.contract((op.x, dim))
        else:
            op.freeze(dims[dim], does="goes over its units")
    kept = [Term(1) if dim in over else term for dim, term in enumerate(dims)]
    for out in op.outs:
        op.give(kept if out.dim() == len(dims) else [t for dim, t in enumerate(dims) if dim not in over], out)


def multiplied(op: Operation) -> None:
    """A product of matrices, or of batches of them, perhaps with something added."""
    *added, x, y = op.inputs[: 3 if op.name.startswith(("add", "badd")) else 2]
    one, two = op.dims(x), op.dims(y)
    op.contract((x, -1), (y, max(-2, -y.dim())))
    for a, b in itertools.zip_longest(one[:-2], two[:-2]):
        if a is not None and b is not None:
            op.unify(a, b)
        else:
            op.freeze(a or b)
    dims = [*one[:-1], *(two[-1:] if y.dim() > 1 else ())]
    for back in range(1, min(added[0].dim(), len(dims)) + 1 if added else 1):
        if added[0].shape[-back] != 1:
            op.unify(op.dims(added[0])[-back], dims[-back])
    op.give(dims)


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        [
            "_softmax",
            "_log_softmax",
            "_safe_softmax",
            "cumsum",
            "cumprod",
            "logcumsumexp",
            "cummax",
            "cummin",
            "flip",
            "roll",
            "sort",
            "_fft_c2c",
            "renorm",
            "index_fill",
            "topk",
            "_fft_r2c",
            "_fft_c2r",
            "unfold",
            "tril",
            "triu",
            "native_layer_norm",
            "_fused_rms_norm",
            "_weight_norm_interface",
        ],
        along,
    ),
    **dict.fromkeys(
        [
            "sum",
            "mean",
            "amax",
            "amin",
            "max",
            "min",
            "var",
            "std",
            "prod",
            "any",
            "all",
            "argmax",
            "argmin",
            "var_mean",
            "std_mean",
            "logsumexp",
            "linalg_vector_norm",
            "norm",
            "nansum",
            "count_nonzero",
            "median",
            "nanmedian",
            "mode",
            "kthvalue",
            "aminmax",
            "_is_all_true",
            "_is_any_true",
        ],
        reduced,
    ),
    **dict.fromkeys(["mm", "bmm", "addmm", "baddbmm", "mv", "dot", "addmv", "_grouped_mm"], multiplied),
}
