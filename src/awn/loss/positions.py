"""Positions: how often a layer uses its weight for one sample, which a budget on FLOPs has to know."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from awn.basics.batches import Batch, evaluating
from awn.basics.example import as_call
from awn.errors import ArgumentError


def positions(model: nn.Module, example_input: Any) -> dict[str, int]:
    """How often every linear layer and convolution uses its weight for one sample: the `positions` of a `Budget`.

    The model runs once on `example_input`: a tensor, a tuple of arguments, or a dict of named arguments, whose first
    dimension is that of the samples. A convolution uses its weight at every pixel of its output, a linear layer in a
    Transformer at every token. A layer that is called several times counts every call.

    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 256, 10))
    >>> positions(model, torch.randn(2, 3, 32, 32))
    {'0': 256, '3': 1}
    """
    call = Batch(*as_call(example_input))
    if not call.rows:
        raise ArgumentError("example_input has no samples: it must hold a tensor whose first dimension is not empty.")
    found: Counter[str] = Counter()
    layers = {path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear | _ConvNd)}
    hooks = [layer.register_forward_hook(functools.partial(_count, found, path)) for path, layer in layers.items()]
    try:
        with evaluating(model):
            model(*call.args, **call.kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    for path, used in found.items():
        if used % call.rows:
            raise ArgumentError(
                f"layer {path!r} was used {used} times for {call.rows} samples. The first dimension of example_input "
                "must be that of the samples."
            )
    return {path: used // call.rows for path, used in found.items()}


def _count(found: Counter[str], path: str, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    """Add the positions of one call: those of the input for a transposed convolution, of the output for all others."""
    tensor = inputs[0] if isinstance(layer, _ConvTransposeNd) else output
    channels = -1 if isinstance(layer, nn.Linear) else 1
    found[path] += tensor.numel() // tensor.shape[channels]
