"""Positions: how often a layer uses its weight for one sample, which a budget on FLOPs has to know."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils import _pytree as tree

from awn.basics.batches import Batch, evaluating
from awn.basics.example import as_call
from awn.errors import ArgumentError
from awn.parallel.unwrap import unwrapped

#: From the positional arguments, the named ones and the output of a call to its number of positions, over all samples.
_Count = Callable[[tuple[Any, ...], Mapping[str, Any], Any], int]


def positions(model: nn.Module, example_input: Any) -> dict[str, int]:
    """How often every layer uses its weight for one sample: the `positions` of a `Budget`.

    The model runs once on `example_input`: a tensor, a tuple of arguments, or a dict of named arguments, whose first
    dimension is that of the samples. A convolution uses its weight at every pixel of its output, a layer of a
    Transformer at every token, a recurrent layer at every step. A layer that is called several times counts every call;
    one that is not called has 0 positions. Layers are those of torch, and others with a matrix named `weight`.

    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 256, 10))
    >>> positions(model, torch.randn(2, 3, 32, 32))
    {'0': 256, '3': 1}
    """
    model, call = unwrapped(model), Batch(*as_call(example_input))
    if not call.rows:
        raise ArgumentError("example_input has no samples: it must hold a tensor whose first dimension is not empty.")
    found: Counter[str] = Counter()

    def note(path: str, count: _Count, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        found[path] += count(args, kwargs, out)

    counts = {path: (layer, count) for path, layer in model.named_modules() if (count := _count_of(layer))}
    hooks = [
        layer.register_forward_hook(functools.partial(note, path, count), with_kwargs=True)
        for path, (layer, count) in counts.items()
    ]
    # Compiled code calls no hooks that were registered after it was compiled.
    compiled = "torch._dynamo" in sys.modules
    eager = torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext()
    try:
        with evaluating(model), eager:
            model(*call.args, **call.kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    for path, (layer, _) in counts.items():
        if isinstance(layer, nn.MultiheadAttention):
            found[f"{path}.out_proj".lstrip(".")] = found[path]  # torch reads its weight without calling it
    for path in counts:
        if found[path] % call.rows:
            raise ArgumentError(
                f"layer {path!r} was used {found[path]} times for {call.rows} samples. The first dimension of "
                "the input must be that of the samples. If the layer is used on something else, give the positions of "
                "the adaptive layers by hand."
            )
    return {path: found[path] // call.rows for path in counts}


def _count_of(layer: nn.Module) -> _Count | None:
    """What counts the positions of one call of a layer; None for a layer that multiplies by no matrix."""
    if isinstance(layer, _ConvTransposeNd):
        return lambda args, kwargs, out: _without_dim(_first(args, kwargs), -1 - len(layer.kernel_size))
    if isinstance(layer, _ConvNd):
        return lambda args, kwargs, out: _without_dim(out, -1 - len(layer.kernel_size))
    if isinstance(layer, nn.RNNBase | nn.RNNCellBase | nn.MultiheadAttention):
        return lambda args, kwargs, out: _without_dim(_first(args, kwargs).data, -1)  # `data` of a packed sequence
    weight = layer._parameters.get("weight")
    if weight is None or weight.dim() != 2 or isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        return None
    return lambda args, kwargs, out: _without_dim(
        next(one for one in tree.tree_leaves(out) if isinstance(one, Tensor)), -1
    )


def _first(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a layer reads, or the query of an attention."""
    return args[0] if args else kwargs.get("input", kwargs.get("query"))


def _without_dim(tensor: Tensor, dim: int) -> int:
    """The number of entries of a tensor, divided by the size of one dimension."""
    return tensor.numel() // tensor.shape[dim]
