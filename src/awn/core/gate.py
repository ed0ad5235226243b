"""Gates: a consumer's weight is multiplied by the importance of the units that it reads.

(f ⊙ h) Wᵀ = h (W · diag f)ᵀ, so a gate need not touch the activations. A gated layer has a subclass of its own class,
`GatedLinear` for `nn.Linear`, with a property in place of the weight: `layer.weight` is the product, and the raw
Parameter stays in `layer._parameters["weight"]`, where optimizers, state dicts and DistributedDataParallel find it by
its usual name. Changing `layer.__class__` gates a layer, and changing it back removes the gate.

Three traps shaped this file:

- An AttributeError inside a property makes Python fall back to `nn.Module.__getattr__`, which finds the raw weight.
  `_read` turns it into another error.
- `nn.Module.register_parameter` reads the property by `hasattr`, also in the middle of a resize, when sizes do not fit.
  It and `reset_parameters` run as the plain class.
- `nn.init` would write to a product, which is then lost. The product's version counter reveals it at the next read.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from awn.basics.tracing import is_symbolically_traced, is_traced
from awn.core.axis import Block, Layout
from awn.core.gated_linear import gated_linear, saves_memory
from awn.core.gated_rnn import CONTENT as RECURRENT
from awn.core.gated_rnn import hide_list_, restore_list_
from awn.core.width import Width
from awn.errors import ArgumentError, GateError
from awn.parallel.sharded import refuse_sharded
from awn.parallel.watch import Watch


@dataclass(eq=False)
class Gate:
    """Dimension `dim` of a weight reads the units of `width`; see `awn.core.axis.Axis` for the layout."""

    width: Width
    dim: int
    layout: Layout = 1
    #: Detects a DistributedDataParallel that still holds Parameters which a resize has replaced.
    watch: Watch | None = None

    def on(self, weight: Tensor) -> Tensor:
        """The product of the weight and the importance of the units that it reads."""
        importance = self.importance(weight)
        if importance.is_meta != weight.is_meta:  # a loader has filled one of the two so far: only shapes are known
            return torch.empty_like(weight, device="meta")
        trailing = weight.dim() - 1 - self.dim
        return weight * (importance.view(-1, *[1] * trailing) if trailing else importance)

    def importance(self, weight: Tensor, *, in_forward: bool = True) -> Tensor:
        """The importance of every entry that the weight reads, in the weight's dtype; see `Width.importance`."""
        if self.watch is not None:
            self.watch.look(weight)
        if type(weight) is not nn.Parameter:
            refuse_sharded([weight])
        importance = self.width.importance(in_forward=in_forward)
        if importance.dtype != weight.dtype:
            importance = importance.to(weight.dtype)
        if isinstance(self.layout, int):
            return importance if self.layout == 1 else importance.repeat_interleave(self.layout)
        return torch.cat([self._of_block(block, importance) for block in self.layout])

    def _of_block(self, block: Block, importance: Tensor) -> Tensor:
        """The importance of the entries of a block: 1 if they are not of this width."""
        if block.of is None and not block.fixed:
            return importance.repeat_interleave(block.entries)
        return importance.new_ones(block.entries * (1 if block.of is None else block.of.capacity))


class Gated:
    """The base that every gated class has besides the layer's own class."""

    #: The layer's own class, to which it returns when its last gate is removed.
    _plain: type[nn.Module]
    #: The gates of each weight, by its name.
    _gates: dict[str, tuple[Gate, ...]]
    _parameters: dict[str, nn.Parameter | None]

    def __delattr__(self, name: str) -> None:
        """Raise for a gated weight: torch deletes a weight before it parametrizes or prunes it."""
        if name in self._gates:
            self.__dict__.pop("_written", None)
            raise GateError(
                f"{name} of {self._plain.__name__} reads units of a learned width, so it cannot be deleted, pruned or "
                "parametrized (weight norm, spectral norm). Call awn.finalize(model) first, and change the result."
            )
        super().__delattr__(name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as the plain class and gate the copy, since pickle cannot find a gated class by its name."""
        self._check_writes()
        reduced: tuple[Any, ...] = tuple(super().__reduce_ex__(protocol))
        make, arguments, *state = reduced
        arguments = tuple(self._plain if argument is type(self) else argument for argument in arguments)
        return (_make_gated, (tuple(self._gates), make, arguments), *state)

    def _product(self, name: str) -> Tensor | None:
        self._check_writes()
        if (products := self.__dict__.get("_products")) is not None:  # inside read_once, perhaps of another thread
            return products[name]  # type: ignore[no-any-return]
        weight: Tensor | None = self._parameters.get(name)
        for gate in self._gates[name] if weight is not None else ():
            assert weight is not None
            weight = gate.on(weight)
        return weight

    def _watch_writes(self, product: Tensor | None) -> None:
        """Keep the version counter of a product, without its memory, to detect writes to it."""
        if type(product) is Tensor and not is_traced() and not product.is_inference():
            written = product.detach()
            written.data = product.new_empty(0)
            self.__dict__["_written"] = written

    def _check_writes(self) -> None:
        if torch.compiler.is_compiling():
            return
        written = self.__dict__.pop("_written", None)
        if written is not None and written._version:
            raise GateError(
                f"torch.nn.init, or other code, wrote to the weight of a {type(self).__name__}. Every read computes "
                "this weight, so the values were lost. Initialise the model before awn.adapt_, or write to the stored "
                'weight, layer._parameters["weight"].'
            )


def gate_(layer: nn.Module, width: Width, dim: int, name: str = "weight", layout: Layout = 1) -> None:
    """Gate the weight `name` of a layer, whose dimension `dim` reads the units of a width.

    >>> from awn import Exponential
    >>> layer, width = nn.Linear(3, 2), Width(Exponential.for_units(3, scale="unit"), block=1)
    >>> raw = layer.weight
    >>> gate_(layer, width, dim=1)
    >>> layer
    GatedLinear(in_features=3, out_features=2, bias=True)
    >>> torch.equal(layer.weight, raw * width.importance()), layer._parameters["weight"] is raw
    (True, True)
    """
    check_gateable(layer, name)
    gates = dict(gates_of(layer))
    gates[name] = (*gates.get(name, ()), Gate(width, dim, layout))
    layer.__class__ = _gated_class(plain_class(layer), tuple(gates))
    layer.__dict__["_gates"] = gates
    if isinstance(layer, nn.RNNBase):
        hide_list_(layer)


def ungate_(layer: nn.Module, width: Width) -> None:
    """Remove the gates of a width from a layer; its raw weights stay as they are.

    >>> from awn import Exponential
    >>> layer, width = nn.Linear(3, 2), Width(Exponential.for_units(3), block=1)
    >>> gate_(layer, width, dim=1)
    >>> ungate_(layer, width)
    >>> type(layer) is nn.Linear
    True
    """
    if not isinstance(layer, Gated):
        return
    layer._check_writes()
    left = {name: tuple(gate for gate in gates if gate.width is not width) for name, gates in layer._gates.items()}
    left = {name: gates for name, gates in left.items() if gates}
    plain: Any = layer._plain
    layer.__class__ = _gated_class(plain, tuple(left)) if left else plain
    if left:
        layer.__dict__["_gates"] = left
    else:
        for attribute in ("_gates", "_written"):
            layer.__dict__.pop(attribute, None)
        if isinstance(layer, nn.RNNBase):
            restore_list_(layer)


def gates_of(layer: nn.Module) -> dict[str, tuple[Gate, ...]]:
    """The gates of a layer, by the name of the gated weight.

    >>> gates_of(nn.Linear(3, 2))
    {}
    """
    return layer._gates if isinstance(layer, Gated) else {}


def plain_class(layer: nn.Module) -> type[nn.Module]:
    """The class of a layer without its gates.

    >>> plain_class(nn.Linear(3, 2))
    <class 'torch.nn.modules.linear.Linear'>
    """
    return layer._plain if isinstance(layer, Gated) else type(layer)


def check_gateable(layer: nn.Module, name: str) -> None:
    """Raise if a weight cannot be gated. Nothing is changed."""
    plain, weight = plain_class(layer), layer._parameters.get(name)
    if weight is None or getattr(plain, name, None) is not None:
        raise ArgumentError(
            f"{plain.__name__}.{name} is not a stored Parameter: a parametrization such as weight norm, or pruning, "
            "computes it from other tensors. Remove the parametrization or pruning first."
        )
    if nn.parameter.is_lazy(weight):
        raise ArgumentError(f"{plain.__name__}.{name} is lazy: it has no shape yet. Run the model once first.")
    if isinstance(layer, torch.jit.ScriptModule):
        raise ArgumentError(f"{plain.__name__} is compiled by torch.jit.script. Make the model adaptive first.")
    if getattr(layer, "sparse", False) or getattr(layer, "max_norm", None) is not None:
        raise ArgumentError(
            f"{plain.__name__} has sparse gradients, or renormalises its {name} in place (max_norm). Neither works on "
            "a computed weight. Leave these options out."
        )


@contextmanager
def read_once(model: nn.Module) -> Iterator[None]:
    """Compute each gated weight of a model once, for a forward that reads it many times.

    >>> from awn import Exponential
    >>> layer, width = nn.Linear(3, 2), Width(Exponential.for_units(3), block=1)
    >>> gate_(layer, width, dim=1)
    >>> with read_once(layer):
    ...     print(layer.weight is layer.weight)
    True
    """
    # A compiler eliminates common subexpressions itself.
    layers = [] if torch.compiler.is_compiling() else [one for one in model.modules() if isinstance(one, Gated)]
    layers = [layer for layer in layers if "_products" not in layer.__dict__]
    for layer in layers:
        layer.__dict__["_products"] = {name: layer._product(name) for name in layer._gates}
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["_products"]


# Values are weak, so that classes made inside a function can be garbage-collected.
_classes: weakref.WeakValueDictionary[tuple[type, tuple[str, ...]], type] = weakref.WeakValueDictionary()


def _gated_class(plain: type[nn.Module], names: tuple[str, ...]) -> Any:
    """The cached subclass of a layer's class that has a property in place of each gated weight."""
    if (gated := _classes.get((plain, names))) is not None:
        return gated
    # torch.fx recognises the layers of torch.nn, its leaves, by the module of their class.
    content: dict[str, Any] = {"_plain": plain, "__module__": plain.__module__, "__doc__": plain.__doc__}
    content |= {name: property(functools.partial(_read, name=name)) for name in names}
    if plain.forward is nn.Linear.forward:
        content["forward"] = _linear_forward
    content |= {name: _as_plain(name) for name in ("reset_parameters", "register_parameter") if name in dir(plain)}
    content |= RECURRENT if issubclass(plain, nn.RNNBase) else {}
    try:
        metaclass: Any = type(plain)
        gated = metaclass(f"Gated{plain.__name__}", (Gated, plain), content)
    except TypeError as error:
        raise ArgumentError(f"{plain.__name__} cannot be gated, because it allows no subclass: {error}") from error
    _classes[plain, names] = gated
    return gated


def _make_gated(names: tuple[str, ...], make: Callable[..., nn.Module], arguments: tuple[Any, ...]) -> nn.Module:
    """Called by pickle, which sets the state, including the gates, afterwards."""
    layer = make(*arguments)
    layer.__class__ = _gated_class(type(layer), names)
    return layer


def _as_plain(method: str) -> Callable[..., None]:
    def call(self: Any, *arguments: Any, **named: Any) -> None:
        gated, self.__class__ = type(self), self._plain
        try:
            getattr(self, method)(*arguments, **named)
        finally:
            self.__class__ = gated

    return call


def _read(layer: Any, name: str) -> Tensor | None:
    """The getter of `layer.weight`."""
    if is_symbolically_traced():
        raise GateError(
            f"torch.fx would record the present value of {name} as a constant. Trace the model before it becomes "
            "adaptive, or trace awn.finalize(model)."
        )
    try:
        product: Tensor | None = layer._product(name)
    except AttributeError as error:
        raise GateError(f"the gate of {name} failed: {error}") from error
    layer._watch_writes(product)
    return product


def _linear_forward(self: Any, input: Tensor) -> Tensor:
    """The forward of a gated linear layer: it scales the input or the weight, whichever has fewer elements."""
    weight, gates = self._parameters["weight"], self._gates["weight"]
    gate = gates[0]
    if (
        is_traced()  # tracing would fix the choice for the size of this batch
        or "_products" in self.__dict__
        or type(input) is not Tensor
        or len(gates) != 1
        or gate.dim != 1
    ):
        return F.linear(input, self._product("weight"), self.bias)
    if "_written" in self.__dict__:
        self._check_writes()
    if saves_memory(input, weight):
        return gated_linear(input, weight, self.bias, gate.importance(weight))
    if input.numel() < weight.numel():
        return F.linear(input * gate.importance(weight), weight, self.bias)
    return F.linear(input, gate.on(weight), self.bias)
