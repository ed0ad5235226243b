"""Output streams that print any text: in a terminal without UTF-8, and for file names that are not UTF-8."""

from __future__ import annotations

import codecs
import io
import sys

# What awn itself prints besides ASCII. Anything else, such as a column name, becomes a question mark.
_ASCII = {"²": "2", "±": "+/-", "–": "-", "−": "-", "…": "...", "→": "->", "×": "x", "ν": "nu", "≥": ">=", "≤": "<="}
_HANDLER = "awn.readable"


def print_anything() -> None:
    """Let the standard streams replace what their encoding cannot express, instead of failing."""
    codecs.register_error(_HANDLER, _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def prints_utf8() -> bool:
    """Whether the standard output takes every character."""
    return codecs.lookup(sys.stdout.encoding or "ascii").name.startswith("utf")


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    r"""The text to print in place of what cannot be encoded.

    >>> codecs.register_error(_HANDLER, _replaced)
    >>> "R² of a\udcff.csv".encode("ascii", _HANDLER)
    b'R2 of a\xff.csv'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letter = error.object[error.start]
    if "\udc80" <= letter <= "\udcff":  # a byte of a file name, as Python holds it
        return bytes([ord(letter) - 0xDC00]), error.start + 1
    return _ASCII.get(letter, "?"), error.start + 1
