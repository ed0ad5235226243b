"""Extras: optional dependencies, and the error for a missing one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from awn.errors import MissingExtraError


@contextmanager
def needs_extra(sentence: str, extra: str, *packages: str) -> Iterator[None]:
    """Inside the block, a package that is not installed is an error that names the extra to install.

    >>> with needs_extra("Flying needs wings", "wings", "feathers"):
    ...     import feathers
    Traceback (most recent call last):
    awn.errors.MissingExtraError: Flying needs wings: pip install "awn[wings]"

    Only the given packages count. An import that fails inside another file, such as the user's, is its own error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if not is_missing(error, *packages):
            raise
        raise MissingExtraError(f'{sentence}: pip install "awn[{extra}]"') from None


def is_missing(error: ModuleNotFoundError, *packages: str) -> bool:
    """Whether the module that was not found is one of these packages, or a part of one.

    >>> is_missing(ModuleNotFoundError(name="plotly.graph_objects"), "plotly")
    True
    """
    return any(error.name == package or str(error.name).startswith(f"{package}.") for package in packages)
