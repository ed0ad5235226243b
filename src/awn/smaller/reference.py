"""Reference: what an uncut network's layers compute on data, collected once, as the targets of repairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from awn.basics.batches import Batch, evaluating, hold_out, read_batches
from awn.core.groups import require_groups
from awn.core.places import spans
from awn.core.width import Width
from awn.errors import ArgumentError
from awn.parallel.unwrap import unwrapped
from awn.smaller.least_squares import Moments
from awn.smaller.readers import Reader, Sample, Samples, find_readers, recording

#: Positions of a layer that are used at most: rows of a table, tokens, pixels.
MOST_POSITIONS = 8192
# A layer that reads few numbers may use more: up to four times as many, at this many multiplications for its Gram
# matrix.
_MOST_PRODUCTS = 2**35
# The uncut network's outputs at these positions take no more memory than this.
_MOST_BYTES = 2**30

#: By layer, the units of the uncut network that are left; a layer that is not listed keeps its first units.
Kept = Mapping[str, Sequence[int]]


@dataclass(frozen=True, eq=False)
class Observed:
    """A batch, what the uncut network's readers compute on it, and what the network returns."""

    batch: Batch
    results: Samples
    outputs: list[Tensor]


@dataclass(frozen=True, eq=False)
class Reference:
    """An uncut network on data: what its layers compute, collected once, to repair any cut of it.

    >>> import awn
    >>> model, x = awn.AdaptiveMLP(2, 3, hidden_layers=2), torch.randn(100, 2)
    >>> reference = Reference.of(model, x)
    >>> reference.order
    ('hidden.1', 'output')
    >>> {name: tuple(moments.cross.shape) for name, moments in reference.collect(model).items()}
    {'hidden.1': (232, 231), 'output': (232, 3)}
    """

    #: The units of every layer of the uncut network.
    units: Mapping[str, int]
    #: The readers, in the order of their first calls.
    order: tuple[str, ...]
    #: The layers that read units and cannot be repaired, with the reason.
    others: Mapping[str, str]
    #: The positions that are used of a call of each reader.
    positions: Mapping[str, int]
    fitted: tuple[Observed, ...]
    held: tuple[Observed, ...]

    @classmethod
    def of(cls, model: nn.Module, data: Any, argument: str = "repair") -> Reference:
        """Run a model on data, see `awn.basics.batches.read_batches`. The model does not change."""
        units = {group.name: group.width.units for group in require_groups(model)}
        model = unwrapped(model)
        fitted, held = hold_out(read_batches(data, argument), argument)
        readers, others = find_readers(model)
        if not readers:
            reasons = "\n".join(f"  {name}: {reason}" for name, reason in others.items())
            raise ArgumentError(f"no layer of {type(model).__name__} can be repaired:\n{reasons}", argument=argument)
        with evaluating(model):
            most = _positions(readers, _observe(model, readers, fitted[0], {}, argument).results, len(fitted))
            observed = [_observe(model, readers, batch, most, argument) for batch in (*fitted, *held)]
        if not any(one.outputs for one in observed):
            raise ArgumentError(f"{type(model).__name__} returns no tensors, so its repair could not be checked.")
        order = tuple(dict.fromkeys(name for one in observed[: len(fitted)] for name in one.results))
        others |= {name: "it was not called on this data" for name in readers if name not in order}
        return cls(units, order, others, most, tuple(observed[: len(fitted)]), tuple(observed[len(fitted) :]))

    def check_cut(self, smaller: nn.Module, kept: Kept | None) -> None:
        """Raise for a network that is no cut of this one, or that has other units than `kept` lists."""
        units = {group.name: group.width.units for group in require_groups(smaller)}
        if units.keys() != self.units.keys() or any(units[name] > self.units[name] for name in units):
            raise ArgumentError(f"a network with the widths {units} is no cut of one with {dict(self.units)}.")
        for name, stay in (kept or {}).items():
            if name not in units or len(stay) != units[name] or not all(0 <= unit < self.units[name] for unit in stay):
                raise ArgumentError(f"kept[{name!r}] does not list the units of the model that are left in that layer.")

    def readers(self, smaller: nn.Module) -> dict[str, Reader]:
        """The readers of a cut of the network, in the order of their first calls."""
        found, _ = find_readers(smaller)
        return {name: found[name] for name in self.order}

    def collect(
        self, smaller: nn.Module, kept: Kept | None = None, only: Iterable[str] | None = None
    ) -> dict[str, Moments]:
        """The sums of every reader, or of some, in one pass over the data: from what it reads in the smaller network.

        `Moments.solve` then refits a reader to any prefix of the units. A reader that is called at other positions
        than in the uncut network is left out.
        """
        readers = self.readers(smaller)
        chosen = readers if only is None else {name: readers[name] for name in only}
        moments: dict[str, Moments] = {}
        moved: set[str] = set()
        with evaluating(smaller):
            for observed in self.fitted:
                for name, pairs in self._pairs(smaller, chosen, observed, kept):
                    if pairs is None:
                        moved.add(name)
                    for x, z in pairs or ():
                        if name not in moments:
                            moments[name] = Moments.of(x.shape[1], z.shape[1], x.device)
                        moments[name].add_(x, z)
        return {name: one for name, one in moments.items() if name not in moved}

    def held_errors(
        self, smaller: nn.Module, reader: Reader, weights: Sequence[Tensor], kept: Kept | None = None
    ) -> list[float]:
        """The relative errors of a reader's outputs on the held-out data, with each of several weights."""
        errors, squares = torch.zeros(len(weights), dtype=torch.float64), 0.0
        with evaluating(smaller):
            for observed in self.held:
                for _, pairs in self._pairs(smaller, {reader.name: reader}, observed, kept):
                    for x, z in pairs or ():
                        errors += torch.stack([(x.to(w) @ w - z).double().square().sum() for w in weights]).cpu()
                        squares += z.double().square().sum().item()
        return [math.sqrt(error / squares) if squares else 0.0 for error in errors.tolist()]

    def output_error(self, smaller: nn.Module) -> float:
        """The relative error of a network's outputs on the held-out data; infinite if they are not finite."""
        errors: dict[int, float] = {}
        squares: dict[int, float] = {}
        with evaluating(smaller):
            for observed in self.held:
                pairs = zip(observed.batch.outputs(smaller), observed.outputs, strict=True)
                for place, (found, wanted) in enumerate(pairs):
                    if found.shape == wanted.shape:  # not so for units that a model returns
                        error = (found.double() - wanted.double()).square().sum().item()
                        errors[place] = errors.get(place, 0.0) + error
                        squares[place] = squares.get(place, 0.0) + wanted.double().square().sum().item()
        if not errors:
            raise ArgumentError("no output of the smaller network has the shape that it has in the model.")
        mean = sum(error / (squares[place] or 1.0) for place, error in errors.items()) / len(errors)
        return math.sqrt(mean) if math.isfinite(mean) else math.inf

    def _pairs(
        self, smaller: nn.Module, readers: Mapping[str, Reader], observed: Observed, kept: Kept | None
    ) -> Iterator[tuple[str, list[tuple[Tensor, Tensor]] | None]]:
        """For each reader, what it reads in the smaller network, and what it computes in the uncut one, call by call.

        None for a reader that is called at other positions.
        """

        def read(reader: Reader, layer: nn.Module, inputs: Tensor, result: Tensor) -> Sample:
            return Sample(reader.count(result), reader.rows(layer, inputs, self.positions[reader.name]))

        names = {group.width: group.name for group in require_groups(smaller)}
        with recording(readers.values(), read) as found:
            observed.batch.run(smaller)
        for name, reader in readers.items():
            here, there = found.get(name, []), observed.results.get(name, [])
            if [one.positions for one in here] != [one.positions for one in there]:
                yield name, None
            else:
                left = self._outputs_left(reader, kept or {}, names)
                yield name, [(x.rows, z.rows[:, left.to(z.rows.device)]) for x, z in zip(here, there, strict=True)]

    def _outputs_left(self, reader: Reader, kept: Kept, names: Mapping[Width, str]) -> Tensor:
        """The outputs of a reader in the uncut network that are left in the smaller one."""
        found = []
        for span in spans(reader.output_blocks, lambda width: self.units[names[width]]):
            if span.width is None:
                found.append(torch.arange(span.entries) + span.start)
            else:
                units = torch.as_tensor(kept.get(names[span.width], range(span.width.units)))
                found.append((units[:, None] * span.entries + torch.arange(span.entries) + span.start).flatten())
        return torch.cat(found)


def _observe(
    model: nn.Module, readers: Mapping[str, Reader], batch: Batch, most: Mapping[str, int], argument: str
) -> Observed:
    """Run the uncut network on a batch; without `most`, no positions are taken, but all are counted."""

    def computed(reader: Reader, layer: nn.Module, inputs: Tensor, result: Tensor) -> Sample:
        return Sample(reader.count(result), reader.results(layer, result, most.get(reader.name, 0)))

    with recording(readers.values(), computed) as found, batch.naming_errors(argument):
        outputs = batch.outputs(model)
    return Observed(batch, found, outputs)


def _positions(readers: Mapping[str, Reader], first: Samples, batches: int) -> dict[str, int]:
    """The positions to use of a call of each reader."""
    in_memory = _MOST_BYTES // (4 * sum(reader.outputs for reader in readers.values()))

    def most(reader: Reader) -> int:
        affordable = _MOST_PRODUCTS // max(1, reader.columns) ** 2
        return min(in_memory, 4 * MOST_POSITIONS, max(MOST_POSITIONS, affordable))

    return {
        name: max(1, math.ceil(most(reader) / (batches * len(first.get(name, [0])))))
        for name, reader in readers.items()
    }
