"""Schemas: what the content of a JSON file must look like, as data.

A schema is built from the functions below, and `find_fault` compares a value with it:

>>> layer = record({"name": text(), "units": whole(1, 100)}, {"quantile": number(above=0, below=1)})
>>> find_fault({"name": "hidden.0", "units": 8}, layer)
>>> find_fault({"name": "hidden.0", "units": 8, "quantile": 2}, layer)
'quantile must be a number above 0 and below 1, got 2'
>>> find_fault([{"name": "hidden.0", "units": 8}, {"units": 8}], items(layer))
'[1].name must be a string, but is missing'
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Parts = Iterator[tuple[str, Any, "Schema"]]
_MISSING = object()  # the value of an entry that is not there


@dataclass(frozen=True)
class Schema:
    """What a value must be: `wanted` in words, `fits` as a test, and `parts` with the schemas of its parts."""

    wanted: str
    fits: Callable[[Any], bool]
    parts: Callable[[Any], Parts] | None = None


def find_fault(value: Any, schema: Schema, where: str = "") -> str | None:
    """The first place at which a value differs from a schema, in words; None if it has the schema."""
    if not schema.fits(value):
        found = "but is missing" if value is _MISSING else f"got {reprlib.repr(value)}"
        return f"{where.removeprefix('.') or 'the content'} must be {schema.wanted}, {found}"
    for place, part, inner in schema.parts(value) if schema.parts is not None else ():
        fault = find_fault(part, inner, where + place)
        if fault is not None:
            return fault
    return None


def has_schema(value: Any, schema: Schema) -> bool:
    """Whether a value has a schema.

    >>> has_schema(True, whole()), has_schema(1, whole())
    (False, True)
    """
    return find_fault(value, schema) is None


def anything() -> Schema:
    """Any value."""
    return Schema("there", lambda value: value is not _MISSING)


def flag() -> Schema:
    """True or false."""
    return Schema("true or false", lambda value: isinstance(value, bool))


def text(longest: int = 100_000) -> Schema:
    """A string."""
    return Schema("a string", lambda value: isinstance(value, str) and len(value) <= longest)


def whole(low: int = -(2**63), high: int = 2**63 - 1) -> Schema:
    """A whole number from `low` to `high`."""
    wanted = f"a whole number from {low:,} to {high:,}"
    return Schema(wanted, lambda value: type(value) is int and low <= value <= high)


def number(*, above: float = -math.inf, below: float = math.inf, low: float | None = None) -> Schema:
    """A finite number strictly between `above` and `below`, or of at least `low`."""
    bounds = [f"of at least {low:g}"] if low is not None else [f"above {above:g}"] if above > -math.inf else []
    bounds += [f"below {below:g}"] if below < math.inf else []
    wanted = f"a number {' and '.join(bounds)}" if bounds else "a finite number"

    def fits(value: Any) -> bool:
        if type(value) not in (int, float) or not -_HUGE < value < _HUGE:
            return False
        return bool(value < below and (value > above if low is None else value >= low))

    return Schema(wanted, fits)


def one_of(*values: Any) -> Schema:
    """One of some values."""
    wanted = "one of " + ", ".join(map(repr, values)) if len(values) > 1 else repr(values[0])
    return Schema(wanted, lambda value: any(type(value) is type(one) and value == one for one in values))


def maybe(schema: Schema) -> Schema:
    """Null, or a value of a schema."""
    return either(schema, one_of(None))


def either(*schemas: Schema) -> Schema:
    """A value of one of several schemas."""
    wanted = " or ".join(one.wanted for one in schemas).replace(" or None", " or null")
    return Schema(wanted, lambda value: any(has_schema(value, one) for one in schemas))


def items(schema: Schema, fewest: int = 0, most: int | None = None) -> Schema:
    """A list whose entries have a schema."""
    wanted = "a list" if not fewest and most is None else f"a list of {fewest} to {most or 'any number of'} entries"

    def parts(value: Any) -> Parts:
        # The usual case first, since lists of numbers are long.
        if schema.parts is None and all(map(schema.fits, value)):
            return
        for place, entry in enumerate(value):
            yield f"[{place}]", entry, schema

    def fits(value: Any) -> bool:
        return isinstance(value, list) and fewest <= len(value) and (most is None or len(value) <= most)

    return Schema(wanted, fits, parts)


def row(*schemas: Schema) -> Schema:
    """A list or tuple with one entry for each schema."""

    def parts(value: Any) -> Parts:
        for place, (entry, schema) in enumerate(zip(value, schemas, strict=True)):
            yield f"[{place}]", entry, schema

    wanted = f"a list of {len(schemas)} entries"
    return Schema(wanted, lambda value: isinstance(value, list | tuple) and len(value) == len(schemas), parts)


def entries(schema: Schema, most: int | None = None) -> Schema:
    """An object of any names, whose values have a schema."""

    def parts(value: Any) -> Parts:
        for name, entry in value.items():
            yield f".{name}", entry, schema

    def fits(value: Any) -> bool:
        return isinstance(value, dict) and all(isinstance(name, str) for name in value) and len(value) <= limit

    limit = math.inf if most is None else most
    return Schema("an object" if most is None else f"an object of at most {most:,} entries", fits, parts)


def record(
    required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, *, others: Schema | None = None
) -> Schema:
    """An object with certain entries. Further entries are allowed if there is a schema for `others`."""
    known = {**required, **(optional or {})}

    def fits(value: Any) -> bool:
        return isinstance(value, dict) and all(isinstance(name, str) for name in value)

    def parts(value: Any) -> Parts:
        for name in required.keys() - value.keys():
            yield f".{name}", _MISSING, known[name]
        for name, entry in value.items():
            yield f".{name}", entry, known.get(name, others or _NOTHING)

    return Schema("an object", fits, parts)


_NOTHING = Schema("left out", lambda value: False)
_HUGE = 10**308  # a whole number beyond it has no float
