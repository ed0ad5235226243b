"""Calls: which modules a forward calls that cannot be traced, as far as its source tells.

A part of a model may be traced by itself only if the rest calls it as a whole. What takes it apart, such as a loop over
the layers of an `nn.Sequential`, sees its hidden units.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from types import FunctionType
from typing import Any

from torch import nn

Modules = set[nn.Module]

# They give what they are given, one by one; they give what is inside of it; and they give all that is inside of that.
_PASS_ON = frozenset(
    ["enumerate", "zip", "reversed", "sorted", "list", "tuple", "iter", "values", "items", "children", "named_children"]
)
_OPEN = frozenset(["next", "getattr"])
_OPEN_ALL = frozenset(["modules", "named_modules", "get_submodule"])


def modules_called(module: nn.Module) -> Modules | None:
    """The modules that the forward of a module, by itself, may call or hand on; None if its source cannot be read.

    >>> from awn.paper.models.perceptron import Perceptron
    >>> modules_called(Perceptron(2, [3], 2, "relu"))   # its forward is torch's
    set()
    """
    reader = _Reader()
    forward = inspect.unwrap(type(module).forward)
    try:
        reader.read(forward, [{module}], {})
    except (OSError, TypeError, SyntaxError):
        return None
    return reader.called


class _Reader:
    """Follows modules through the names of a function's source, whatever the order in which it runs."""

    def __init__(self) -> None:
        self.called: Modules = set()
        self._read: set[tuple[Any, ...]] = set()

    def read(self, function: FunctionType, given: Iterable[Modules], named: dict[str, Modules]) -> Modules:
        """Take in a function that is given modules; returns those that it may return."""
        if function.__module__.startswith("torch."):
            return set()
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        known = dict(zip(inspect.signature(function).parameters, given, strict=False)) | named
        state = (function, *((name, frozenset(known[name])) for name in sorted(known)))
        if state in self._read:
            return set()
        self._read.add(state)
        scope = _Scope(self, function, known)
        nodes = list(ast.walk(tree))
        size = -1
        while size != scope.size:  # until no name stands for more than before
            size = scope.size
            for node in nodes:
                scope.bind(node)
        for node in nodes:
            if isinstance(node, ast.Call):
                scope.call(node)
        returned = [node.value for node in nodes if isinstance(node, ast.Return) and node.value is not None]
        return set().union(*map(scope.value, returned))


class _Scope:
    """What the names of one function may stand for."""

    def __init__(self, reader: _Reader, function: FunctionType, known: dict[str, Modules]) -> None:
        self._reader = reader
        self._globals = function.__globals__
        self._known = {name: set(modules) for name, modules in known.items()}

    @property
    def size(self) -> int:
        return sum(map(len, self._known.values()))

    def bind(self, node: ast.AST) -> None:
        """Give names the modules that a statement gives them."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._name(target, self.value(node.value))
        elif isinstance(node, ast.NamedExpr | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            self._name(node.target, self.value(node.value))
        elif isinstance(node, ast.For | ast.comprehension):
            self._name(node.target, _inside(self.value(node.iter)))

    def value(self, node: ast.AST) -> Modules:
        """The modules that an expression may give, by themselves or in a list."""
        if isinstance(node, ast.Name):
            return self._known.get(node.id, set())
        if isinstance(node, ast.Attribute):
            return _attributes(self.value(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            return _inside(self.value(node.value))
        if isinstance(node, ast.Call):
            return self.call(node)
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        return set().union(*map(self.value, parts))

    def call(self, node: ast.Call) -> Modules:
        """Note what is called, and say what modules the call may return."""
        given = [self.value(argument) for argument in node.args]
        named = {each.arg: self.value(each.value) for each in node.keywords if each.arg is not None}
        handed = set().union(*given, *named.values())
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owners = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else set()
        called = self.value(node.func) | (owners if name in ("forward", "__call__") else set())
        if called:
            self._reader.called |= called | handed
            return set()
        if name in _PASS_ON:
            return handed | owners
        if name in _OPEN:
            return handed | {child for module in handed for child in module.children()}
        if name in _OPEN_ALL:
            return {part for owner in owners for part in owner.modules()}
        returned: Modules = set()
        for owner in owners:
            method = getattr(type(owner), name, None)
            if inspect.isfunction(method):
                returned |= self._reader.read(inspect.unwrap(method), [{owner}, *given], named)
        helper = self._globals.get(name)
        if not owners and inspect.isfunction(helper) and not helper.__module__.startswith("torch."):
            returned |= self._reader.read(inspect.unwrap(helper), given, named)
        elif not owners:
            self._reader.called |= handed  # as by a checkpoint, which calls what it is given
        return returned

    def _name(self, target: ast.AST, modules: Modules) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and modules:
                self._known.setdefault(node.id, set()).update(modules)


def _attributes(owners: Modules, name: str) -> Modules:
    found = [getattr(owner, name, None) for owner in owners]
    flat = [one for value in found for one in (value if isinstance(value, list | tuple) else [value])]
    return {one for one in flat if isinstance(one, nn.Module)}


def _inside(modules: Modules) -> Modules:
    """What a loop over modules may give: those of a list themselves, and what is inside of those that are lists."""
    lists = [module for module in modules if hasattr(module, "__iter__") or hasattr(module, "__getitem__")]
    return modules | {child for module in lists for child in module.children()}
