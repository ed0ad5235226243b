"""The layers that awn knows: which dimension of their tensors are their outputs, and which their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from awn.core.axes import normalised_by
from awn.core.axis import Axis
from awn.errors import ArgumentError

# Batch norms and instance norms: both act on each unit alone.
Norm = nn.modules.batchnorm._NormBase


@dataclass(frozen=True)
class Kind:
    """How a kind of layer lays out its weight, and where the units lie in an activation, counted from the end."""

    out_dim: int
    in_dim: int
    out_name: str
    in_name: str
    unit_dim: int


_CHANNELS = ("out_channels", "in_channels")
_KINDS: dict[str, Kind] = {
    "Linear": Kind(0, 1, "out_features", "in_features", -1),
    "Conv1d": Kind(0, 1, *_CHANNELS, -2),
    "Conv2d": Kind(0, 1, *_CHANNELS, -3),
    "Conv3d": Kind(0, 1, *_CHANNELS, -4),
    "ConvTranspose1d": Kind(1, 0, *_CHANNELS, -2),
    "ConvTranspose2d": Kind(1, 0, *_CHANNELS, -3),
    "ConvTranspose3d": Kind(1, 0, *_CHANNELS, -4),
}
# A subclass with one of these may do something else with its weight.
_ACTS_BY = frozenset(
    ["forward", "_conv_forward", "__call__", "_call_impl", "__getattr__", "__getattribute__", "weight", "bias"]
)
# Hugging Face's linear layer of GPT-2, known by its name so that the library need not be there.
_HF_CONV1D = Kind(1, 0, "nf", "nx", -1)


def kind_of(layer: nn.Module) -> Kind | None:
    """How a layer lays out its weight; None if it is none that makes units from a weighted sum of its inputs.

    The class must be one of torch's own, Hugging Face's Conv1D, or a subclass that uses its weight as torch's does: one
    with another start, say.

    >>> kind_of(nn.Conv2d(3, 8, 3))
    Kind(out_dim=0, in_dim=1, out_name='out_channels', in_name='in_channels', unit_dim=-3)
    """
    for place, cls in enumerate(type(layer).__mro__):
        name, home = cls.__name__, cls.__module__
        if name == "Conv1D" and home.startswith("transformers."):
            return _HF_CONV1D if place == 0 else None
        if home in ("torch.nn.modules.linear", "torch.nn.modules.conv"):
            kind = _KINDS.get(name)
            return kind if place == 0 or (kind is not None and _is_complete(layer, kind)) else None
        if home.startswith("torch.") or not _ACTS_BY.isdisjoint(vars(cls)):
            return None
    return None


def _is_complete(layer: nn.Module, kind: Kind) -> bool:
    """Whether a layer of a subclass has the weight of its kind, and a record of its sizes that can be written."""
    sizes = (vars(layer).get(name) for name in (kind.out_name, kind.in_name))
    return "weight" in layer._parameters and all(isinstance(size, int) for size in sizes)


def is_depthwise(layer: nn.Module) -> bool:
    """Whether a convolution makes each channel from the one channel before it."""
    groups = getattr(layer, "groups", 1)
    return groups > 1 and groups == layer.in_channels == layer.out_channels


def acts_by_unit(layer: nn.Module) -> bool:
    """Whether a layer acts on each unit alone, with tensors that have an entry for each.

    >>> acts_by_unit(nn.BatchNorm1d(8)), acts_by_unit(nn.PReLU(8)), acts_by_unit(nn.Linear(8, 8))
    (True, True, False)
    """
    if isinstance(layer, Norm):  # without any tensor, there would be nothing to resize its record of the size by
        return any(tensor is not None for tensor in (layer.weight, layer.running_mean))
    return isinstance(layer, nn.PReLU) or is_depthwise(layer)


def units_made_by(layer: nn.Module) -> int:
    """The number of units that a layer makes, or passes on one by one.

    >>> units_made_by(nn.Linear(2, 16)), units_made_by(nn.BatchNorm1d(16))
    (16, 16)
    """
    kind = kind_of(layer)
    name = kind.out_name if kind else "num_parameters" if isinstance(layer, nn.PReLU) else "num_features"
    units = getattr(layer, name, None)
    if not isinstance(units, int):
        raise ArgumentError(f"{type(layer).__name__} is not a layer whose outputs awn knows as units.")
    return units


def inputs_of(layer: nn.Module) -> int:
    """The number of entries that a layer reads.

    >>> inputs_of(nn.Linear(2, 16))
    2
    """
    kind = kind_of(layer)
    if kind is None or not isinstance(layer.weight, Tensor):
        raise ArgumentError(f"{type(layer).__name__} is not a layer whose inputs awn knows as units.")
    return layer.weight.shape[kind.in_dim]


def output_axes(layer: nn.Module) -> list[Axis]:
    """The axes of a layer's outputs: those of a layer that makes units, or of one that acts on each alone.

    >>> [str(axis) for axis in output_axes(nn.Conv2d(3, 8, 3))]
    ['Conv2d.weight', 'Conv2d.bias']
    """
    if isinstance(layer, Norm):
        return normalised_by(layer)
    if isinstance(layer, nn.PReLU):
        return [Axis(layer, "weight", 0, "producer", fill=0.25, size_name="num_parameters")]
    kind = kind_of(layer)
    if kind is None:
        raise ArgumentError(f"{type(layer).__name__} is not a layer whose outputs awn knows as units.")
    sizes: str | tuple[str, ...] = kind.out_name
    if is_depthwise(layer):
        sizes = (kind.out_name, kind.in_name, "groups")
    out_dim = 0 if is_depthwise(layer) else kind.out_dim
    axes = [Axis(layer, "weight", out_dim, "producer", size_name=sizes)]
    return axes if layer.bias is None else [*axes, Axis(layer, "bias", 0, "producer")]


def input_axes(layer: nn.Module, units: int) -> list[Axis]:
    """The axis of a layer's inputs, which are an equal number of entries for each of `units` units.

    >>> input_axes(nn.Linear(8 * 49, 10), units=8)[0].repeat
    49
    """
    size, kind = inputs_of(layer), kind_of(layer)
    assert kind is not None
    if size % units:
        raise ArgumentError(
            f"a {type(layer).__name__} of {size} inputs cannot read {units} units, the same number of entries of each."
        )
    # Older versions of Hugging Face's Conv1D do not record the number of their inputs.
    recorded = kind.in_name if hasattr(layer, kind.in_name) else None
    return [Axis(layer, "weight", kind.in_dim, "consumer", repeat=size // units, size_name=recorded)]


def is_changed(module: nn.Module) -> bool:
    """Whether a module does something else than its class says: a hook is set on it, or its forward was replaced.

    >>> layer = nn.Linear(2, 3)
    >>> hook = layer.register_forward_hook(lambda module, args, result: result * 2)
    >>> is_changed(layer)
    True
    """
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)


def size_names(layer: nn.Module) -> Sequence[str]:
    """The attributes in which a layer that awn can resize records its sizes.

    >>> size_names(nn.Linear(2, 3))
    ('out_features', 'in_features')
    """
    if isinstance(layer, Norm):
        return ("num_features",)
    if isinstance(layer, nn.PReLU):
        return ("num_parameters",)
    kind = kind_of(layer)
    return tuple(name for name in (kind.out_name, kind.in_name) if hasattr(layer, name)) if kind else ()
