"""The axes of torch's layers: the dimensions that produce units, and those that read them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from awn.core.axis import Axis
from awn.core.gate import plain_class
from awn.errors import ArgumentError

# Batch norms and instance norms: both act on each unit alone.
Norm = nn.modules.batchnorm._NormBase


@dataclass(frozen=True)
class Layout:
    """The layout of a kind of layer's weight, and the dimension of units in its activations, counted from the end."""

    out_dim: int
    in_dim: int
    out_name: str
    in_name: str
    unit_dim: int


_CHANNELS = ("out_channels", "in_channels")
_LAYOUTS: dict[str, Layout] = {
    "Linear": Layout(0, 1, "out_features", "in_features", -1),
    "NonDynamicallyQuantizableLinear": Layout(0, 1, "out_features", "in_features", -1),  # of nn.MultiheadAttention
    "Conv1d": Layout(0, 1, *_CHANNELS, -2),
    "Conv2d": Layout(0, 1, *_CHANNELS, -3),
    "Conv3d": Layout(0, 1, *_CHANNELS, -4),
    "ConvTranspose1d": Layout(1, 0, *_CHANNELS, -2),
    "ConvTranspose2d": Layout(1, 0, *_CHANNELS, -3),
    "ConvTranspose3d": Layout(1, 0, *_CHANNELS, -4),
}
# A subclass that defines one of these may use its weight in another way.
_ACTS_BY = frozenset(
    ["forward", "_conv_forward", "__call__", "_call_impl", "__getattr__", "__getattribute__", "weight", "bias"]
)
# Hugging Face's linear layer of GPT-2, recognised by name so that the library need not be installed.
_HF_CONV1D = Layout(1, 0, "nf", "nx", -1)


def layout_of(layer: nn.Module) -> Layout | None:
    """The layout of a layer's weight; None if the layer does not make units from weighted sums of its inputs.

    The class must be one of torch's, Hugging Face's Conv1D, or a subclass that uses its weight as torch's does: one
    with another initialisation, say.

    >>> layout_of(nn.Conv2d(3, 8, 3))
    Layout(out_dim=0, in_dim=1, out_name='out_channels', in_name='in_channels', unit_dim=-3)
    """
    for place, cls in enumerate(plain_class(layer).__mro__):
        name, home = cls.__name__, cls.__module__
        if name == "Conv1D" and home.startswith("transformers."):
            return _HF_CONV1D if place == 0 else None
        if home in ("torch.nn.modules.linear", "torch.nn.modules.conv"):
            layout = _LAYOUTS.get(name)
            return layout if place == 0 or (layout is not None and _is_complete(layer, layout)) else None
        if home.startswith("torch.") or not _ACTS_BY.isdisjoint(vars(cls)):
            return None
    return None


def _is_complete(layer: nn.Module, layout: Layout) -> bool:
    """Whether a layer of a subclass has the weight of its layout, and a record of its sizes that can be written."""
    sizes = (vars(layer).get(name) for name in (layout.out_name, layout.in_name))
    return "weight" in layer._parameters and all(isinstance(size, int) for size in sizes)


def is_depthwise(layer: nn.Module) -> bool:
    """Whether a convolution makes each channel from the one channel before it."""
    groups = getattr(layer, "groups", 1)
    return groups > 1 and groups == layer.in_channels == layer.out_channels


def produced_by(layer: nn.Module) -> list[Axis]:
    """The axes of a layer whose outputs are units: one that makes them, or one that acts on each unit alone.

    >>> [str(axis) for axis in produced_by(nn.Conv2d(3, 8, 3))]
    ['Conv2d.weight', 'Conv2d.bias']
    >>> [axis.name for axis in produced_by(nn.BatchNorm1d(8))]
    ['weight', 'bias', 'running_mean', 'running_var']
    """
    if isinstance(layer, Norm):
        starts = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}
        return [
            Axis(layer, name, 0, "producer", fill=start, size_name="num_features")
            for name, start in starts.items()
            if getattr(layer, name) is not None
        ]
    if isinstance(layer, nn.PReLU):
        return [Axis(layer, "weight", 0, "producer", fill=0.25, size_name="num_parameters")]
    layout = require_layout(layer, "outputs")
    depthwise = is_depthwise(layer)
    sizes = (layout.out_name, layout.in_name, "groups") if depthwise else layout.out_name
    weight = Axis(layer, "weight", 0 if depthwise else layout.out_dim, "producer", size_name=sizes)
    return [weight] if layer.bias is None else [weight, Axis(layer, "bias", 0, "producer")]


def consumed_by(layer: nn.Module, repeat: int = 1) -> list[Axis]:
    """The axis of a layer whose inputs are units, `repeat` inputs per unit: more than one after a flatten.

    >>> consumed_by(nn.Linear(8 * 49, 10), repeat=49)[0].dim
    1
    """
    layout = require_layout(layer, "inputs")
    # Older versions of Hugging Face's Conv1D do not record the number of their inputs.
    recorded = layout.in_name if layout.in_name in vars(layer) else None
    return [Axis(layer, "weight", layout.in_dim, "consumer", layout=repeat, size_name=recorded)]


def require_layout(layer: nn.Module, ends: str) -> Layout:
    """The layout of the torch layer that a class descends from, whatever its forward does; raises if there is none."""
    for cls in plain_class(layer).__mro__:
        if cls.__name__ == "Conv1D" and cls.__module__.startswith("transformers."):
            return _HF_CONV1D
        if cls.__module__.startswith("torch.nn.modules.") and cls.__name__ in _LAYOUTS:
            return _LAYOUTS[cls.__name__]
    raise ArgumentError(
        f"{type(layer).__name__} is not a layer whose {ends} awn knows as units. Name the dimensions with "
        "awn.advanced.Axis."
    )
