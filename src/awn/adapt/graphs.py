"""Graphs of a module's forward, one for each way in which it may run: as it trains or not, with an argument or without.

A graph shows one path through the code. Whatever could send the real call along another one must be tried as well, or
the forward counts as one that cannot be traced.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from awn.adapt.calls import closed_over
from awn.adapt.layers import is_changed, size_names
from awn.adapt.operations import NO_TENSOR, SIZES, torch_name
from awn.adapt.untouched import untouched
from awn.basics.random_states import random_states, set_random_states
from awn.core.axes import layout_of

Shape: TypeAlias = tuple[int, ...]
# Modules of these libraries are looked into by rules alone: their forwards are not meant to be traced.
_NOT_TRACED = ("torch.nn", "transformers.", "torch_geometric.")
_QUESTIONS = {"isinstance", "is_tensor", "type"}
_PLAIN = (bool, int, float, str, type(None))


class UntraceableError(Exception):
    """Why the forward of a module cannot be known from graphs."""


@dataclass(frozen=True)
class Call:
    """The arguments that a module was called with, the random states at that time, and what it returned."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random: Any
    result: Any


@dataclass(frozen=True)
class Traced:
    """A graph of a forward; the shapes of its activations, if they are known; and those that it keeps on a module."""

    graph: fx.Graph
    shapes: Mapping[fx.Node, Shape]
    kept: Sequence[fx.Node]


def graphs_of(module: nn.Module, opaque: Collection[nn.Module], calls: Sequence[Call]) -> list[Traced]:
    """Every way in which a forward may run: as the example called it, or else with each optional argument and without.

    >>> class Twice(nn.Module):
    ...     def forward(self, x, mask=None):
    ...         return x if mask is None else x * mask
    >>> sum(len(one.graph.nodes) for one in graphs_of(Twice(), [], []))   # with and without, training or not
    16
    """
    if "forward" in module.__dict__:
        raise UntraceableError(f"the forward of this {type(module).__name__} was replaced")
    if not calls:
        _refuse_questions(module, opaque)
    ways: list[tuple[Call | None, dict[str, Any]]] = [(call, _concrete(module, call)) for call in calls]
    ways = ways or [(None, choice) for choice in _choices(module)]
    traced = []
    for training in (True, False):
        for call, concrete in ways:
            with untouched(module):
                module.train(training)
                graph = _trace(module, opaque, concrete, call)
                kept = [proxy.node for part in module.modules() for proxy in _proxies(part.__dict__)]
                # Tensors that the code makes out of nothing are lent to the module by the tracer.
                constants = {node: getattr(module, name) for node in graph.nodes if (name := _constant(node))}
            shapes = {node: tuple(tensor.shape) for node, tensor in constants.items()}
            if call is not None:
                with untouched(module):
                    for node, tensor in constants.items():
                        setattr(module, str(node.target), tensor)
                    shapes |= _shapes(module, graph, call, concrete, check=not training)
            traced.append(Traced(graph, shapes, kept))
    return traced


def _refuse_questions(module: nn.Module, opaque: Collection[nn.Module]) -> None:
    """Refuse code that asks what kind of value it has: what stands for a tensor while tracing answers otherwise.

    With an example there is no need: the graph is run and compared with the module.
    """
    parts = [part for part in module.modules() if not (part in opaque or is_of_library(part) or is_changed(part))]
    for function in functions_of_forward(parts):
        if _QUESTIONS & _names_in(function.__code__):
            raise UntraceableError(
                f"{function.__name__} of {type(module).__name__} asks what kind of value it has, which is another when "
                "it is traced"
            )


def functions_of_forward(parts: Sequence[nn.Module], *, of_libraries: bool = True) -> Iterator[FunctionType]:
    """The functions in the code of some modules that their forwards may come to, going by the names that stand in it.

    What only builds a module or draws its weights is not among them; nor is torch, nor, unless asked for, other
    libraries whose modules are known by rules.
    """
    kinds = dict.fromkeys(kind for part in parts for kind in type(part).__mro__)
    own = [vars(kind) for kind in kinds if not kind.__module__.startswith(("torch.", "builtins"))]
    places = [*own, *map(vars, parts)]
    # Python itself calls the methods with underscores around them.
    names = {"forward", *(name for place in own for name in place if re.fullmatch("__.+__", name))} - {"__init__"}
    reached: set[FunctionType] = set()
    waiting = [function for name in sorted(names) for function in _functions_called(name, places)]
    while waiting:
        function = waiting.pop()
        left_out = function.__module__.startswith("torch.") or not (of_libraries or _is_of_users(function))
        if function not in reached and not left_out:
            reached.add(function)
            yield function
            for name in sorted(_names_in(function.__code__)):
                waiting += _functions_called(name, [*places, function.__globals__])
            # A decorator has the function that it decorates in its closure.
            waiting += [one for one in closed_over(function) if inspect.isfunction(one)]


def _is_of_users(function: FunctionType) -> bool:
    home = function.__module__
    return not home.startswith(_NOT_TRACED) and home.split(".")[0] not in sys.stdlib_module_names


def _functions_called(name: str, places: Iterable[Mapping[str, Any]]) -> Iterator[FunctionType]:
    """What a name may stand for, by itself or after a dot: functions, methods and properties."""
    for value in [place[name] for place in places if name in place]:
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if inspect.isfunction(function):
            yield inspect.unwrap(function)


def _names_in(code: CodeType) -> set[str]:
    """The names in a function's code and in that of what it defines: lambdas, comprehensions, functions."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names_in, inner))


def _constant(node: fx.Node) -> str | None:
    return str(node.target) if node.op == "get_attr" and str(node.target).startswith("_tensor_constant") else None


def layers_measured(module: nn.Module, opaque: Collection[nn.Module], calls: Sequence[Call]) -> list[nn.Module]:
    """The layers whose recorded size, such as `out_features`, a forward computes with: it changes with the width."""
    concrete = _concrete(module, calls[0]) if calls else next(_choices(module))
    layers = [layer for layer in module.modules() if size_names(layer)]

    def code(changed: Sequence[nn.Module]) -> str:
        with untouched(module):
            for layer in changed:
                for name in size_names(layer):
                    setattr(layer, name, getattr(layer, name) + 1)
            try:
                return str(_trace(module, opaque, concrete, calls[0] if calls else None))
            except UntraceableError as error:  # an assertion about sizes
                return str(error)

    present = code([])
    return [] if code(layers) == present else [layer for layer in layers if code([layer]) != present]


def is_of_library(module: nn.Module) -> bool:
    """Whether a module is of a library whose forwards are not looked into.

    >>> is_of_library(nn.Linear(2, 2)), is_of_library(nn.Sequential())
    (True, False)
    """
    if layout_of(module) is not None:  # of torch, or in all that counts like a layer of torch
        return True
    return type(module).__module__.startswith(_NOT_TRACED) and not isinstance(module, nn.Sequential)


class _Tracer(fx.Tracer):
    # As parameters are: what a forward computes from a norm's statistics is then seen.
    proxy_buffer_attributes = True

    def __init__(self, opaque: Collection[nn.Module], concrete: Mapping[str, Any], call: Call | None) -> None:
        super().__init__()
        self._opaque, self._concrete, self._call = opaque, concrete, call
        self._answers = False  # whether modules are run, and not traced

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m in self._opaque or is_of_library(m) or is_changed(m)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """A condition about shapes has the answer of the example; about numbers, none that would hold for others."""
        if self._call is None or not _is_of_shapes(obj.node):
            return super().to_bool(obj)
        so_far, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        so_far.graph_copy(self.graph, copies)
        so_far.output(copies[obj.node])
        assert isinstance(self.root, nn.Module)
        values = _placed(self.root, so_far, self._call, self._concrete)
        states, self._answers = random_states(), True
        training = [module for module in self.root.modules() if module.training]
        try:
            self.root.eval()  # as the example ran
            with torch.no_grad():
                return bool(fx.Interpreter(fx.GraphModule(self.root, so_far)).run(*values))
        finally:
            set_random_states(states)
            for module in training:
                module.training = True
            self._answers = False

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a module to answer a question; else as torch traces it."""
        return forward(*args, **kwargs) if self._answers else super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """A parameter itself to answer a question; else what stands for it."""
        return attr_val if self._answers else super().getattr(attr, attr_val, parameter_proxy_cache)


def _is_of_shapes(node: fx.Node) -> bool:
    """Whether a value comes from the shapes, or the kinds, of activations alone."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = torch_name(node.target)
    if (str(node.args[1]) if name == "getattr" else name) in SIZES | NO_TENSOR:
        return True
    by_python = getattr(node.target, "__module__", None) == "_operator"
    return by_python and all(map(_is_of_shapes, node.all_input_nodes))


def _trace(
    module: nn.Module, opaque: Collection[nn.Module], concrete: Mapping[str, Any], call: Call | None
) -> fx.Graph:
    before = random_states()
    try:
        graph = _Tracer(opaque, concrete, call).trace(module, concrete_args=dict(concrete))
    except UntraceableError:
        raise
    except Exception as error:  # whatever code of others does that cannot be traced
        why = _first_line(error)
        raise UntraceableError(f"the forward of {type(module).__name__} cannot be traced: {why}") from error
    if not _same(before, random_states()):
        raise UntraceableError(f"the forward of {type(module).__name__} draws random numbers, and may go by them")
    return graph


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].split(". ")[0].rstrip(".")


def _parameters(module: nn.Module) -> dict[str, inspect.Parameter]:
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = inspect.signature(module.forward).parameters
    return {name: parameter for name, parameter in given.items() if parameter.kind not in several}


def _choices(module: nn.Module) -> Iterator[dict[str, Any]]:
    """The optional arguments of a forward at their defaults, and with one after the other of them given."""
    defaults = {name: one.default for name, one in _parameters(module).items() if one.default is not one.empty}
    plain = {name: default for name, default in defaults.items() if isinstance(default, _PLAIN)}
    yield plain
    for name, default in plain.items():
        if default is None:
            yield {other: value for other, value in plain.items() if other != name}
        elif isinstance(default, bool):
            yield {**plain, name: not default}


def _concrete(module: nn.Module, call: Call) -> dict[str, Any]:
    """The arguments of a call that are no tensors, given or by default: code may go by them."""
    bound = inspect.signature(module.forward).bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    return {name: bound.arguments[name] for name in _parameters(module) if isinstance(bound.arguments[name], _PLAIN)}


def _proxies(value: Any) -> Iterator[fx.Proxy]:
    """The activations in an attribute of a module."""
    if isinstance(value, fx.Proxy):
        yield value
    elif isinstance(value, dict | list | tuple | set):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _proxies(one)


class _ShapeReader(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.shapes: dict[str, Shape] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.shapes[n.name] = tuple(result.shape)
        return result


def _shapes(
    module: nn.Module, graph: fx.Graph, call: Call, concrete: Mapping[str, Any], *, check: bool
) -> dict[fx.Node, Shape]:
    """The shape of every activation in a call; `check`: and whether the graph computes what the module did."""
    reader = _ShapeReader(fx.GraphModule(module, graph))
    values = list(_placed(module, graph, call, concrete))
    module.eval()
    set_random_states(call.random)
    try:
        with torch.no_grad():
            result = reader.run(*values)
    except Exception as error:
        why = _first_line(error)
        raise UntraceableError(f"the forward of {type(module).__name__} does not run as traced: {why}") from error
    if check and not _same(result, call.result):
        raise UntraceableError(f"the forward of {type(module).__name__} computes something else than what was traced")
    return {node: reader.shapes[node.name] for node in graph.nodes if node.name in reader.shapes}


def _placed(module: nn.Module, graph: fx.Graph, call: Call, concrete: Mapping[str, Any]) -> Iterator[Any]:
    """The arguments of a call in the order in which a graph takes them."""
    bound = inspect.signature(module.forward).bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    for name in (str(node.target) for node in graph.nodes if node.op == "placeholder"):
        given = bound.arguments.get(name.lstrip("*"))
        if name.startswith("**"):
            if given:
                raise UntraceableError(f"the forward of {type(module).__name__} is given {name}, which is not traced")
        elif name.startswith("*"):
            yield from given or ()
        else:  # to the name of an argument that is no tensor the tracer adds a number
            yield given if name in bound.arguments else concrete[re.sub(r"_\d+$", "", name)]


def _same(one: Any, two: Any) -> bool:
    """Whether two results agree, tensor by tensor and number by number."""
    leaves, other_leaves = pytree.tree_leaves(one), pytree.tree_leaves(two)
    if len(leaves) != len(other_leaves):
        return False
    for a, b in zip(leaves, other_leaves, strict=True):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            if a.shape != b.shape or not torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True):
                return False
        elif isinstance(a, _PLAIN) and a != b:
            return False
    return True
