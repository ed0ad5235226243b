"""An extension of griffe, which reads docstrings for the reference: examples with prompts become code blocks."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).*)*", re.MULTILINE)


class FencedExamples(griffe.Extension):
    """Set off every example of a docstring, with what it prints, as a fenced block."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    r"""A docstring whose examples are fenced blocks.

    >>> fenced("Add.\n\n>>> 1 + 1\n2\n\nMore.").splitlines()
    ['Add.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'More.']
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", docstring)
