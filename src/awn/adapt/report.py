"""What `adapt_` did: the layers that have a learned width now, and those that do not, with the reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# So many rows that differ in the numbers of layers only are printed as one.
_FEWEST_ALIKE = 3


@dataclass(frozen=True)
class Adapted:
    """A learned width, named after the first layer that makes its units; what makes them and what reads them."""

    name: str
    units: int
    producers: tuple[str, ...]
    consumers: tuple[str, ...]


@dataclass(frozen=True)
class Skipped:
    """A layer whose width stays fixed, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Report:
    """What `adapt_` did. Print it for a table, in which rows that differ in the numbers of layers only are one.

    `share` is the share of the parameters in tensors that follow a learned width. `attributes` are the numbers in
    modules and configurations that follow. `not_taken` are lines of your own forwards that did not run: what they would
    do to the units is not known, so pass an example that takes them if they matter.

    >>> report = Report((Adapted("0", 8, ("0",), ("2",)),), (Skipped("2", "it is an output of Sequential"),))
    >>> print(report)
    layer  units  made by  read by
    0          8  0        2
    fixed  why
    2      it is an output of Sequential
    """

    adapted: tuple[Adapted, ...]
    skipped: tuple[Skipped, ...]
    share: float = 0.0
    attributes: tuple[str, ...] = ()
    not_taken: tuple[str, ...] = ()

    def __str__(self) -> str:
        rows = [(_named(a.name), str(a.units), _few(a.producers), _few(a.consumers)) for a in self.adapted]
        table = [("layer", "units", "made by", "read by"), *_collapsed(rows)]
        wide = [max(len(row[column]) for row in table) for column in range(4)]
        lines = [
            f"{name:<{wide[0]}}  {units:>{wide[1]}}  {producers:<{wide[2]}}  {consumers}"
            for name, units, producers, consumers in table
        ]
        if self.skipped:
            fixed = _collapsed([(_named(one.name), one.reason) for one in self.skipped])
            first = max(len("fixed"), *(len(name) for name, _ in fixed))
            lines += [f"{'fixed':<{first}}  why", *(f"{name:<{first}}  {reason}" for name, reason in fixed)]
        if self.attributes:
            lines.append(f"numbers that follow: {', '.join(self.attributes)}")
        if self.not_taken:
            lines.append(
                f"lines that did not run: {_few(self.not_taken)}. Pass an example_input that takes them if they matter"
            )
        return "\n".join(lines)


def _collapsed(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Rows that differ in the numbers of layers only, as one.

    >>> _collapsed([(f"h.{n}.up", "8") for n in range(12)])
    [('h.*.up ×12', '8')]
    """
    alike: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for row in rows:
        alike.setdefault(tuple(_plain(cell) for cell in row), []).append(row)
    found = []
    for pattern, many in alike.items():
        if len(many) < _FEWEST_ALIKE or len({row[0] for row in many}) < len(many) or "*" not in pattern[0]:
            found += many
        else:
            found.append((f"{pattern[0]} ×{len(many)}", *pattern[1:]))
    return found


def _plain(cell: str) -> str:
    """A cell with stars for the numbers inside of dotted names."""
    return re.sub(r"(?<=[A-Za-z_]\.)\d+(?=\.)", "*", cell)


def _few(names: tuple[str, ...], most: int = 3) -> str:
    return ", ".join(map(_named, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def _named(path: str) -> str:
    return path or "the model itself"
