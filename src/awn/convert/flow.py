"""Flow: follow units through the graph of a forward, from the layers that make them to those that read them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from torch import Tensor, fx, nn

from awn.convert.graphs import Shape, Traced
from awn.convert.layers import acts_by_unit, inputs_of, is_changed, is_depthwise, kind_of, size_names, units_made_by
from awn.convert.operations import (
    ACTIVATIONS,
    DEVIATIONS,
    LIKE_TANH,
    MIXING,
    NO_TENSOR,
    REDUCTIONS,
    SIZES,
    SPATIAL_FUNCTIONS,
    SPATIAL_MODULES,
    UNIT_WISE,
    UNIT_WISE_MODULES,
    torch_name,
)
from awn.convert.shapes import after_reduction, after_reshape, from_end
from awn.convert.spaces import Count, Other, Sizes, Space, Units
from awn.initialise import gain_of

# What a node of the graph gives; None for what is no activation, such as a type.
Value: TypeAlias = Units | Other | Sizes | Count | None

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
            self._values[node] = self._value(node)
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
            return self._mixed_by(node, module, "has a hook, or a forward of its own. Set it after adapt_")
        if kind_of(module) and not is_depthwise(module):
            return self._weighted(node, module, value)
        if not isinstance(value, Units):
            return self._mixed_by(node, module)
        if isinstance(module, UNIT_WISE_MODULES):
            if not isinstance(module, nn.Identity | nn.modules.dropout._DropoutNd):
                value.space.root.gain = gain_of(module)
            return value
        if acts_by_unit(module) and not value.flat and _at_channels(module, value):
            value.space.join(self._own(module), f"a {type(module).__name__}")
            return value
        if isinstance(module, nn.PReLU) and module.num_parameters == 1:
            return value
        spatial = next((dims for kind, dims in SPATIAL_MODULES.items() if isinstance(module, kind)), None)
        if spatial is not None and value.dim < -spatial and not getattr(module, "return_indices", False):
            return value
        if isinstance(module, nn.Flatten):
            return self._reshaped(node, "flatten", value, (module.start_dim, module.end_dim))
        return self._mixed_by(node, module)

    def _weighted(self, node: fx.Node, module: nn.Module, value: Value) -> Value:
        """A layer that reads its inputs by a weight, and so makes units of its own."""
        kind = kind_of(module)
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
        value = units[0]
        if len(units) == 1:
            if name in _RESHAPES:
                return self._reshaped(node, name, value, tuple(arg for arg in node.args[1:] if isinstance(arg, int)))
            if name in REDUCTIONS:
                return self._reduced(node, name, value)
            if name in ("transpose", "permute", "swapaxes"):
                return self._moved(node, name, value)
            one_result = not node.kwargs.get("return_indices", False)
            if name in SPATIAL_FUNCTIONS and value.dim < -SPATIAL_FUNCTIONS[name] and one_result:
                return value
            padding = _argument(node, 1, "pad", None)
            if name == "pad" and isinstance(padding, tuple | list) and value.dim < -(len(padding) // 2):
                return value
            if name == "interpolate" and value.rank is not None and value.dim == 1 - value.rank:
                return value
            if name in ("softmax", "log_softmax", "cumsum"):
                dim = _argument(node, 1, "dim", None)
                dims = from_end(dim, value.rank) if isinstance(dim, int) else None
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
        ranks = [value.rank for value in units] + [_rank_of(value) for value in values if isinstance(value, Other)]
        known = [rank for rank in ranks if rank is not None]
        return replace(first, rank=self._rank(node, max(known) if len(known) == len(ranks) else None))

    def _size(self, node: fx.Node, name: str, value: Value) -> Value:
        """A shape, or a number in it."""
        if isinstance(value, Sizes):
            value, index = value.of, node.args[1]
        elif name == "size" and (len(node.args) > 1 or node.kwargs):
            index = _argument(node, 1, "dim", None)
        elif name in ("size", "shape"):
            return Sizes(value) if isinstance(value, Units | Other) else None
        else:
            index = None
        if index == 0:
            return Count(None)
        return Count(value.space) if isinstance(value, Units) and _may_name(index, value) else None

    def _reshaped(self, node: fx.Node, name: str, value: Units, dims: tuple[int, ...]) -> Value:
        before, after = self._shape(node.args[0]), self._shapes.get(node)
        if before is not None and after is not None:
            place = after_reshape(before, len(before) + value.dim, after)
            if place is not None and self._follows(node, name, place[0], value.space):
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

    def _follows(self, node: fx.Node, name: str, place: int, space: Space) -> bool:
        """Whether the size of the units' dimension in a view follows the width: left open, or read from the units."""
        if name not in ("view", "reshape"):
            return True
        sizes = [self._values[size] if isinstance(size, fx.Node) else size for size in _sizes(node)]
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
            start = dims[0] if dims else _argument(node, 1, "start_dim", 0)
            end = dims[1] if len(dims) > 1 else _argument(node, 2, "end_dim", -1)
            return start == 1 and end == -1
        sizes = _sizes(node)
        samples = isinstance(sizes[0], fx.Node) and self._values[sizes[0]] == Count(None) if sizes else False
        return name in ("view", "reshape") and samples and sizes[1:] == [-1]

    def _reduced(self, node: fx.Node, name: str, value: Units) -> Value:
        dims = from_end(_argument(node, 1, "dim", ()), value.rank)
        if dims and not value.flat and (len(node.args) < 3 or name not in DEVIATIONS):
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
            return replace(value, rank=self._rank(node, value.rank - taken))
        return self._mixed(node, "an index", "getitem")

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
        self._fix_all(node, f"{what} {why}")
        return Other(f"what {what.rstrip(',')} gives", self._shapes.get(node))

    def _mixed_by(self, node: fx.Node, module: nn.Module, why: str | None = None) -> Value:
        kind = type(module).__name__
        what = f"{node.target!r}, a {kind},"
        if size_names(module):
            self.fix(module, f"{what} {why or 'acts on something else than units'}")
        if why is None:
            return self._mixed(node, what, kind)
        self._fix_all(node, f"{what} {why}")
        return Other(f"what {node.target!r} gives", self._shapes.get(node))

    def _fix_all(self, node: fx.Node, reason: str) -> None:
        self._fix_values(self._inputs(node), reason)

    def _fix_values(self, values: Iterable[Value], reason: str) -> None:
        for value in values:
            if isinstance(value, Sizes):
                value = value.of
            if isinstance(value, Units | Count) and value.space is not None:
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
    given = (*node.args[1:], *node.kwargs.values())
    return list(itertools.chain.from_iterable(size if isinstance(size, tuple | list) else [size] for size in given))


def _rank_of(other: Other) -> int | None:
    return None if other.shape is None else len(other.shape)


def _may_name(index: Any, value: Units) -> bool:
    """Whether an index into the shape of an activation may name the dimension of its units."""
    if isinstance(index, int):
        dims = from_end(index, value.rank)
        return dims is None or dims == [value.dim]
    if value.rank is not None and isinstance(index, slice):
        return value.rank + value.dim in range(value.rank)[index]
    return index != slice(None, -1, None) or value.dim < -1
