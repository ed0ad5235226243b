"""Groups: the tensor dimensions that share a learned width.

Code that changes, counts or saves widths loops over a model's groups. No layer knows its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from awn.core.attention import bind_heads_, free_heads_
from awn.core.attribute import Attribute
from awn.core.axis import Axis
from awn.core.gate import check_gateable, gate_, gates_of, ungate_
from awn.core.places import clear_units_, extent
from awn.core.width import Width
from awn.errors import ArgumentError
from awn.parallel.sharded import refuse_sharded
from awn.parallel.unwrap import unwrapped

# The name under which a width is registered on its first producer.
WIDTH_NAME = "width"


@dataclass(frozen=True)
class WidthGroup:
    """A learned width, and the path of its first producer, on which it is registered."""

    name: str
    width: Width

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes of this width, producers first."""
        return self.width.axes

    @property
    def consumers(self) -> list[Axis]:
        """The consumer axes, which read the units."""
        return [axis for axis in self.axes if axis.role == "consumer"]

    def weights(self) -> Iterator[nn.Parameter]:
        """The weights and biases of the producers and consumers, without norms."""
        for layer in dict.fromkeys(axis.module for axis in self.axes if axis.fill is None):
            yield from (weight for weight in layer._parameters.values() if weight is not None)


def find_groups(model: nn.Module) -> list[WidthGroup]:
    """The groups of a model, in the order of its modules.

    >>> import awn
    >>> [group.name for group in find_groups(awn.AdaptiveMLP(2, 2, hidden_layers=2))]
    ['hidden.0', 'hidden.1']
    """
    model = unwrapped(model)
    found: dict[Width, str] = {}
    _collect_widths(model, "", found)
    if found:
        refuse_sharded((axis.tensor for width in found for axis in width.axes), model)
    return [WidthGroup(path, width) for width, path in found.items()]


def _collect_widths(module: nn.Module, path: str, found: dict[Width, str]) -> None:
    # Runs at every step, and is several times as fast as named_modules().
    for name, child in module._modules.items():
        if isinstance(child, Width):
            found.setdefault(child, path)
        elif child is not None and child._modules:
            _collect_widths(child, f"{path}.{name}" if path else name, found)


def require_groups(model: nn.Module) -> list[WidthGroup]:
    """The groups of a model; raises if it has none."""
    groups = find_groups(model)
    if not groups:
        raise ArgumentError(
            f"{type(model).__name__} has no layer with a learned width. "
            "Make its hidden layers adaptive with awn.adapt_(model), or build it with awn.AdaptiveMLP."
        )
    return groups


def check_layers(groups: Sequence[WidthGroup], names: Iterable[str]) -> None:
    """Raise for a name that no group has."""
    known = [group.name for group in groups]
    for name in names:
        if name not in known:
            raise ArgumentError(
                f"no layer {name!r} has a learned width. Adaptive layers: {', '.join(map(repr, known))}."
            )


def connect_(width: Width, axes: Sequence[Axis], attributes: Sequence[Attribute] = ()) -> None:
    """Give the axes one learned width: register it on the first producer, and gate every consumer.

    `attributes` are the numbers that follow the width. The tensors must already have the width's capacity. Their values
    stay as they are. To initialise them as the paper does, call `awn.advanced.kaiming_plus_` on the model's groups.
    Call `awn.advanced.follow_state_dicts_(model)` once so that `model.load_state_dict` accepts other widths.

    >>> from awn import Exponential
    >>> from awn.core.axes import consumed_by, produced_by
    >>> first, second = nn.Linear(2, 24), nn.Linear(24, 1)
    >>> connect_(Width(Exponential.for_units(20)), [*produced_by(first), *consumed_by(second)])
    >>> widths = find_groups(nn.Sequential(first, nn.ReLU(), second))
    >>> [(group.name, group.width.units) for group in widths]
    [('0', 20)]
    """
    check_connection(width, axes)
    producers, consumers = _by_role(axes)
    width.axes, width.attributes = (*producers, *consumers), tuple(attributes)
    producers[0].module.register_module(WIDTH_NAME, width)
    for axis in width.axes:
        free_heads_(axis.module)
    with torch.no_grad():
        for axis in width.axes:
            clear_units_(axis.tensor, axis.dim, axis.blocks_of(width), width, (width.units, width.capacity))
    for axis in consumers:
        gate_(axis.module, width, axis.dim, axis.name, axis.layout)


def disconnect_(width: Width, *, fold: bool) -> None:
    """Undo `connect_`: layers return to their own classes and keep their Parameters.

    `fold=True` multiplies the importance into the consumers' weights, so that the layers compute the same as before.
    `fold=False` leaves the weights as they are.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> disconnect_(model.hidden[0].width, fold=True)
    >>> type(model.output) is nn.Linear
    True
    """
    width.uses_prefix = False  # what is folded is the whole width
    consumers = [axis for axis in width.axes if axis.role == "consumer"]
    # Layers may share a weight, and a layer may have several weights that read the units.
    weights = {(axis.tensor, axis.name): axis.module for axis in reversed(consumers)} if fold else {}
    with torch.no_grad():
        for (tensor, name), layer in weights.items():
            for gate in gates_of(layer).get(name, ()):
                if gate.width is width:
                    tensor.copy_(gate.on(tensor))
    for axis in consumers:
        ungate_(axis.module, width)
    if width.axes and width.axes[0].module._modules.get(WIDTH_NAME) is width:
        delattr(width.axes[0].module, WIDTH_NAME)
    for axis in width.axes:
        bind_heads_(axis.module)
    width.axes, width.attributes = (), ()


def _by_role(axes: Sequence[Axis]) -> tuple[list[Axis], list[Axis]]:
    return [axis for axis in axes if axis.role == "producer"], [axis for axis in axes if axis.role == "consumer"]


def check_connection(width: Width, axes: Sequence[Axis]) -> None:
    """Raise if `connect_` cannot connect the axes. Nothing is changed."""
    producers, consumers = _by_role(axes)
    if width.axes:
        raise ArgumentError("this width is already connected. Connect all its axes at once, or make another width.")
    if not producers or not consumers:
        raise ArgumentError(
            "a learned width needs at least one producer, which makes its units, and one consumer, which reads them."
        )
    for axis in (*producers, *consumers):
        expected = extent(axis.blocks_of(width))
        if axis.tensor.shape[axis.dim] != expected:
            raise ArgumentError(
                f"{axis} has {axis.tensor.shape[axis.dim]} entries along dimension {axis.dim}, "
                f"but the width's capacity of {width.capacity} units needs {expected}."
            )
        if axis.role == "consumer":
            check_gateable(axis.module, axis.name)
            others = {block.of for block in axis.blocks}
            gates = gates_of(axis.module).get(axis.name, ())
            if any(gate.dim == axis.dim and gate.width not in others for gate in gates):
                raise ArgumentError(f"{axis} already reads the units of a learned width along dimension {axis.dim}.")
    places = [(axis.module, axis.name, axis.dim) for axis in (*producers, *consumers)]
    if len(set(places)) < len(places):
        raise ArgumentError("two axes name the same dimension of a tensor. List each dimension once.")
    weighted = {axis.module for axis in producers if axis.fill is None and axis.tensor.dim() > 1}
    for axis in producers:
        if axis.fill is None and axis.module not in weighted:
            raise ArgumentError(
                f"{axis} belongs to units that no weight of its layer makes. Set fill=…, the value of new units."
            )
    for axis in producers:
        carried = [child for child in axis.module.children() if isinstance(child, Width)]
        # Units of another width may be made by other tensors of the module, or by other blocks of this one.
        same = [one for other in carried for one in other.axes if (one.name, one.dim) == (axis.name, axis.dim)]
        if axis is producers[0] and carried:
            raise ArgumentError(f"{axis.module} already has a learned width. Connect all its axes at once.")
        if any(one.module is axis.module for one in same) and not {block.of for block in axis.blocks} & set(carried):
            raise ArgumentError(f"{axis} already has a learned width. Connect all its axes at once.")
    if hasattr(producers[0].module, WIDTH_NAME):
        raise ArgumentError(
            f"{type(producers[0].module).__name__} has an attribute {WIDTH_NAME!r} of its own, where its learned width "
            "would go. Rename it, or name another producer first."
        )
    refuse_sharded(axis.tensor for axis in axes)


def tensor_names(model: nn.Module) -> dict[Tensor, str]:
    """The name of each tensor of a model."""
    model = unwrapped(model)
    return {tensor: name for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


def non_finite_tensors(model: nn.Module) -> list[str]:
    """The names of a model's tensors that are not finite."""
    return [name for tensor, name in tensor_names(model).items() if not torch.isfinite(tensor).all()]


def is_width_entry(name: str) -> bool:
    """Whether an entry of a state dict belongs to a learned width.

    >>> is_width_entry("hidden.0.width.log_nu"), is_width_entry("hidden.0.weight")
    (True, False)
    """
    return name.removesuffix(".log_nu").removesuffix("._extra_state").split(".")[-1] == WIDTH_NAME
