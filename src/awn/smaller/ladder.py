"""The ladder of cuts: ever smaller versions of a network, each judged on held-out rows.

Each rung removes the last units of one layer: of the layer whose cut costs the least held-out loss per parameter. The
weights that read the cut layer are refitted, see `repair.py`, and kept if the held-out loss is lower with them. The
statistics of batch norms are estimated anew on every rung, from the rows of the repair.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from awn.basics.batches import Batch, evaluating
from awn.core.count import count_parameters
from awn.core.groups import WidthGroup, find_groups
from awn.nn.mlp import AdaptiveMLP
from awn.parallel.unwrap import unwrapped
from awn.smaller.batch_norms import BatchNorms
from awn.smaller.held_out import HeldOut, Losses
from awn.smaller.least_squares import Moments
from awn.smaller.readers import Reader
from awn.smaller.reference import Reference

#: The score of a network; higher is better.
Score = Callable[[nn.Module], float]


@dataclass(frozen=True)
class Cut:
    """One cut: a layer, the units that it keeps, and whether the weights that read them are refitted."""

    layer: str
    units: int
    repaired: bool


@dataclass(frozen=True, eq=False)
class Rung:
    """A network of the ladder: the last cut, the units per layer, its parameters, its held-out losses and its score.

    `plain` are the losses if the last cut is not repaired.
    """

    cut: Cut | None
    units: dict[str, int]
    parameters: int
    losses: Losses
    plain: Losses
    score: float | None = None


def climb_down(
    model: nn.Module, held_out: HeldOut, reference: Reference | None, step: float, score: Score | None = None
) -> Iterator[Rung]:
    """The rungs from the whole network down to one unit per layer; each cut removes the fraction `step` of a layer."""
    network = CuttableNetwork(model, reference)
    with network.first_layer_known(part.batch for part in held_out.parts):
        whole = held_out.judge(network.model)
        rung = Rung(None, network.units, network.parameters, whole, whole)
        while True:
            yield rung if score is None else replace(rung, score=network.score(score))
            cuttable = [group for group in network.groups if group.width.units > 1]
            if not cuttable:
                return
            present = rung
            rung = min((_try(network, group, held_out, step) for group in cuttable), key=partial(_price, present))
            assert rung.cut is not None
            network.cut_(rung.cut)


def _price(before: Rung, after: Rung) -> float:
    """The loss that a cut costs per parameter that it saves."""
    return (after.losses.mean - before.losses.mean) / (before.parameters - after.parameters)


def _try(network: CuttableNetwork, group: WidthGroup, held_out: HeldOut, step: float) -> Rung:
    """The rung that a cut of one layer would give."""
    present = group.width.units
    units = min(present - 1, math.floor(present * (1 - step)))
    with network.trying(Cut(group.name, units, repaired=False)):
        plain = held_out.judge(network.model)
        sizes, parameters = network.units, network.parameters
    if network.reference is not None:
        with network.trying(Cut(group.name, units, repaired=True)):
            repaired = held_out.judge(network.model)
        if repaired.mean < plain.mean:
            return Rung(Cut(group.name, units, repaired=True), sizes, parameters, repaired, plain)
    return Rung(Cut(group.name, units, repaired=False), sizes, parameters, plain, plain)


class CuttableNetwork:
    """A copy of a network whose layers can be cut without replacing tensors: cut units have importance 0."""

    def __init__(self, model: nn.Module, reference: Reference | None) -> None:
        self.model = copy.deepcopy(unwrapped(model))
        self.reference = reference
        self.groups = find_groups(self.model)
        self._by_name = {group.name: group for group in self.groups}
        self._readers: dict[str, list[Reader]] = {group.name: [] for group in self.groups}
        for reader in reference.readers(self.model).values() if reference else ():
            self._readers[reader.group.name].append(reader)
        self._moments: dict[str, Moments] | None = None
        self._norms = BatchNorms.of(self.model)

    @property
    def units(self) -> dict[str, int]:
        """The units per layer."""
        return {group.name: group.width.units for group in self.groups}

    @property
    def parameters(self) -> int:
        """The number of parameters, without those of cut units."""
        return count_parameters(self.model)

    def score(self, score: Score) -> float:
        """The score of the network as it is now."""
        with evaluating(self.model):
            return float(score(self.model))

    @contextmanager
    def first_layer_known(self, batches: Iterable[Batch] = ()) -> Iterator[None]:
        """Inside the block, the first layer of an `AdaptiveMLP` computes nothing for these batches and the reference's.

        Cuts mask its units and change the weights that read them, but its own weights stay. On a table of many inputs,
        they are most of the network.
        """
        observed = self.reference.fitted if self.reference else ()
        known = {id(x): x for batch in (*batches, *(one.batch for one in observed)) for x in batch.args}
        if not isinstance(self.model, AdaptiveMLP):
            yield
            return
        layer = self.model.hidden[0]
        compute = layer.forward
        with torch.no_grad():
            results = {place: compute(x) for place, x in known.items()}
        layer.forward = lambda x: results[id(x)] if id(x) in results else compute(x)
        try:
            yield
        finally:
            del layer.forward

    def cut_(self, cut: Cut) -> None:
        """Cut a layer for good."""
        weights = self._refitted(cut)
        _set_units(self._by_name[cut.layer], cut.units)
        for reader, weight in zip(self._readers[cut.layer], weights, strict=bool(weights)):
            reader.set_weights_(weight)
        self._recalibrate_()
        self._moments = None  # the layers above read something else now

    @contextmanager
    def trying(self, cut: Cut) -> Iterator[None]:
        """Cut a layer inside a block."""
        group, readers = self._by_name[cut.layer], self._readers[cut.layer]
        units, weights = group.width.units, self._refitted(cut)
        tensors = [*(_tensors(readers) if weights else []), *self._norms.statistics()]
        kept = [tensor.detach().clone() for tensor in tensors]
        _set_units(group, cut.units)
        try:
            for reader, weight in zip(readers, weights, strict=bool(weights)):
                reader.set_weights_(weight)
            self._recalibrate_()
            yield
        finally:
            _set_units(group, units)
            with torch.no_grad():
                for tensor, value in zip(tensors, kept, strict=True):
                    tensor.copy_(value)

    def _recalibrate_(self) -> None:
        """Estimate the statistics of batch norms anew: the layers before them read other values after a cut."""
        if self.reference is not None and self._norms.norms:
            self._norms.recalibrate_(observed.batch for observed in self.reference.fitted)

    def _refitted(self, cut: Cut) -> list[Tensor]:
        """The weights of the readers of a layer after a cut, if they are to be refitted."""
        if not cut.repaired:
            return []
        assert self.reference is not None
        if self._moments is None:
            self._moments = self.reference.collect(self.model)
        group = self._by_name[cut.layer]
        units = group.width.units
        _set_units(group, cut.units)
        try:
            return [self._solved(reader, self._moments.get(reader.name)) for reader in self._readers[cut.layer]]
        finally:
            _set_units(group, units)

    def _solved(self, reader: Reader, moments: Moments | None) -> Tensor:
        now = reader.weights()
        if moments is None:
            return now
        columns = torch.arange(reader.columns, device=now.device)
        if reader.bias is not None:
            columns = torch.cat([columns, columns.new_tensor([len(moments.gram) - 1])])
        outputs = Moments(moments.gram, moments.cross[:, : reader.outputs])
        return outputs.solve(now, columns).to(now)


def _set_units(group: WidthGroup, units: int) -> None:
    group.width.set_units(units, group.width.capacity)


def _tensors(readers: Iterable[Reader]) -> Sequence[Tensor]:
    return [tensor for reader in readers for tensor in (reader.axis.tensor, reader.bias) if tensor is not None]
