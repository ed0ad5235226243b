"""Example: what to call a model with, as the user gives it, or made where its first layers say what they read."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from awn.adapt.copies import copied
from awn.adapt.interrupt import check_interrupt
from awn.adapt.operation import tensors_in
from awn.adapt.record import quiet
from awn.basics.batches import Batch
from awn.basics.example import as_call
from awn.errors import ArgumentError

# The numbers of samples and of tokens.
_SAMPLES, _TOKENS = 3, 6
# Sizes of images and sounds, in the order in which they are tried.
_SIZES = (16, 8, 32, *(size for size in range(4, 41) if size not in (8, 16, 32)), 64, 48, 96, 112, 128, 224, 256, 299)


def given_example(example_input: Any) -> Batch:
    """The user's example, checked."""
    args, kwargs = as_call(example_input)
    example = Batch(args, kwargs)
    for tensor in example.tensors:
        if tensor.is_meta:
            raise ArgumentError("example_input is on the meta device: it has no numbers. Pass one that has.")
        if tensor.is_nested or tensor.layout != torch.strided:
            kind = "nested" if tensor.is_nested else "sparse"
            raise ArgumentError(
                f"example_input holds a {kind} tensor, whose dimensions awn cannot follow. Pass a dense one."
            )
    return example


def made_example(model: nn.Module) -> Batch | None:
    """An example that a copy of the model runs on; None if no guess fits.

    >>> made_example(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))).args[0].shape
    torch.Size([3, 3])
    """
    twin = copied(model).eval()
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    if like is None:
        return None
    for guess in itertools.chain(_of_library(twin), _of_layers(twin, like)):
        check_interrupt()
        try:
            with quiet():
                result = twin(*copy.deepcopy(guess.args), **copy.deepcopy(guess.kwargs))
            if any(out.is_floating_point() for out in tensors_in(result)):
                return guess
        except Exception:  # the guess was wrong
            continue
    return None


def how_to_pass(model: nn.Module) -> str:
    """The error for a model of which no example can be made."""
    required = ", ".join(_required(model)) or "…"
    named = ", ".join(f"{name!r}: …" for name in _required(model))
    return (
        f"awn runs {type(model).__name__} to find its hidden layers, and cannot guess what to call it with. Pass an "
        f"example, as you would call the model: awn.adapt_(model, example_input=({required},)) or "
        f"example_input={{{named}}}."
    )


def _required(model: nn.Module) -> dict[str, str]:
    """The names of the arguments that a forward needs, with their annotations."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):
        return {}
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in positional and one.default is one.empty]
    return {one.name: "" if one.annotation is one.empty else str(one.annotation) for one in needed}


def _of_library(model: Any) -> Iterator[Batch]:
    """What Lightning's and Hugging Face's models say about themselves."""
    array = getattr(model, "example_input_array", None)
    if array is not None:
        yield Batch(*as_call(array))
    config, main = getattr(model, "config", None), getattr(model, "main_input_name", None)
    if config is None or not isinstance(main, str):
        return
    quiet_options: dict[str, Any] = {"use_cache": False} if hasattr(config, "use_cache") else {}
    tokens = (
        torch.arange(_SAMPLES * _TOKENS).view(_SAMPLES, _TOKENS) * 7 % max(2, getattr(config, "vocab_size", None) or 99)
    )
    size, channels = getattr(config, "image_size", 32), getattr(config, "num_channels", 3)
    size = size[0] if isinstance(size, list | tuple) else size
    if main == "pixel_values":
        images = torch.randn(1 if size > 128 else 2, channels, size, size, generator=torch.Generator().manual_seed(0))
        yield Batch((), {main: images})
    elif main == "input_ids":
        yield Batch((), {main: tokens, **quiet_options})
        yield Batch((), {main: tokens})
        yield Batch((), {main: tokens, "decoder_input_ids": tokens, **quiet_options})


def _of_layers(model: nn.Module, like: Tensor) -> Iterator[Batch]:
    """Inputs of the shapes that the model's layers read, the first layer's first."""
    required = _required(model)
    others = [kind for kind in required.values() if kind and not any(word in kind for word in ("Tensor", "Adj", "Any"))]
    if not required or len(required) > 5 or others:
        return
    shapes = dict.fromkeys(itertools.islice(_shapes(model), 160))
    for number, shape in enumerate(shapes):
        whole = isinstance(shape[0], str)
        sizes = [size for size in shape if isinstance(size, int)]
        if whole:
            first = torch.arange(_SAMPLES * _TOKENS).view(_SAMPLES, _TOKENS) % sizes[0]
        else:
            generator = torch.Generator().manual_seed(number)
            first = torch.randn(sizes, generator=generator)
        first = first.to(like.device) if whole else first.to(like)
        yield Batch((first, *(_by_name(name, first) for name in list(required)[1:])), {})


def _by_name(name: str, first: Tensor) -> Tensor:
    """A further argument: edges, the graph that each node belongs to, or something like the first argument."""
    nodes = torch.arange(len(first), device=first.device)
    if "edge" in name and "weight" not in name and "attr" not in name:
        return torch.stack([nodes.repeat(2), torch.cat([nodes.roll(1), nodes.roll(-1)])])
    if name == "batch":
        return (nodes >= (len(nodes) + 1) // 2).long()
    if name.startswith("adj"):
        return torch.eye(len(nodes), device=first.device).to(first) + 0.5
    return first.clone()


def _shapes(model: nn.Module) -> Iterator[tuple[int | str, ...]]:
    """The shapes of inputs that layers of the model read; `"whole"` stands before whole numbers up to a limit."""
    n, t = _SAMPLES, _TOKENS
    read = {layer.in_features for layer in model.modules() if isinstance(layer, nn.Linear)}
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            yield (n, layer.in_features)
            # A forward that insists on a number of samples means something else by more dimensions.
            yield from ((samples, layer.in_features) for samples in itertools.islice(sorted(read), 8))
            yield from ((n, t, layer.in_features), (n, 4, 4, layer.in_features))
        elif isinstance(layer, nn.modules.conv._ConvNd):
            dims = len(layer.kernel_size)
            yield from ((n, layer.in_channels, *[size] * dims) for size in (_SIZES if dims < 3 else _SIZES[:12]))
        elif isinstance(layer, nn.Unflatten) and layer.dim == 1:
            yield (n, math.prod(layer.unflattened_size))
        elif isinstance(layer, nn.Embedding):
            yield ("whole", layer.num_embeddings)
        elif isinstance(layer, nn.MultiheadAttention):
            yield (n, t, layer.embed_dim)
        elif isinstance(layer, nn.RNNBase):
            yield (n, t, layer.input_size)
        elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
            yield from ((n, layer.num_features), (n, layer.num_features, 8, 8))
        elif type(channels := vars(layer).get("in_channels")) is int:  # PyTorch Geometric
            yield (2 * n, channels)
