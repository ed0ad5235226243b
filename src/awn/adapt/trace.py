"""Tracing: hidden layers from graphs of the whole model, or of the parts that can be traced where the whole cannot."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from awn.adapt.calls import modules_held_by, parts_called_whole
from awn.adapt.flow import Flow
from awn.adapt.graphs import Call, UntraceableError, functions_of_forward, graphs_of, is_of_library, layers_measured
from awn.adapt.hidden import Hidden, Refusal
from awn.adapt.layers import is_changed
from awn.adapt.rules import apply_rules
from awn.adapt.untouched import untouched
from awn.basics.example import as_call
from awn.basics.random_states import random_states
from awn.core.axes import layout_of
from awn.errors import ArgumentError

Found = list[Hidden | Refusal]


def find_hidden(model: nn.Module, example_input: Any = None) -> list[Hidden | Refusal]:
    """Every hidden axis of a model, by the rules and else by tracing, and the layers whose width cannot be learned.

    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1))
    >>> [type(found).__name__ for found in find_hidden(model)]
    ['Hidden', 'Refusal', 'Refusal']
    """
    search = _Search(model, None if example_input is None else _run_example(model, example_input))
    return search.visit(model)


class _Search:
    """The search through the tree of modules, from the leaves up: what cannot be traced is a leaf to its parent."""

    def __init__(self, model: nn.Module, example: _Example | None) -> None:
        self.calls = None if example is None else example.calls
        self.surroundings = {} if example is None else example.surroundings
        self.opaque: set[nn.Module] = set()
        self.found: dict[nn.Module, Found] = {}
        self.paths: dict[nn.Module, list[str]] = {}
        for path, module in model.named_modules(remove_duplicate=False):
            self.paths.setdefault(module, []).append(f"{path}." if path else "")
        #: Modules in plain attributes, such as lists, of others.
        self.holders: dict[nn.Module, list[nn.Module]] = {}
        for holder in self.paths:
            for held in modules_held_by(holder):
                for layer in held.modules():
                    self.holders.setdefault(layer, []).append(holder)

    def visit(self, module: nn.Module) -> Found:
        if module in self.found:  # shared: once is enough
            return []
        self.found[module] = []
        inside = [found for child in module.children() for found in self.visit(child)]
        by_rule = apply_rules(module)
        if by_rule is not None:
            self.opaque.add(module)
            found = [*inside, *(self._used_here_alone(one, module) for one in by_rule)]
        elif is_of_library(module):
            self.opaque.add(module)
            found = inside
        else:
            found = self._trace(module, inside)
        self.found[module] = found
        return found

    def _trace(self, module: nn.Module, inside: Found) -> Found:
        calls = (self.calls or {}).get(module, [])
        try:
            if self.calls is not None and not calls:
                raise UntraceableError(f"the forward of the example does not call this {type(module).__name__}")
            graphs = graphs_of(module, self.opaque, calls)
        except UntraceableError as error:
            self.opaque.add(module)
            way_out = "Name" if self.calls is not None else "Give example_input, name"
            why = f"{error}. {way_out} the layers with groups=, or add a rule"
            whole = parts_called_whole(module, set(functions_of_forward([module], of_libraries=False)))
            inside = [self._not_taken_apart(each, module, whole) for each in inside]
            return [*inside, *(Refusal(layer, why) for layer in _loose_layers(module))]
        flow = Flow(module)
        for graph in graphs:
            flow.follow(graph)
        for layer in layers_measured(module, self.opaque, calls):
            flow.fix(layer, f"the forward of {type(module).__name__} computes with the size of a layer")
        order = {each: place for place, each in enumerate(module.modules())}
        found = [each for space in flow.spaces for each in space.found(order)]
        within = [leaf for leaf in flow.leaves if leaf in self.opaque and list(leaf.children())]
        hidden_within = {layer for leaf in within for layer in leaf.modules()}
        found = [_not_used_in(each, hidden_within) for each in found]
        for leaf in sorted(within, key=order.__getitem__):
            found += [_not_used_in(each, flow.layers) for each in self.found[leaf]]
        if is_changed(module):
            self.opaque.add(module)
        return [self._used_here_alone(each, module) for each in found]

    def _used_here_alone(self, found: Hidden | Refusal, scope: nn.Module) -> Hidden | Refusal:
        """Layers of which all uses were seen: none may stand outside of the part of the model that was looked at."""
        if isinstance(found, Hidden):
            for layer in (*found.producers, *found.consumers):
                elsewhere = [path for path in self.paths[layer] if not path.startswith(tuple(self.paths[scope]))]
                around = self.surroundings.get(layer, [])
                by_others = any(scope not in each or any(layer not in one.modules() for one in each) for each in around)
                holders = self.holders.get(layer, [])
                held = any(holder in self.opaque or holder not in scope.modules() for holder in holders)
                if elsewhere or by_others or held:
                    path = (elsewhere or self.paths[layer])[0].rstrip(".")
                    return Refusal(found.producers[0], f"another part of the model uses {path!r} too")
        return found

    def _not_taken_apart(self, found: Hidden | Refusal, parent: nn.Module, whole: set[str]) -> Hidden | Refusal:
        """A hidden axis in a part of a module that was not traced, whose forward may use the part's layers alone."""
        if isinstance(found, Hidden):
            inside = {layer for name, part in parent.named_children() if name in whole for layer in part.modules()}
            if not {*found.producers, *found.consumers} <= inside:
                forward = f"the forward of {type(parent).__name__}, which cannot be traced,"
                way_out = "Name" if self.calls is not None else "Give example_input, or name"
                return Refusal(
                    found.producers[0],
                    f"{forward} may do something else with it than to call the whole part that it is in. "
                    f"{way_out} the layers with groups=",
                )
        return found


def _loose_layers(module: nn.Module) -> Iterator[nn.Module]:
    """The layers that a module, and no part of it, calls: its own, and those in its lists."""
    for child in module.children():
        if layout_of(child):
            yield child
        elif isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _loose_layers(child)


def _not_used_in(found: Hidden | Refusal, others: set[nn.Module]) -> Hidden | Refusal:
    """A layer that is used both inside a part which was not traced and outside of it: nobody has seen all its uses."""
    if isinstance(found, Hidden) and any(layer in others for layer in (*found.producers, *found.consumers)):
        return Refusal(found.producers[0], "a module whose forward cannot be traced uses it too")
    return found


@dataclass(frozen=True)
class _Example:
    """What a forward of an example did: the calls of every module, each kind once, and inside of which others."""

    calls: dict[nn.Module, list[Call]]
    surroundings: dict[nn.Module, list[set[nn.Module]]]


def _run_example(model: nn.Module, example_input: Any) -> _Example:
    calls: dict[nn.Module, dict[Any, Call]] = {}
    surroundings: dict[nn.Module, list[set[nn.Module]]] = {}
    under_way: list[tuple[nn.Module, Any]] = []

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        surroundings.setdefault(module, []).append({each for each, _ in under_way})
        under_way.append((module, None if is_of_library(module) else (_copied((args, kwargs)), random_states())))

    def after(module: nn.Module, _: Any, __: Any, result: Any) -> None:
        _, noted = under_way.pop()
        if noted is not None:
            (args, kwargs), states = noted
            call = Call(args, kwargs, states, _copied(result))
            calls.setdefault(module, {}).setdefault(_kind((args, kwargs)), call)

    with contextlib.ExitStack() as undo:
        undo.enter_context(untouched(model))
        undo.enter_context(torch.no_grad())
        model.eval()
        for module in model.modules():
            undo.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
            undo.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        given, named = as_call(example_input)
        try:
            model(*given, **named)
        except Exception as error:
            raise ArgumentError(f"example_input does not run through the model: {error}") from error
    return _Example({module: list(each.values()) for module, each in calls.items()}, surroundings)


def _kind(arguments: Any) -> Any:
    """What tells calls apart: the shapes of tensors, and all else by what it is."""
    leaves, form = pytree.tree_flatten(arguments)
    return str(form), tuple(str(tuple(one.shape)) if isinstance(one, Tensor) else repr(one) for one in leaves)


def _copied(values: Any) -> Any:
    """Values that nothing in place changes afterwards."""
    return pytree.tree_map(lambda one: one.clone() if isinstance(one, Tensor) else one, values)
