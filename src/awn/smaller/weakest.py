"""Weakest units: those whose loss the layers that read them can make up for best, found from one pass over data.

Removing a column of a regression and refitting the others costs ‖w_j‖² / [G⁻¹]_jj, where G is the Gram matrix of what a
layer reads and w_j are the weights of that column. Units are removed one after the other, the cheapest first, with G⁻¹
and the weights updated in closed form. `repair.py` makes the same refit for good.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from awn.core.groups import WidthGroup, find_groups
from awn.parallel.unwrap import unwrapped
from awn.smaller.least_squares import Moments
from awn.smaller.readers import Reader
from awn.smaller.reference import Reference

# The removal of a unit updates a matrix. Wide layers lose several units per update, so that their number is limited.
_MOST_UPDATES = 512
# The entries of all Gram matrices that are kept at a time, half a gigabyte in double precision.
_MOST_NUMBERS = 2**26
_RIDGE = 1e-3  # relative to the diagonal of a Gram matrix


@torch.no_grad()
def weakest_units(model: nn.Module, reference: Reference, remove: int | Mapping[str, int]) -> dict[str, list[int]]:
    """The units to remove: a number over all layers together, or a number per layer, by name.

    The error of a layer that reads units is relative to the variance of what it computes, so that layers can be
    compared. A layer keeps at least `min_units` units. If a layer that reads the units cannot be refitted, its last
    units are removed, and a number over all layers takes the same fraction of them as of all units.

    >>> import awn
    >>> model, x = awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(8)), torch.randn(100, 2)
    >>> _ = nn.init.zeros_(model.hidden[0].weight[5].detach()), nn.init.zeros_(model.hidden[0].bias[5].detach())
    >>> weakest_units(model, Reference.of(model, x), 1)
    {'hidden.0': [5]}
    """
    groups = find_groups(model)
    total = sum(group.width.units for group in groups)
    spare = {group.name: group.width.units - max(1, group.width.min_units) for group in groups}
    most = (
        dict(remove) if isinstance(remove, Mapping) else {name: min(remove, number) for name, number in spare.items()}
    )
    sequences = {}
    for group, regressions in _regressions(model, [one for one in groups if most.get(one.name, 0) > 0], reference):
        found = list(_eliminated(regressions, most[group.name])) if regressions else []
        if not found and not isinstance(remove, Mapping):
            most[group.name] = min(spare[group.name], round(remove * group.width.units / total))
        sequences[group.name] = found or _last(group, most[group.name])
    if isinstance(remove, Mapping):
        return {name: [unit for unit, _ in found] for name, found in sequences.items()}
    return _cheapest(sequences, remove)


def _cheapest(sequences: dict[str, list[tuple[int, float]]], remove: int) -> dict[str, list[int]]:
    """The first units of each sequence, taken where the next one is the cheapest."""
    chosen: dict[str, list[int]] = {name: [] for name in sequences}
    for _ in range(remove):
        next_ones = {
            name: found[len(chosen[name])][1] for name, found in sequences.items() if len(chosen[name]) < len(found)
        }
        if not next_ones:
            break
        name = min(next_ones, key=lambda each: next_ones[each])
        chosen[name].append(sequences[name][len(chosen[name])][0])
    return {name: units for name, units in chosen.items() if units}


def _last(group: WidthGroup, number: int) -> list[tuple[int, float]]:
    return [(unit, -math.inf) for unit in range(group.width.units - number, group.width.units)]


def _regressions(
    model: nn.Module, groups: list[WidthGroup], reference: Reference
) -> Iterator[tuple[WidthGroup, list[_Regression]]]:
    """The regressions of the layers that read each group's units; none if one of them cannot be refitted."""
    readers = reference.readers(unwrapped(model))
    of_group = [[reader for reader in readers.values() if reader.group.name == group.name] for group in groups]
    for chunk in _chunks(list(zip(groups, of_group, strict=True))):
        moments = reference.collect(unwrapped(model), only=[reader.name for _, own in chunk for reader in own])
        for group, own in chunk:
            found = [moments[reader.name] for reader in own if reader.name in moments]
            complete = len(found) == len({axis.tensor for axis in group.consumers})
            usable = complete and all(one.is_finite for one in found)
            yield group, [_Regression.of(*pair) for pair in zip(own, found, strict=True)] if usable else []


def _chunks(groups: list[tuple[WidthGroup, list[Reader]]]) -> Iterator[list[tuple[WidthGroup, list[Reader]]]]:
    """Groups whose Gram matrices fit into memory together: one pass over the data is enough for all of them."""
    chunk: list[tuple[WidthGroup, list[Reader]]] = []
    numbers = 0
    for group, own in groups:
        numbers += sum(reader.columns**2 for reader in own)
        if chunk and numbers > _MOST_NUMBERS:
            yield chunk
            chunk, numbers = [], sum(reader.columns**2 for reader in own)
        chunk.append((group, own))
    if chunk:
        yield chunk


def _eliminated(regressions: list[_Regression], most: int) -> Iterator[tuple[int, float]]:
    units = len(regressions[0].costs())
    at_once = math.ceil(units / _MOST_UPDATES)
    gone = torch.zeros(units, dtype=torch.bool)
    while most > 0:
        cost = sum(regression.costs() for regression in regressions)
        assert isinstance(cost, Tensor)
        cost[gone] = math.inf
        number = min(at_once, most)
        found = cost.topk(number, largest=False)
        for regression in regressions:
            regression.remove_(found.indices)
        gone[found.indices] = True
        most -= number
        yield from zip(found.indices.tolist(), found.values.tolist(), strict=True)


@dataclass(eq=False)
class _Regression:
    """One layer that reads units: G⁻¹, its weights, and the variance of what it computes."""

    inverse: Tensor
    weights: Tensor
    variance: float
    per_unit: int

    @classmethod
    def of(cls, reader: Reader, moments: Moments) -> _Regression:
        gram, weights = moments.gram.double().cpu(), reader.weights().double().cpu()
        if (last := reader.last_columns) > 0:  # they make up for what they can: the bias for the means
            cross, own = gram[:-last, -last:], gram[-last:, -last:]
            gram = gram[:-last, :-last] - cross @ torch.linalg.pinv(own, hermitian=True) @ cross.T
            weights = weights[:-last]
        variance = float((weights * (gram @ weights)).sum())
        diagonal = gram.diagonal()
        # Relative to each column, so that a unit without any variance costs next to nothing.
        damped = gram + torch.diag(_RIDGE * diagonal + 1e-9 * diagonal.mean() + 1e-30)
        return cls(_inverse(damped), weights, max(variance, 1e-30), reader.columns_per_unit)

    def costs(self) -> Tensor:
        """The error that the removal of each unit would add, relative to the variance, [units]."""
        columns = torch.arange(len(self.weights)).view(-1, self.per_unit)
        weights = self.weights[columns]  # [units, columns per unit, outputs]
        blocks = self.inverse[columns[:, :, None], columns[:, None, :]]
        refitted: Tensor = torch.linalg.solve(blocks, weights)
        return (weights * refitted).sum((1, 2)) / self.variance

    def remove_(self, units: Tensor) -> None:
        """Remove units, and refit the weights of the others."""
        columns = (units[:, None] * self.per_unit + torch.arange(self.per_unit)).flatten()
        share = torch.linalg.solve(self.inverse[columns][:, columns], self.inverse[columns]).T
        self.weights -= share @ self.weights[columns]
        self.inverse -= share @ self.inverse[columns]
        self.weights[columns] = 0
        self.inverse[columns], self.inverse[:, columns] = 0, 0
        self.inverse[columns, columns] = 1


def _inverse(matrix: Tensor) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return torch.linalg.pinv(matrix, hermitian=True) if failed else torch.cholesky_inverse(factor)
