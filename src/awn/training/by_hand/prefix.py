"""The second half of an ordered step: the forward and the backward pass over a prefix of every layer's units."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from awn.core.prefix import prefix_units
from awn.core.width import Width
from awn.training.by_hand.batches import Batch
from awn.training.by_hand.importances import Importances
from awn.training.by_hand.layout import GRADIENT, Buffers
from awn.training.by_hand.likelihoods import DataTerm
from awn.training.by_hand.passes import Between, Passes
from awn.training.by_hand.structure import Structure


class Prefixes:
    """The passes over prefixes of the units in these buffers. Their gradients are added to the whole network's.

    Products are little larger than the prefix. Passes are made once for every size and kept.
    """

    def __init__(self, structure: Structure, buffers: Buffers, importances: Importances, between: Between) -> None:
        self.structure, self.buffers, self.importances, self.between = structure, buffers, importances, between
        self.makers = [layer.makes for layer in structure.layers if layer.makes is not None]
        self._made: dict[tuple[Sequence[int], ...], tuple[Passes, list[tuple[Tensor, Tensor]]]] = {}

    def add_gradients(
        self, units: Sequence[int], log_nus: Sequence[float], capacities: Sequence[int], batch: Batch, term: DataTerm
    ) -> tuple[float, list[float]]:
        """Add half the gradients of a prefix; returns its data term, and half of dL/dlog ν per hidden layer.

        Half, since the loss of the step is the mean over the whole network and the prefix. `units`: those of every
        width in the prefix. `log_nus` and `capacities` are per hidden layer.
        """
        for layer, maker in enumerate(self.makers):
            self.importances.set_units(layer, units[maker])
        self.importances.update(log_nus)
        slots = tuple(prefix_slots(number, self.buffers.lead) for number in units)
        key = ((batch.target.shape[1],), tuple(capacities), slots)
        if key not in self._made:
            self._made[key] = self._make(slots, capacities, batch.target.shape[1])
        passes, gradients = self._made[key]
        self.importances.q.zero_()  # a longer prefix may have left entries that this one does not write
        loss = term.loss(passes.forward(batch.x), batch)
        passes.backward(term.d.mul_(0.5), batch.x_t)
        for whole, part in gradients:
            whole.add_(part)
        return loss, self.importances.slopes()

    def _make(
        self, slots: Sequence[int], capacities: Sequence[int], samples: int
    ) -> tuple[Passes, list[tuple[Tensor, Tensor]]]:
        """Passes, and for every layer where to add which gradient."""
        whole = self.buffers.blocks
        # No more slots than the buffers have.
        sizes = zip(self.structure.sizes(slots), self.buffers.sizes, strict=True)
        parts = self.buffers.prefix([(min(out, most), min(into, room)) for (out, into), (most, room) in sizes])
        gradients = [
            (block[GRADIENT][: part.shape[0], : part.shape[1]], part)
            for block, part in zip(whole, (block[GRADIENT] for block in parts), strict=True)
        ]
        return Passes(parts, self.buffers.lead, self.importances, self.between, capacities, samples), gradients


def prefix_slots(units: int, lead: int) -> int:
    """The slots for the units of a prefix: four sizes from one power of two to the next, and none below 8.

    >>> [prefix_slots(units, lead=1) for units in (1, 7, 8, 100, 150, 200, 1000)]
    [7, 7, 15, 111, 159, 223, 1023]
    """
    size = units + lead
    step = max(8, (1 << size.bit_length()) // 8)
    return -(-size // step) * step - lead


def drawn_units(widths: Sequence[Width], units: Sequence[int], draw: int) -> list[int] | None:
    """The units of every width in the prefix of a draw; None if it leaves none out."""
    drawn = [prefix_units(number, width.ordered, draw) for width, number in zip(widths, units, strict=True)]
    return None if drawn == list(units) else drawn
