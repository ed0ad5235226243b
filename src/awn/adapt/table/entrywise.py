"""Operations that act on each entry, and those that make new tensors."""

from __future__ import annotations

from awn.adapt.operation import Operation, Rule
from awn.adapt.terms import Term


def mixes(op: Operation) -> None:
    """Every dimension may be mixed."""
    for tensor in op.inputs:
        op.freeze(*op.dims(tensor), does="may mix its units")


def entrywise(op: Operation) -> None:
    """Entry by entry, with broadcasting."""
    shape, dims = op.outs[0].shape, []
    for back in range(len(shape), 0, -1):
        here = [op.dims(t)[-back] for t in op.inputs if t.dim() >= back and t.shape[-back] == shape[-back] != 1]
        for other in here[1:]:
            op.unify(here[0], other)
        dims.append(here[0] if here else Term(shape[-back]))
    op.give(dims)


def alike(op: Operation) -> None:
    """The dimensions of the input; or of numbers that are made here and are all alike."""
    same = bool(op.inputs) and op.x.shape == op.outs[0].shape and not op.name.startswith("new_")
    op.give(op.dims(op.x) if same else [Term(size) for size in op.outs[0].shape])


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        [
            "where",
            "copy",
            "floor_divide",
            "hardswish",
            "_prelu_kernel",
            "log_sigmoid_forward",
            "masked_fill",
            "polar",
            "complex",
        ],
        entrywise,
    ),
    **dict.fromkeys(
        [
            "_to_copy",
            "detach",
            "alias",
            "lift_fresh",
            "lift_fresh_copy",
            "zero",
            "fill",
            "contiguous",
            "bernoulli",
            "normal",
            "uniform",
            "exponential",
            "random",
            "zeros_like",
            "ones_like",
            "full_like",
            "empty_like",
            "rand_like",
            "randn_like",
            "randint_like",
            "native_dropout",
            "rrelu_with_noise",
            "rrelu_with_noise_functional",
            "_conj",
            "bucketize",
            "isin",
            "geometric",
            "log_normal",
            "cauchy",
            "poisson",
            "zeros",
            "ones",
            "full",
            "empty",
            "new_zeros",
            "new_ones",
            "new_full",
            "new_empty",
            "empty_strided",
            "new_empty_strided",
            "scalar_tensor",
            "rand",
            "randn",
            "randint",
        ],
        alike,
    ),
    # They count places, not units.
    **dict.fromkeys(
        [
            "arange",
            "linspace",
            "eye",
            "randperm",
            "tril_indices",
            "triu_indices",
            "nonzero",
            "_unique2",
            "unique_dim",
            "bincount",
            "unique_consecutive",
            "masked_select",
            "multinomial",
            "hann_window",
            "as_strided",
        ],
        mixes,
    ),
}
