"""Tracing: the graph of a forward, of the whole model or of the parts that can be traced where the whole cannot."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from awn.convert.flow import Flow, Shape
from awn.convert.hidden import Hidden, Refusal
from awn.convert.rules import apply_rules
from awn.example import as_call

# Models of these libraries are known by rules; their forwards are not meant to be traced.
_NOT_TRACED = ("transformers.", "torch_geometric.")


def find_hidden(model: nn.Module, example_input: Any = None) -> list[Hidden | Refusal]:
    """Every hidden axis of a model, by the rules and else by tracing, and the layers whose width cannot be learned.

    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1))
    >>> [type(found).__name__ for found in find_hidden(model)]
    ['Hidden', 'Refusal', 'Refusal']
    """
    calls = {} if example_input is None else _record_calls(model, example_input)
    return _Search(calls).visit(model)


class _Search:
    """The search through the tree of modules, from the leaves up: what cannot be traced is a leaf to its parent."""

    def __init__(self, calls: Mapping[nn.Module, tuple[Sequence[Any], Mapping[str, Any]]]) -> None:
        self.calls = calls
        self.opaque: set[nn.Module] = set()
        self.found: dict[nn.Module, list[Hidden | Refusal]] = {}

    def visit(self, module: nn.Module) -> list[Hidden | Refusal]:
        if module in self.found:  # shared: once is enough
            return []
        self.found[module] = []
        inside = [found for child in module.children() for found in self.visit(child)]
        by_rule = apply_rules(module)
        if by_rule is not None:
            self.opaque.add(module)
            found = [*inside, *by_rule]
        elif _is_leaf(module):
            self.opaque.add(module)
            found = inside
        else:
            found = self._trace(module, inside)
        self.found[module] = found
        return found

    def _trace(self, module: nn.Module, inside: list[Hidden | Refusal]) -> list[Hidden | Refusal]:
        args, kwargs = self.calls.get(module, ((), {}))
        try:
            graph = _Tracer(self.opaque).trace(module, concrete_args=_defaults(module, args, kwargs))
            shapes = _shapes(module, graph, args, kwargs) if module in self.calls else {}
        except Exception:  # whatever code of others does that cannot be traced: its parts may be
            self.opaque.add(module)
            return inside
        flow = Flow(module, graph, shapes)
        leaves = {module.get_submodule(str(node.target)) for node in graph.nodes if node.op == "call_module"}
        order = {each: place for place, each in enumerate(module.modules())}
        found: list[Hidden | Refusal] = [each for space in flow.spaces if (each := space.found(order)) is not None]
        within = [leaf for leaf in leaves if leaf in self.opaque and list(leaf.children())]
        hidden_within = {layer for leaf in within for layer in leaf.modules()}
        found = [_not_used_inside(each, hidden_within) for each in found]
        found += [each for leaf in sorted(within, key=lambda leaf: order[leaf]) for each in self.found[leaf]]
        return found


def _is_leaf(module: nn.Module) -> bool:
    """Whether a module is of a library whose forwards are not looked into."""
    home = type(module).__module__
    return home.startswith(("torch.nn", *_NOT_TRACED)) and not isinstance(module, nn.Sequential)


class _Tracer(fx.Tracer):
    def __init__(self, opaque: set[nn.Module]) -> None:
        super().__init__()
        self._opaque = opaque

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m in self._opaque or _is_leaf(m)


def _not_used_inside(found: Hidden | Refusal, others: set[nn.Module]) -> Hidden | Refusal:
    """A layer that a part which was not traced uses as well: what happens to its units there is not known."""
    if isinstance(found, Hidden) and any(layer in others for layer in (*found.producers, *found.consumers)):
        return Refusal(found.producers[0], "a module whose forward cannot be traced uses it too")
    return found


def _defaults(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a call leaves out, at their defaults: a `mask=None` must not be traced as a mask."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    return {
        parameter.name: kwargs.get(parameter.name, parameter.default)
        for place, parameter in enumerate(parameters)
        if parameter.default is not parameter.empty
        and place >= len(args)
        and not isinstance(kwargs.get(parameter.name), Tensor)
    }


def _record_calls(model: nn.Module, example_input: Any) -> dict[nn.Module, tuple[Sequence[Any], Mapping[str, Any]]]:
    """What every module is called with, the first time, in a forward of the example."""
    calls: dict[nn.Module, tuple[Sequence[Any], Mapping[str, Any]]] = {}

    def record(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if list(module.children()):
            calls.setdefault(module, (args, dict(kwargs)))

    with contextlib.ExitStack() as undo:
        undo.enter_context(_untouched(model))
        for module in model.modules():
            undo.callback(module.register_forward_pre_hook(record, with_kwargs=True).remove)
        given, named = as_call(example_input)
        model(*given, **named)
    return calls


class _ShapeReader(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.shapes: dict[str, Shape] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.shapes[n.name] = tuple(result.shape)
        return result


def _shapes(module: nn.Module, graph: fx.Graph, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[fx.Node, Shape]:
    """The shape of every activation in a forward of the example."""
    reader = _ShapeReader(fx.GraphModule(module, graph))
    parameters = [name for name in inspect.signature(module.forward).parameters if name not in ("args", "kwargs")]
    given = dict(zip(parameters, args, strict=False)) | dict(kwargs)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    with _untouched(module):
        reader.run(*(given.get(str(node.target).split("_1")[0], given.get(str(node.target))) for node in placeholders))
    return {node: reader.shapes[node.name] for node in graph.nodes if node.name in reader.shapes}


@contextlib.contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """A forward inside leaves no trace: no batch statistics, no random numbers used up, no gradients."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
