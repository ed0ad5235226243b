"""Calls: whether a forward that cannot be traced uses its parts as wholes, as far as its source tells.

A part of a model may be traced by itself only if the rest calls it, and does nothing else with it: a loop over the
layers of an `nn.Sequential` sees its hidden units. So every mention of a part must be one that is known to be harmless.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
from collections.abc import Collection, Sequence
from functools import partial
from types import FunctionType, ModuleType

from torch import nn

from awn.adapt.layers import size_names

_CONTAINERS = (nn.ModuleList, nn.ModuleDict)
# With one of these, any part may be meant.
_ALL_PARTS = frozenset(
    ["children", "named_children", "modules", "named_modules", "get_submodule", "_modules", "__dict__", "vars"]
)
_BY_NAME = frozenset(["getattr", "setattr", "attrgetter", "methodcaller"])
_HARMLESS = frozenset(["isinstance", "hasattr", "type", "super", "id", "len"])


def parts_called_whole(module: nn.Module, functions: Collection[FunctionType]) -> set[str]:
    """The names of a module's parts that the functions of its forward only call: those of a list one by one.

    >>> class Twice(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.part, self.other = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    ...     def forward(self, x):
    ...         return self.part(x) + self.other[0](x)
    >>> parts_called_whole(Twice(), [Twice.forward])
    {'part'}
    """
    parts = dict(module.named_children())
    if modules_held_by(module):
        return set()
    for function in functions:
        try:
            source = _Source(function, functions)
        except (OSError, TypeError, SyntaxError):
            return set()
        if source.may_use_any_part():
            return set()
        parts = {name: part for name, part in parts.items() if source.only_calls(name, part)}
    return set(parts)


class _Source:
    """The source of a function, with what every piece of it stands in."""

    def __init__(self, function: FunctionType, others: Collection[FunctionType]) -> None:
        self._others = others
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        self._nodes = list(ast.walk(tree))
        self._around = {inner: outer for outer in self._nodes for inner in ast.iter_child_nodes(outer)}
        # Of a method, its first parameter; a function of a file or of a function has none.
        of_class = "." in function.__qualname__ and function.__qualname__.split(".")[-2] != "<locals>"
        self._owner = next(iter(inspect.signature(function).parameters), None) if of_class else None
        self._globals = function.__globals__

    def may_use_any_part(self) -> bool:
        """Whether it asks for all parts, for one whose name is not written down, or hands the module on."""
        for node in self._nodes:
            if isinstance(node, ast.Attribute) and node.attr in _ALL_PARTS and isinstance(node.value, ast.Name):
                return True
            if isinstance(node, ast.Name) and node.id in _ALL_PARTS:
                return True
            if isinstance(node, ast.Call) and _name(node.func) in _BY_NAME and _literal(node) is None:
                return True
            if isinstance(node, ast.Name) and node.id == self._owner and self._hands_on(node):
                return True
        return False

    def only_calls(self, name: str, part: nn.Module) -> bool:
        """Whether every mention of a part is a call of it."""
        for node in self._nodes:
            if isinstance(node, ast.Attribute) and node.attr == name and not self._is_call(node, [part]):
                return False
            if isinstance(node, ast.Call) and _name(node.func) in _BY_NAME and _literal(node) == name:
                return False
        return True

    def _hands_on(self, node: ast.Name) -> bool:
        outer = self._around[node]
        if isinstance(outer, ast.Attribute):
            return False
        if not isinstance(outer, ast.Call) or node is outer.func:
            return True
        callee = _name(outer.func)
        helper = self._globals.get(callee) if isinstance(outer.func, ast.Name) else None
        read = inspect.isfunction(helper) and inspect.unwrap(helper) in self._others
        return not (read or callee in _HARMLESS or callee == "getattr" or _is_super(outer.func))

    def _is_call(self, node: ast.AST, modules: Sequence[nn.Module]) -> bool:
        """Whether what is done with an expression that gives one of the modules is to call it."""
        outer = self._around[node]
        listed = all(isinstance(module, _CONTAINERS) for module in modules)
        inside = [part for module in modules for part in module.children()]
        if isinstance(outer, ast.Call):
            if node is outer.func:
                return not listed
            name = _name(outer.func)
            if name in _HARMLESS or (name == "checkpoint" and node is outer.args[0]):
                return True
            if name in ("enumerate", "zip", "reversed") and listed:
                loop = self._around[outer]
                place = 1 if name == "enumerate" else outer.args.index(node) if name == "zip" else None  # type: ignore[arg-type]
                return _is_loop(loop, outer) and self._binds(loop.target, place, inside)  # type: ignore[attr-defined]
            return False
        if isinstance(outer, ast.If | ast.IfExp | ast.While) and outer.test is node:
            return True
        if isinstance(outer, ast.Assign) and outer.value is node and len(outer.targets) == 1:
            return self._binds(outer.targets[0], None, modules)
        if isinstance(outer, ast.Compare):
            return all(isinstance(one, ast.Constant) and one.value is None for one in outer.comparators)
        if isinstance(outer, ast.Attribute) and all(_is_plain(module, outer.attr) for module in modules):
            return True
        if not listed:
            return False
        if _is_loop(outer, node):
            return self._binds(outer.target, None, inside)  # type: ignore[attr-defined]
        if isinstance(outer, ast.Subscript) and outer.value is node:
            return self._is_call(outer, inside)
        if isinstance(outer, ast.Attribute):
            named = [part for module in modules for name, part in module.named_children() if name == outer.attr]
            if named:
                return self._is_call(outer, named)
            called = self._around[outer]
            return outer.attr in ("values", "keys") and isinstance(called, ast.Call) and self._is_call(called, modules)
        return False

    def _binds(self, target: ast.AST, place: int | None, modules: Sequence[nn.Module]) -> bool:
        """Whether a name that stands for the modules in turn is only called."""
        if place is not None:
            if not isinstance(target, ast.Tuple) or place >= len(target.elts):
                return False
            target = target.elts[place]
        if not isinstance(target, ast.Name) or not modules:
            return False
        uses = [node for node in self._nodes if isinstance(node, ast.Name) and node.id == target.id]
        return all(isinstance(use.ctx, ast.Store) or self._is_call(use, modules) for use in uses)


def _is_plain(module: nn.Module, name: str) -> bool:
    """Whether an attribute is a plain value that no change of width touches."""
    value = vars(module).get(name, module)
    return isinstance(value, bool | int | float | str | None) and name not in size_names(module)


def _literal(call: ast.Call) -> str | None:
    """The name that `getattr` and its like ask for, if it is written down."""
    asked = call.args[1] if len(call.args) > 1 else None
    return asked.value if isinstance(asked, ast.Constant) and isinstance(asked.value, str) else None


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_super(node: ast.AST) -> bool:
    """Whether it is a method of `super()`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call) and _name(node.value.func) == "super"


def _is_loop(node: ast.AST, over: ast.AST) -> bool:
    return isinstance(node, ast.For | ast.comprehension) and node.iter is over


def modules_held_by(module: nn.Module) -> set[nn.Module]:
    """The modules in plain attributes of a module, under which names nobody knows.

    >>> holder = nn.Module()
    >>> holder.some = [nn.ReLU()]
    >>> modules_held_by(holder)
    {ReLU()}
    """
    return {held for name, value in vars(module).items() if name != "_modules" for held in _modules_in(value, depth=4)}


def closed_over(function: FunctionType) -> list[object]:
    """What a function has from the functions around it; a name that they have yet to give a value has none."""
    found = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty
            found.append(cell.cell_contents)
    return found


def _modules_in(value: object, depth: int) -> set[nn.Module]:
    if isinstance(value, nn.Module):
        return {value}
    if depth == 0 or isinstance(value, str | int | float | type | ModuleType | None):
        return set()
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, list | tuple | set):
        inner = list(value)
    elif isinstance(value, partial):
        inner = [value.func, value.args, value.keywords]
    else:
        closed = closed_over(value) if inspect.isfunction(value) else ()
        inner = [getattr(value, "__self__", None), *closed, *getattr(value, "__dict__", {}).values()]
    return set().union(*(_modules_in(one, depth - 1) for one in inner))
