"""Cover: the branches of the user's own forwards that no recording took."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torch import nn

# Forwards of these packages have branches for options that nobody can list.
_LIBRARIES = ("torch", "transformers", "torch_geometric", "timm", "diffusers", "awn", "peft")


class Cover:
    """The lines of the user's own forwards that ran.

    >>> Cover(nn.Sequential(nn.Linear(2, 2))).not_taken()
    []
    """

    def __init__(self, model: nn.Module) -> None:
        self._functions: dict[CodeType, Any] = {}
        for module in model.modules():
            forward = type(module).forward
            code = getattr(forward, "__code__", None)
            if code is not None and type(module).__module__.split(".")[0] not in _LIBRARIES:
                self._functions[code] = forward
        self._lines: dict[CodeType, set[int]] = {code: set() for code in self._functions}

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Note the lines that run in the block, unless something else, such as a debugger, does so."""
        if not self._functions or sys.gettrace() is not None:
            yield
            return
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code in self._lines else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._lines[frame.f_code].add(frame.f_lineno)
        return self._line

    def not_taken(self) -> list[str]:
        """The first lines of branches that did not run, in forwards that did."""
        found = []
        for code, lines in self._lines.items():
            for line in _branches(self._functions[code]) if lines else ():
                if line not in lines:
                    found.append(f"{Path(code.co_filename).name}:{line}")
        return found


def _branches(function: Any) -> list[int]:
    """The first lines of a function's branches, without those that only raise."""
    try:
        source, start = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(source)))
    except (OSError, SyntaxError, TypeError, IndentationError):
        return []
    found = []
    for node in ast.walk(tree):
        for body in (node.body, node.orelse) if isinstance(node, ast.If) else ():
            if body and not isinstance(body[0], ast.Raise):
                found.append(start + body[0].lineno - 1)
    return sorted(found)
