"""Flow: follow units through the graph of a forward, from the layers that make them to those that read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from torch import Tensor, fx, nn

from awn.adapt.graphs import Shape, Traced
from awn.adapt.layers import acts_by_unit, inputs_of, is_changed, size_names, units_made_by
from awn.adapt.moves import argument, goes_over_units, indexed, numbers_given, reduced, reordered
from awn.adapt.operations import (
    ACTIVATIONS,
    EXTREMES,
    LIKE_TANH,
    MIXING,
    NO_TENSOR,
    NOT_AT_ZERO,
    REDUCTIONS,
    SIZES,
    SPATIAL_FUNCTIONS,
    SPATIAL_MODULES,
    UNIT_WISE,
    UNIT_WISE_MODULES,
    torch_name,
)
from awn.adapt.rest import at_rest, changes_its_input, module_at_rest
from awn.adapt.shapes import after_reshape, after_stack, from_end
from awn.adapt.spaces import Count, Other, Pair, Sizes, Space, Units
from awn.core.axes import is_depthwise, layout_of
from awn.core.initialise import gain_of

# What a node of the graph gives; None for what is no activation, such as a type.
Value: TypeAlias = Units | Other | Pair | Sizes | Count | None

_HOOKED = (
    "has a hook, or a forward of its own. Set it after adapt_, unless it makes the weight, as the old weight norm and "
    "spectral norm do: those must be removed"
)
_RESHAPES = ("view", "reshape", "flatten", "squeeze", "unsqueeze")


class Flow:
    """Graphs of a forward, followed one by one. `spaces` are then all the units that were met.

    Those whose number must stay have the reason.
    """

    def __init__(self, scope: nn.Module) -> None:
        self._modules = dict(scope.named_modules())
        self._scope = scope
        self._shapes: Mapping[fx.Node, Shape] = {}
        self._made: dict[nn.Module, Space] = {}
        self._read: dict[nn.Module, list[Value]] = {}
        self._values: dict[fx.Node, Value] = {}
        #: Every module that is called; and with those whose tensors the forward reads by itself.
        self.leaves: set[nn.Module] = set()
        self.layers: set[nn.Module] = set()

    def follow(self, traced: Traced) -> None:
        """Take in what a graph says: what makes, reads and joins units is added to what is known."""
        self._shapes = traced.shapes
        for node in traced.graph.nodes:
            if not node.args and "input" in node.kwargs:
                node.args, node.kwargs = (node.kwargs["input"],), {k: v for k, v in node.kwargs.items() if k != "input"}
            value = self._values[node] = self._value(node)
            if changes_its_input(node) and isinstance(node.args[0], fx.Node):
                self._values[node.args[0]] = value
        for node in traced.kept:
            self._fix_values([self._values[node]], "the forward keeps it in an attribute, where others may read it")

    def fix(self, layer: nn.Module, reason: str) -> None:
        """The numbers of units that a layer makes and reads must stay."""
        self._own(layer).fix(reason)
        self._fix_values(self._read.get(layer, []), reason)

    @property
    def spaces(self) -> list[Space]:
        """The units that some layer makes, each space once."""
        return list(dict.fromkeys(space.root for space in self._made.values()))

    def _value(self, node: fx.Node) -> Value:
        if node.op == "placeholder":
            return Other(f"the input {node.target!r}", self._shapes.get(node))
        if node.op == "get_attr":
            return self._attribute(node)
        if node.op == "output":
            self._fix_all(node, "it is an output of " + (type(self._scope).__name__ or "the model"))
            return None
        if node.op == "call_module":
            module = self._modules[str(node.target)]
            self.leaves.add(module)
            self.layers.add(module)
            return self._module(node, module)
        return self._function(node, torch_name(node.target))

    # Modules

    def _module(self, node: fx.Node, module: nn.Module) -> Value:
        inputs = list(self._inputs(node))
        value = inputs[0] if len(inputs) == 1 else None
        if is_changed(module):
            return self._mixed_by(node, module, _HOOKED)
        if layout_of(module) and not is_depthwise(module):
            return self._weighted(node, module, value)
        of_torch = type(module).__module__.startswith("torch.nn.") or layout_of(module) is not None
        if not isinstance(value, Units) or not of_torch:  # a subclass may do anything
            return self._mixed_by(node, module)
        if isinstance(module, UNIT_WISE_MODULES):
            if not isinstance(module, nn.Identity | nn.modules.dropout._DropoutNd):
                value.space.root.gain = gain_of(module)
            return replace(value, rest=module_at_rest(module, value.rest))
        if acts_by_unit(module) and not value.flat and _at_channels(module, value):
            value.space.join(self._own(module), f"a {type(module).__name__}")
            return value.stirred
        if isinstance(module, nn.PReLU) and module.num_parameters == 1:
            return value.stirred
        spatial = next((dims for kind, dims in SPATIAL_MODULES.items() if isinstance(module, kind)), None)
        if spatial is not None and value.dim < -spatial and not getattr(module, "return_indices", False):
            return value.stirred
        if isinstance(module, nn.Upsample) and value.rank is not None and value.dim == 1 - value.rank:
            return value
        if isinstance(module, nn.Flatten):
            return self._reshaped(node, "flatten", value, (module.start_dim, module.end_dim))
        return self._mixed_by(node, module)

    def _weighted(self, node: fx.Node, module: nn.Module, value: Value) -> Value:
        """A layer that reads its inputs by a weight, and so makes units of its own."""
        kind = layout_of(module)
        assert kind is not None
        space = self._own(module)
        if getattr(module, "groups", 1) > 1:
            self._fix_all(node, f"{node.target!r} reads its units in {module.groups} groups")
            space.fix(f"it makes its units in {module.groups} groups")
        elif isinstance(value, Units):
            self._reads(node, module, value, kind.unit_dim)
        self._read_too(module, value, node.target)
        return Units(space, kind.unit_dim, self._rank(node, 1 - kind.unit_dim if kind.unit_dim < -1 else None))

    def _reads(self, node: fx.Node, module: nn.Module, value: Units, dim: int) -> None:
        size = inputs_of(module)
        fits = size % value.space.units == 0 if value.flat else size == value.space.units
        if value.dim != dim or not fits:
            value.space.fix(f"{node.target!r} reads its units along another dimension than the one they lie in")
        value.space.root.readers.append(module)

    def _read_too(self, module: nn.Module, value: Value, name: Any) -> None:
        """All that a layer reads, in whichever place it is used, must be the same units."""
        values = self._read.setdefault(module, [])
        values.append(value)
        units = [one for one in values if isinstance(one, Units)]
        if 0 < len(units) < len(values):
            self._fix_values(units, f"{name!r} reads its units, and in another place something else")
        for other in units[1:]:
            units[0].space.join(other.space, f"{name!r}, which is used twice,")

    def _own(self, module: nn.Module) -> Space:
        """The units that a layer makes, or has an entry of its own for."""
        if module not in self._made:
            self._made[module] = Space(units_made_by(module))
            self._made[module].makers.append(module)
        return self._made[module]

    # Functions and methods

    def _function(self, node: fx.Node, name: str) -> Value:
        values = list(self._inputs(node))
        asked = str(node.args[1]) if name == "getattr" else name
        if asked in NO_TENSOR:
            return None
        if asked in SIZES or (name == "getitem" and isinstance(values[0], Sizes)):
            return self._size(node, asked, values[0])
        if values and isinstance(values[0], Pair) and node.args[1:] in ((0,), ("values",)):
            return values[0].of
        if name == "getitem" and isinstance(values[0], Pair) and not node.users:
            return None
        if name not in _RESHAPES:
            numbers = [value for value in values if isinstance(value, Sizes | Count)]
            self._fix_values(numbers, f"{name} computes with the number of its units, which changes")
        units = [value for value in values if isinstance(value, Units)]
        if not units:
            self._fix_all(node, f"{name} computes with the number of its units, which changes")
            # Numbers, and what is computed from them, are no activations.
            activation = any(isinstance(value, Other) for value in values)
            return Other(f"what {name} gives", self._shapes.get(node)) if activation else None
        if name in UNIT_WISE:
            return self._entry_by_entry(node, name, values)
        if name == "stack":
            return self._stacked(node, values)
        value = units[0]
        if len(units) == 1:
            if name in _RESHAPES:
                return self._reshaped(node, name, value, tuple(arg for arg in node.args[1:] if isinstance(arg, int)))
            if name in REDUCTIONS:
                return self._reduced(node, name, value)
            if name in EXTREMES and isinstance(argument(node, 1, "dim", ()), int | tuple):
                values_found = self._reduced(node, name, value)
                return Pair(values_found) if isinstance(values_found, Units) else values_found
            if name in ("matmul", "mm", "bmm") and self._keeps_columns(node, name, value):
                return replace(value, rank=self._rank(node, None)).stirred
            if name in ("transpose", "permute", "swapaxes"):
                how = "moves its units. Give example_input, so that it is known where to"
                return reordered(node, name, value) or self._lost(node, name, how)
            one_result = not node.kwargs.get("return_indices", False)
            if name in SPATIAL_FUNCTIONS and value.dim < -SPATIAL_FUNCTIONS[name] and one_result:
                return value.stirred
            padding = argument(node, 1, "pad", None)
            if name == "pad" and isinstance(padding, tuple | list) and value.dim < -(len(padding) // 2):
                return value if not argument(node, 3, "value", 0) else replace(value, rest=None)
            if name == "interpolate" and value.rank is not None and value.dim == 1 - value.rank:
                return value
            if name in ("softmax", "log_softmax", "cumsum"):
                dim = argument(node, 1, "dim", None)
                dims = from_end(dim, value.rank) if isinstance(dim, int) else None
                if dims is not None and value.dim not in dims:
                    return replace(value, rest=None)
            if name == "getitem":
                return indexed(node, value) or self._mixed(node, "an index", "getitem")
        return self._mixed(node, name, name)

    def _entry_by_entry(self, node: fx.Node, name: str, values: list[Value]) -> Value:
        several = [value for value in values if isinstance(value, Units)]
        # One number for all of another layer's units is none of them.
        units = [value for value in several if value.space.units > 1] or several
        first = units[0]
        inputs = {each: self._values[each] for each in node.all_input_nodes}
        rests = {each: value.rest for each, value in inputs.items() if isinstance(value, Units) and value in units}
        rest = at_rest(node, rests, first.space.dtype)
        if rest is not None and math.isnan(rest):
            self._fix_all(node, f"{name} {NOT_AT_ZERO}")
        if name in ACTIVATIONS or name in LIKE_TANH:
            first.space.root.gain = 1.0 if name in LIKE_TANH else 2**0.5
        for value in several:
            if value not in units:
                value.space.fix(f"{name} applies it to all units of another layer")
            if (value.dim, value.flat) != (first.dim, first.flat):
                for one in (first, value):
                    one.space.fix(f"{name} joins it with units that lie along another dimension")
            if value in units:
                first.space.join(value.space, name)
        for other in values:
            if isinstance(other, Other) and not other.broadcasts(first.dim):
                first.space.fix(f"{name} joins its units with {other.what}, whose width is fixed")
        ranks = [value.rank for value in values if isinstance(value, Units | Other)]
        known = [rank for rank in ranks if rank is not None]
        return replace(first, rank=self._rank(node, max(known) if len(known) == len(ranks) else None), rest=rest)

    def _keeps_columns(self, node: fx.Node, name: str, value: Units) -> bool:
        """Whether a product of matrices sums up rows of units, each unit a column by itself: `adjacency @ h`."""
        left, right = map(self._value_of, node.args) if len(node.args) == 2 else (None, None)
        a_matrix = name != "matmul" or (value.rank or 0) > 1
        return right is value and not isinstance(left, Units) and value.dim == -1 and not value.flat and a_matrix

    def _stacked(self, node: fx.Node, values: list[Value]) -> Value:
        """Activations side by side along a dimension of their own."""
        first, dim = values[0], argument(node, 1, "dim", 0)
        if isinstance(first, Units) and isinstance(dim, int):
            units = [value for value in values if isinstance(value, Units)]
            alike = len(units) == len(values) and all(replace(one, space=first.space) == first for one in units)
            place = after_stack(first.dim, first.rank, dim)
            if alike and place is not None:
                for other in units[1:]:
                    first.space.join(other.space, "stack")
                return replace(first, dim=place, rank=None if first.rank is None else first.rank + 1)
        return self._mixed(node, "stack", "stack")

    def _size(self, node: fx.Node, name: str, value: Value) -> Value:
        """A shape, or a number in it."""
        if isinstance(value, Sizes):
            value, index = value.of, node.args[1]
        elif name == "size" and (len(node.args) > 1 or node.kwargs):
            index = argument(node, 1, "dim", None)
        elif name in ("size", "shape"):
            return Sizes(value) if isinstance(value, Units | Other) else None
        else:
            index = None
        if index == 0 and not (isinstance(value, Units) and value.rank == -value.dim):
            return Count(None)
        return Count(value.space) if isinstance(value, Units) and value.may_lie_at(index) else None

    def _reshaped(self, node: fx.Node, name: str, value: Units, dims: tuple[int, ...]) -> Value:
        before, after = self._shape(node.args[0]), self._shapes.get(node)
        if before is not None and after is not None:
            place = after_reshape(before, len(before) + value.dim, after)
            if place is not None and self._follows(node, name, place[0], value.space):
                return replace(value, dim=place[0], rank=len(after), flat=value.flat or place[1])
        elif value.rank is not None and value.dim == 1 - value.rank and self._flattens_channels(node, name, dims):
            return replace(value, dim=-1, rank=2, flat=True)
        how = (
            "writes a size into the forward, which would not follow the width. Use flatten(1), or -1 in its place"
            if name in ("view", "reshape") and before is not None
            else "moves its units. Give example_input, so that it is known where to"
        )
        return self._lost(node, name, how)

    def _follows(self, node: fx.Node, name: str, place: int, space: Space) -> bool:
        """Whether the size of the units' dimension in a view follows the width: left open, or read from the units."""
        if name not in ("view", "reshape"):
            return True
        sizes = [self._values[size] if isinstance(size, fx.Node) else size for size in numbers_given(node)]
        if -place > len(sizes) or any(isinstance(size, Sizes) for size in sizes):
            return False
        at_place = sizes.pop(place)
        if any(isinstance(size, Count) and size.space for size in sizes):
            return False
        if isinstance(at_place, Count) and at_place.space is not None:
            at_place.space.join(space, name)  # their number is that of other units: they go together
            return True
        return bool(at_place == -1)

    def _flattens_channels(self, node: fx.Node, name: str, dims: tuple[int, ...]) -> bool:
        """Whether [samples, channels, …] becomes [samples, channels · …], as far as that is told without shapes."""
        if name == "flatten":
            start = dims[0] if dims else argument(node, 1, "start_dim", 0)
            end = dims[1] if len(dims) > 1 else argument(node, 2, "end_dim", -1)
            return start == 1 and end == -1
        sizes = numbers_given(node)
        samples = isinstance(sizes[0], fx.Node) and self._values[sizes[0]] == Count(None) if sizes else False
        return name in ("view", "reshape") and samples and sizes[1:] == [-1]

    def _reduced(self, node: fx.Node, name: str, value: Units) -> Value:
        after = reduced(node, name, value)
        if after is not None:
            return after
        if goes_over_units(node, value):
            return self._lost(node, name, "goes over its units: leave the width fixed")
        return self._lost(node, name, "may go over its units. Give example_input, or leave the width fixed")

    # What nodes have in common

    def _attribute(self, node: fx.Node) -> Value:
        path, _, name = str(node.target).rpartition(".")
        owner = self._modules.get(path)
        tensor = getattr(owner, name, None)
        shape = self._shapes.get(node, tuple(tensor.shape) if isinstance(tensor, Tensor) else None)
        if owner is not None and size_names(owner):
            # Its weight is used by the forward itself: what becomes of the units then is not known.
            self.layers.add(owner)
            self._own(owner).fix(f"the forward uses {node.target!r} directly")
            self._read_too(owner, Other("the forward itself"), path)
        return Other(f"{node.target!r} of shape {shape}", shape)

    def _inputs(self, node: fx.Node) -> Iterator[Value]:
        return (self._values[argument] for argument in node.all_input_nodes)

    def _mixed(self, node: fx.Node, what: str, kind: str) -> Value:
        why = MIXING.get(kind, "may mix its units: no rule knows it. Name the layers with groups=, or add a rule")
        return self._lost(node, what, why)

    def _lost(self, node: fx.Node, what: str, why: str) -> Value:
        """After an operation that units cannot be followed through: their number must stay."""
        self._fix_all(node, f"{what} {why}")
        return Other(f"what {what.rstrip(',')} gives", self._shapes.get(node))

    def _mixed_by(self, node: fx.Node, module: nn.Module, why: str | None = None) -> Value:
        kind = type(module).__name__
        what = f"{node.target!r}, a {kind},"
        if size_names(module):
            self.fix(module, f"{what} {why or 'acts on something else than units'}")
        return self._mixed(node, what, kind) if why is None else self._lost(node, what, why)

    def _fix_all(self, node: fx.Node, reason: str) -> None:
        self._fix_values(self._inputs(node), reason)

    def _fix_values(self, values: Iterable[Value], reason: str) -> None:
        for value in values:
            if isinstance(value, Sizes | Pair):
                value = value.of
            if isinstance(value, Units | Count) and value.space is not None:
                value.space.fix(reason)

    def _value_of(self, argument: Any) -> Value:
        return self._values[argument] if isinstance(argument, fx.Node) else None

    def _shape(self, argument: Any) -> Shape | None:
        return self._shapes.get(argument) if isinstance(argument, fx.Node) else None

    def _rank(self, node: fx.Node, otherwise: int | None) -> int | None:
        shape = self._shapes.get(node)
        return otherwise if shape is None else len(shape)


def _at_channels(module: nn.Module, value: Units) -> bool:
    """Whether the units lie where a norm or a depthwise convolution has its channels: along dimension 1."""
    if is_depthwise(module):
        kind = layout_of(module)
        return kind is not None and value.dim == kind.unit_dim and value.space.units == units_made_by(module)
    fits: bool = value.space.units == units_made_by(module)
    return fits and (value.rank is None or value.dim == 1 - value.rank)
