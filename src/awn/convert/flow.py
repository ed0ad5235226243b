"""Flow: follow units through the graph of a forward, from the layers that make them to those that read them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from torch import fx, nn

from awn.convert.layers import Norm, inputs_of, is_depthwise, kind_of, units_made_by
from awn.convert.operations import (
    ACTIVATIONS,
    LIKE_TANH,
    MIXING,
    NO_TENSOR,
    REDUCTIONS,
    SPATIAL_FUNCTIONS,
    SPATIAL_MODULES,
    UNIT_WISE,
    UNIT_WISE_MODULES,
)
from awn.convert.shapes import after_reduction, after_reshape, from_end
from awn.convert.spaces import Other, Space, Units
from awn.initialise import gain_of

# What a node of the graph gives; None for what is no activation, such as a size.
Value: TypeAlias = Units | Other | None
Shape: TypeAlias = tuple[int, ...]

_RESHAPES = ("view", "reshape", "flatten", "squeeze", "unsqueeze")


class Flow:
    """One pass over a graph. `spaces` are then all the units it met, those whose number must stay with the reason."""

    def __init__(self, scope: nn.Module, graph: fx.Graph, shapes: Mapping[fx.Node, Shape]) -> None:
        self._modules = dict(scope.named_modules())
        self._scope = scope
        self._shapes = shapes
        self._made: dict[nn.Module, Space] = {}
        self._read: dict[nn.Module, Value] = {}
        self._values: dict[fx.Node, Value] = {}
        for node in graph.nodes:
            self._values[node] = self._value(node)

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
            return self._module(node, self._modules[str(node.target)])
        name = node.target if isinstance(node.target, str) else node.target.__name__
        return self._function(node, name)

    # Modules

    def _module(self, node: fx.Node, module: nn.Module) -> Value:
        inputs = list(self._inputs(node))
        value = inputs[0] if inputs else None
        if kind_of(module) and not is_depthwise(module):
            return self._weighted(node, module, value)
        if not isinstance(value, Units) or len(inputs) > 1:
            return self._mixed(node, f"{node.target!r}, a {type(module).__name__},", type(module).__name__)
        if isinstance(module, UNIT_WISE_MODULES):
            if not isinstance(module, nn.Identity | nn.modules.dropout._DropoutNd):
                value.space.root.gain = gain_of(module)
            return value
        by_unit = isinstance(module, Norm | nn.PReLU) or is_depthwise(module)
        if by_unit and not value.flat and _at_channels(module, value):
            return self._acts_on_each(module, value)
        if isinstance(module, nn.PReLU) and module.num_parameters == 1:
            return value
        spatial = next((dims for kind, dims in SPATIAL_MODULES.items() if isinstance(module, kind)), None)
        if spatial is not None and value.dim < -spatial:
            return value
        if isinstance(module, nn.Flatten):
            return self._reshaped(node, "flatten", value, (module.start_dim, module.end_dim))
        return self._mixed(node, f"{node.target!r}, a {type(module).__name__},", type(module).__name__)

    def _weighted(self, node: fx.Node, module: nn.Module, value: Value) -> Value:
        """A layer that reads its inputs by a weight, and so makes units of its own."""
        kind = kind_of(module)
        assert kind is not None
        space = self._made.get(module)
        if space is None:
            space = self._made[module] = Space(units_made_by(module))
            space.makers.append(module)
        if getattr(module, "groups", 1) > 1:
            self._fix_all(node, f"{node.target!r} reads its units in {module.groups} groups")
            space.fix(f"it makes its units in {module.groups} groups")
        elif isinstance(value, Units):
            self._reads(node, module, value, kind.unit_dim)
        earlier = self._read.setdefault(module, value)
        if isinstance(earlier, Units) != isinstance(value, Units):
            for one in (earlier, value):
                if isinstance(one, Units):
                    one.space.fix(f"{node.target!r} reads its units, and in another place something else")
        elif isinstance(earlier, Units) and isinstance(value, Units):
            earlier.space.join(value.space, f"{node.target!r}, which is used twice,")
        return Units(space, kind.unit_dim, self._rank(node, 1 - kind.unit_dim if kind.unit_dim < -1 else None))

    def _reads(self, node: fx.Node, module: nn.Module, value: Units, dim: int) -> None:
        size = inputs_of(module)
        fits = size % value.space.units == 0 if value.flat else size == value.space.units
        if value.dim != dim or not fits:
            value.space.fix(f"{node.target!r} reads its units along another dimension than the one they lie in")
        value.space.root.readers.append(module)

    def _acts_on_each(self, module: nn.Module, value: Units) -> Value:
        """A norm or a depthwise convolution: it has an entry of its own for each unit."""
        space = Space(units_made_by(module))
        space.makers.append(module)
        known = self._made.setdefault(module, space)
        value.space.join(known, f"a {type(module).__name__}")
        return value

    # Functions and methods

    def _function(self, node: fx.Node, name: str) -> Value:
        values = list(self._inputs(node))
        if name in NO_TENSOR or (name == "getattr" and node.args[1] in NO_TENSOR):
            return None
        units = [value for value in values if isinstance(value, Units)]
        if not units:
            # Sizes, and what is computed from them, are no activations.
            return Other(f"what {name} gives", self._shapes.get(node)) if values and any(values) else None
        if name in UNIT_WISE:
            return self._entry_by_entry(node, name, values)
        value = units[0]
        if len(units) == 1:
            if name in _RESHAPES:
                return self._reshaped(node, name, value, tuple(arg for arg in node.args[1:] if isinstance(arg, int)))
            if name in REDUCTIONS:
                return self._reduced(node, name, value)
            if name in ("transpose", "permute", "swapaxes"):
                return self._moved(node, name, value)
            if name in SPATIAL_FUNCTIONS and value.dim < -SPATIAL_FUNCTIONS[name]:
                return value
            if name == "pad" and isinstance(node.args[1], tuple | list) and value.dim < -(len(node.args[1]) // 2):
                return value
            if name == "interpolate" and value.rank is not None and value.dim == 1 - value.rank:
                return value
            if name in ("softmax", "log_softmax", "cumsum"):
                dims = from_end(_argument(node, 1, "dim", -1), value.rank)
                if dims is not None and value.dim not in dims:
                    return value
            if name == "getitem":
                return self._indexed(node, value)
        return self._mixed(node, name, name)

    def _entry_by_entry(self, node: fx.Node, name: str, values: list[Value]) -> Value:
        units = [value for value in values if isinstance(value, Units)]
        first = units[0]
        if name in ACTIVATIONS or name in LIKE_TANH:
            first.space.root.gain = 1.0 if name in LIKE_TANH else 2**0.5
        for value in units[1:]:
            if (value.dim, value.flat) != (first.dim, first.flat):
                for one in (first, value):
                    one.space.fix(f"{name} joins it with units that lie along another dimension")
            first.space.join(value.space, name)
        for other in values:
            if isinstance(other, Other) and not _broadcasts(other, first.dim):
                first.space.fix(f"{name} joins its units with {other.what}, whose width is fixed")
        return first

    def _reshaped(self, node: fx.Node, name: str, value: Units, dims: tuple[int, ...]) -> Value:
        before, after = self._shape(node.args[0]), self._shapes.get(node)
        if before is not None and after is not None:
            place = after_reshape(before, len(before) + value.dim, after)
            if place is not None and not (name in ("view", "reshape") and _is_written(node, place[0], len(after))):
                return Units(value.space, place[0], len(after), value.flat or place[1])
        elif value.rank is not None and value.dim == 1 - value.rank and self._flattens_channels(node, name, dims):
            return Units(value.space, -1, 2, flat=True)
        how = (
            "writes a size into the forward, which would not follow the width. Use flatten(1), or -1 in its place"
            if name in ("view", "reshape") and before is not None
            else "moves its units. Give example_input, so that it is known where to"
        )
        self._fix_all(node, f"{name} {how}")
        return Other(f"what {name} gives", after)

    def _flattens_channels(self, node: fx.Node, name: str, dims: tuple[int, ...]) -> bool:
        """Whether [samples, channels, …] becomes [samples, channels · …], as far as that is told without shapes."""
        if name == "flatten":
            start = dims[0] if dims else _argument(node, 1, "start_dim", 0)
            end = dims[1] if len(dims) > 1 else _argument(node, 2, "end_dim", -1)
            return start == 1 and end == -1
        sizes = _sizes(node)
        return name in ("view", "reshape") and len(sizes) == 2 and isinstance(sizes[0], fx.Node) and sizes[1] == -1

    def _reduced(self, node: fx.Node, name: str, value: Units) -> Value:
        dims = from_end(_argument(node, 1, "dim", ()), value.rank)
        if dims and not value.flat:
            keepdim = bool(_argument(node, 2, "keepdim", False))
            dim = after_reduction(value.dim, dims, keepdim)
            if dim is not None:
                rank = value.rank if keepdim or value.rank is None else value.rank - len(dims)
                return Units(value.space, dim, rank)
        self._fix_all(node, f"{name} may sum over its units. Give example_input, or leave the width fixed")
        return Other(f"what {name} gives", self._shapes.get(node))

    def _moved(self, node: fx.Node, name: str, value: Units) -> Value:
        """Dimensions in another order."""
        dims = from_end(_sizes(node), value.rank)
        if dims is not None and name == "permute":
            return Units(value.space, dims.index(value.dim) - len(dims), len(dims), value.flat)
        if dims is not None and len(dims) == 2:
            swap = {dims[0]: dims[1], dims[1]: dims[0]}
            return Units(value.space, swap.get(value.dim, value.dim), value.rank, value.flat)
        self._fix_all(node, f"{name} moves its units. Give example_input, so that it is known where to")
        return Other(f"what {name} gives", self._shapes.get(node))

    def _indexed(self, node: fx.Node, value: Units) -> Value:
        """`x[:, -1]` and its like: the dimensions after those that are named stay as they are."""
        index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        plain = all(isinstance(one, int | slice) for one in index)
        if plain and value.rank is not None and len(index) <= value.rank + value.dim:
            taken = sum(isinstance(one, int) for one in index)
            return Units(value.space, value.dim, value.rank - taken, value.flat)
        return self._mixed(node, "an index", "getitem")

    # What nodes have in common

    def _attribute(self, node: fx.Node) -> Value:
        path, _, name = str(node.target).rpartition(".")
        owner = self._modules.get(path)
        shape = tuple(getattr(getattr(owner, name, None), "shape", ()))
        if owner is not None and kind_of(owner):
            # Its weight is used by the forward itself: what becomes of the units then is not known.
            space = self._made.setdefault(owner, Space(units_made_by(owner)))
            space.makers.append(owner)
            space.fix(f"the forward uses {node.target!r} directly")
            self._read.setdefault(owner, Other("the forward itself"))
        return Other(f"{node.target!r}, of shape {shape},", shape)

    def _inputs(self, node: fx.Node) -> Iterator[Value]:
        return (self._values[argument] for argument in node.all_input_nodes)

    def _mixed(self, node: fx.Node, what: str, kind: str) -> Value:
        why = MIXING.get(kind, "may mix its units: no rule knows it. Name the layers with groups=, or add a rule")
        self._fix_all(node, f"{what} {why}")
        return Other(f"what {what.rstrip(',')} gives", self._shapes.get(node))

    def _fix_all(self, node: fx.Node, reason: str) -> None:
        for value in self._inputs(node):
            if isinstance(value, Units):
                value.space.fix(reason)

    def _shape(self, argument: Any) -> Shape | None:
        return self._shapes.get(argument) if isinstance(argument, fx.Node) else None

    def _rank(self, node: fx.Node, otherwise: int | None) -> int | None:
        shape = self._shapes.get(node)
        return otherwise if shape is None else len(shape)


def _at_channels(module: nn.Module, value: Units) -> bool:
    """Whether the units lie where a norm or a depthwise convolution has its channels: along dimension 1."""
    if is_depthwise(module):
        kind = kind_of(module)
        return kind is not None and value.dim == kind.unit_dim and value.space.units == units_made_by(module)
    fits: bool = value.space.units == units_made_by(module)
    return fits and (value.rank is None or value.dim == 1 - value.rank)


def _broadcasts(other: Other, dim: int) -> bool:
    """Whether the other has one entry along the units' dimension, for all units the same."""
    return other.shape is not None and (len(other.shape) < -dim or other.shape[dim] == 1)


def _argument(node: fx.Node, place: int, name: str, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _sizes(node: fx.Node) -> list[Any]:
    """The numbers that a view, a reshape or a permute is given, in a list or one by one."""
    given = node.args[1:]
    return list(itertools.chain.from_iterable(size if isinstance(size, tuple | list) else [size] for size in given))


def _is_written(node: fx.Node, place: int, rank: int) -> bool:
    """Whether the size of the units' dimension stands in the code as a number, which no change of width would move."""
    sizes = _sizes(node)
    return len(sizes) == rank and isinstance(sizes[place], int) and sizes[place] != -1
