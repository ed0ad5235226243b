"""What a command leaves, for the tests of the command line; `run` itself is a fixture, in conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Said(NamedTuple):
    """The exit code and both streams."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]


def one_sentence(said: Said) -> str:
    """What a refused command says: code 2, nothing on the output, one line that starts with error, no traceback."""
    assert said.code == 2, said
    assert said.out == ""
    lines = [line for line in said.err.splitlines() if line.strip()]
    assert len(lines) == 1, said.err
    assert lines[0].startswith("error: ")
    return lines[0]
