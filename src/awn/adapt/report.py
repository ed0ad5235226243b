"""What `adapt_` did: the layers that have a learned width now, and those that do not, with the reason."""

from __future__ import annotations

from dataclasses import dataclass


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
    """What `adapt_` did. Print it for a table.

    >>> report = Report((Adapted("0", 8, ("0",), ("2",)),), (Skipped("2", "it is an output of Sequential"),))
    >>> print(report)
    layer  units  made by  read by
    0          8  0        2
    fixed  why
    2      it is an output of Sequential
    """

    adapted: tuple[Adapted, ...]
    skipped: tuple[Skipped, ...]

    def __str__(self) -> str:
        rows = [("layer", "units", "made by", "read by")]
        rows += [(a.name, str(a.units), _few(a.producers), _few(a.consumers)) for a in self.adapted]
        wide = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            f"{name:<{wide[0]}}  {units:>{wide[1]}}  {producers:<{wide[2]}}  {consumers}"
            for name, units, producers, consumers in rows
        ]
        if self.skipped:
            first = max(len("fixed"), *(len(one.name) for one in self.skipped))
            lines += [f"{'fixed':<{first}}  why", *(f"{one.name:<{first}}  {one.reason}" for one in self.skipped)]
        return "\n".join(lines)


def _few(names: tuple[str, ...], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
