"""Attributes: the numbers in modules and configurations that must follow the units for the forward to run.

A number is changed only where the forward fails without, and only to the size of a term that the module meets. The
change stays if the forward then gets further. The same number of all modules of a kind changes at once. In the end
every number that turns out not to be needed is left alone.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from awn.adapt.bench import Bench, Changes, Failure, Patches, size_after
from awn.adapt.record import Place
from awn.adapt.terms import INPUT, Term

# Trials of one search, at most; choices for one failure, at most.
_MOST_TRIALS = 48
_MOST_CHOICES = 10

Number = tuple[str, str, int | None]


def find_attributes(
    bench: Bench, changes: Changes, zeros: Mapping[Term, Sequence[Place]], known: Patches, limit: float
) -> tuple[Patches, float]:
    """The numbers that have to follow, and by how much the outputs change; raises a Failure if that does not help."""
    patches, left, before = dict(known), _MOST_TRIALS, set[tuple[float, str]]()
    try:
        return patches, bench.attempt(changes, zeros, patches, limit)
    except Failure as first:
        failure = first
    while (failure.after, failure.why) not in before:  # a failure that repeats ends the search
        before.add((failure.after, failure.why))
        # A forward that runs with other outputs may lack a number, or have one too many: only if no choice is better.
        last: tuple[Failure, Patches] | None = None
        for choice in _choices(bench, changes, failure, patches):
            left -= 1
            try:
                change = bench.attempt(changes, zeros, patches | choice, limit)
            except Failure as other:
                if failure.after < other.after < math.inf:
                    failure, patches = other, patches | choice
                    break
                if failure.after < other.after:
                    last = last or (other, patches | choice)
            else:
                return _needed(bench, changes, zeros, known, patches | choice, limit), change
            if left <= 0:
                raise failure
        else:
            failure, patches = last or (failure, patches)
    raise failure


def _needed(
    bench: Bench,
    changes: Changes,
    zeros: Mapping[Term, Sequence[Place]],
    known: Patches,
    patches: Patches,
    limit: float,
) -> Patches:
    """The smallest set of kinds of numbers with which the forward runs."""
    kinds = dict.fromkeys(_kind(bench, number) for number in patches if number not in known)
    for kind in kinds if len(kinds) > 1 else ():
        fewer = {number: term for number, term in patches.items() if number in known or _kind(bench, number) != kind}
        try:
            bench.attempt(changes, zeros, fewer, limit)
            patches = fewer
        except Failure:
            continue
    return patches


def _choices(bench: Bench, changes: Changes, failure: Failure, patches: Patches) -> Iterator[Patches]:
    """Numbers to change after a failure: those of the modules in which it happened, the innermost first."""
    touched = [
        path
        for path, terms in bench.recorder.seen.items()
        if any(size_after(term, changes) != term.size for term in terms.values())
    ]
    tried = list[Patches]()
    for path in dict.fromkeys([*failure.modules, *touched] if failure.modules else touched):
        for choice in _of_module(bench, path, changes):
            everywhere = _with_kin(bench, choice, changes)
            new = {number: term for number, term in everywhere.items() if number not in patches}
            if new and new not in tried:
                tried.append(new)
                yield new
                if len(tried) >= _MOST_CHOICES:
                    return


def _of_module(bench: Bench, path: str, changes: Changes) -> list[Patches]:
    """Numbers of a module that may count entries that change: all of them, all but one, and one by one."""
    found = _candidates(bench, path, changes)
    every = {number: terms[0] for number, terms in found.items()}
    last = {number: terms[-1] for number, terms in found.items()}
    choices = [every, last]
    choices += [{number: term for number, term in every.items() if number != left_out} for left_out in every]
    choices += [{number: term} for number, terms in found.items() for term in terms]
    return [choice for place, choice in enumerate(choices) if choice and choice not in choices[:place]]


def _candidates(bench: Bench, path: str, changes: Changes) -> dict[Number, list[Term]]:
    """The numbers of a module that equal the size of a term that changes, with these terms."""
    sizes: dict[int, dict[int, Term]] = defaultdict(dict)
    for term in bench.recorder.seen.get(path, {}).values():
        for part in term.all_parts():
            new = size_after(part, changes)
            if new != part.size and all(leaf.why != INPUT for leaf in part.leaves()):  # no attribute counts samples
                sizes[part.size].setdefault(new, part)
    numbers = _numbers(bench.modules[path])
    return {(path, name, index): list(sizes[value].values()) for (name, index), value in numbers if value in sizes}


def _numbers(module: nn.Module) -> list[tuple[tuple[str, int | None], int]]:
    """The whole numbers among a module's attributes, and among its configuration's."""
    found: dict[str, Any] = dict(vars(module))
    config = getattr(module, "config", None)
    if hasattr(config, "__dict__"):
        found |= {f"config.{name}": value for name, value in vars(config).items()}
    if type(module).__module__.startswith("torch.nn"):  # their forwards do not read these
        found = {name: value for name, value in found.items() if not name.endswith("_features") or name[:3] == "num"}
    numbers = list[tuple[tuple[str, int | None], int]]()
    for name, value in found.items():
        if type(value) is int and value > 1:
            numbers.append(((name, None), value))
        elif type(value) in (list, tuple):
            numbers += [((name, i), one) for i, one in enumerate(value) if type(one) is int and one > 1]
    return numbers


def _with_kin(bench: Bench, choice: Patches, changes: Changes) -> Patches:
    """The same numbers in all modules of the same class whose paths differ in numbers only."""
    result = dict(choice)
    by_path: dict[str, dict[Number, list[Term]]] = {}
    for (path, name, index), term in choice.items():
        options = by_path.setdefault(path, _candidates(bench, path, changes)).get((path, name, index), [term])
        place = options.index(term) if term in options else 0
        for other, module in bench.modules.items():
            if other == path or type(module) is not type(bench.modules[path]) or _plain(other) != _plain(path):
                continue
            theirs = by_path.setdefault(other, _candidates(bench, other, changes)).get((other, name, index))
            if theirs:
                result[other, name, index] = theirs[min(place, len(theirs) - 1)]
    return result


def _kind(bench: Bench, number: Number) -> tuple[Any, ...]:
    path, name, index = number
    return type(bench.modules[path]), _plain(path), name, index


def _plain(path: str) -> str:
    """A path without the numbers of layers.

    >>> _plain("h.11.attn")
    'h.*.attn'
    """
    return re.sub(r"\d+", "*", path)
