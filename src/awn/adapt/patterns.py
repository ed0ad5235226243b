"""Layers by patterns of their names, as users write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from torch import nn

from awn.adapt.hidden import Hidden
from awn.adapt.layers import acts_by_unit
from awn.basics.names import listed, near
from awn.errors import ArgumentError

Patterns: TypeAlias = str | Sequence[str]


def as_list(patterns: Patterns) -> list[str]:
    """One pattern or several, as a list.

    >>> as_list("encoder.*")
    ['encoder.*']
    """
    return [patterns] if isinstance(patterns, str) else list(patterns)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a layer's name fits one of the patterns.

    >>> matches("encoder.0.fc1", ["encoder.*"])
    True
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_patterns(option: str, patterns: Iterable[str], names: Sequence[str], refused: Mapping[str, str]) -> None:
    """Refuse a pattern that fits no layer, with the layers that were probably meant, or why the one meant is none."""
    for pattern in patterns:
        if matches_any(pattern, names):
            continue
        why = [f"{name!r}: {reason}" for name, reason in refused.items() if fnmatchcase(name, pattern)]
        if why:
            raise ArgumentError(f"{option}={pattern!r} fits only layers whose width cannot be learned: {why[0]}.")
        meant = near(pattern, names) or f" Layers that can be: {listed(names)}."
        raise ArgumentError(f"{option}={pattern!r} fits no layer whose width can be learned.{meant}")


def matches_any(pattern: str, names: Iterable[str]) -> bool:
    """Whether a pattern fits one of the names."""
    return any(fnmatchcase(name, pattern) for name in names)


def explicit_groups(model: nn.Module, groups: Iterable[tuple[Patterns, Patterns]]) -> list[Hidden]:
    """The hidden axes that a user names, by patterns of what makes the units and of what reads them.

    Where a pattern has stars, layers belong together whose names are the same under the stars:

    >>> model = nn.ModuleList(nn.ModuleDict({"up": nn.Linear(4, 8), "down": nn.Linear(8, 4)}) for _ in range(3))
    >>> len(explicit_groups(model, [("*.up", "*.down")]))
    3
    """
    modules = {name: module for name, module in model.named_modules() if name}
    hidden = []
    for pair in groups:
        if isinstance(pair, str) or len(pair) != 2:
            raise ArgumentError(f"groups is a list of pairs, what makes units and what reads them; got {pair!r}.")
        makers, readers = (_by_stars(side, modules) for side in pair)
        alone = makers.keys() ^ readers.keys()
        if alone:
            key = min(alone)
            raise ArgumentError(
                f"groups={pair!r}: where the stars stand for {listed(key) or 'nothing'}, "
                f"there is no layer to {'read' if key in makers else 'make'} the units."
            )
        hidden += [Hidden(_weighted_first(made, pair), tuple(readers[key])) for key, made in makers.items()]
    return hidden


def _weighted_first(layers: list[nn.Module], pair: Any) -> tuple[nn.Module, ...]:
    """The layers that make units before those that act on each unit alone: the first carries the width."""
    ordered = sorted(layers, key=lambda layer: acts_by_unit(layer))
    if acts_by_unit(ordered[0]):
        raise ArgumentError(
            f"groups={pair!r}: a {type(ordered[0]).__name__} acts on units, but makes none. "
            "Name the layer before it as well."
        )
    return tuple(ordered)


def _by_stars(patterns: Patterns, modules: Mapping[str, nn.Module]) -> dict[tuple[str, ...], list[nn.Module]]:
    """The modules that patterns fit, by what their stars stand for."""
    found: dict[tuple[str, ...], list[nn.Module]] = {}
    for pattern in as_list(patterns):
        expression = re.compile("(.*)".join(re.escape(part) for part in pattern.split("*")))
        fitting = {name: match.groups() for name in modules if (match := expression.fullmatch(name))}
        if not fitting:
            raise ArgumentError(f"groups names {pattern!r}, which fits no layer.{near(pattern, list(modules))}")
        for name, stars in fitting.items():
            found.setdefault(stars, []).append(modules[name])
    return found
