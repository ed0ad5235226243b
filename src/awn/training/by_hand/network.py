"""The network in training: a step by hand, and the change of widths that follows it.

A network takes the weights of a model and the state of its optimizer for an epoch, and gives them back after it.
Nothing is kept between epochs, so that whatever happens to the model there, such as a resume, needs no care.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from awn.core.replace import Move, check_growth, check_memory, too_wide
from awn.errors import NonFiniteError
from awn.training.by_hand.batches import Batch, batches
from awn.training.by_hand.growth import draw_new_units_
from awn.training.by_hand.handover import Handover, give_back_nus_, read_nu
from awn.training.by_hand.importances import Importances, make_importances
from awn.training.by_hand.layout import GRADIENT, PREFIX, WEIGHT, Buffers, slots_after, slots_for
from awn.training.by_hand.likelihoods import MakeTerm
from awn.training.by_hand.optimizers import FlatOptimizer, decays, options_by_parameter, updates_so_far, weights_of
from awn.training.by_hand.passes import Between, Passes
from awn.training.by_hand.prefix import Prefixes, drawn_units
from awn.training.by_hand.structure import Structure
from awn.training.by_hand.width_terms import WidthTerms
from awn.training.data import Data


class LostNumber(Exception):
    """A number that is not finite any more, in a layer with a learned width."""

    def __init__(self, width: int, what: NonFiniteError, *, in_gradient: bool) -> None:
        super().__init__(str(what))
        self.width, self.what, self.in_gradient = width, what, in_gradient


@dataclass(frozen=True)
class Recipe:
    """What a step does besides the forward and the backward pass."""

    between: Between
    make_term: MakeTerm
    width_terms: WidthTerms
    #: The prior of each layer's weight and bias, as far as it is a term of the loss: its gradient is factor · weight.
    factors: Sequence[tuple[float, float]]
    clip: float | None


class Network:
    """An AdaptiveMLP in the layout of `layout.py`."""

    def __init__(
        self,
        structure: Structure,
        optimizer: Optimizer,
        make_optimizer: type[FlatOptimizer],
        recipe: Recipe,
        data: Data,
    ) -> None:
        self.structure, self.torch_optimizer, self.recipe, self.data = structure, optimizer, recipe, data
        self.dtype = data.x.dtype
        self.makers = [layer.makes for layer in structure.layers if layer.makes is not None]
        self.widths = widths = [group.width for group in structure.groups]
        self.names = [group.name for group in structure.groups]
        self.bounds = {group.name: group.width.max_units for group in structure.groups}
        self.units = [width.units for width in widths]
        self.capacities = [width.capacity for width in widths]
        self.ordered, self.draw = any(width.ordered for width in widths), widths[0].draw
        weights, options = weights_of(structure), options_by_parameter(optimizer)
        self.optimizer = make_optimizer(options[weights[0]], updates_so_far(optimizer, weights[0]))
        self.nus = [read_nu(width.log_nu, optimizer, self.optimizer.names) for width in widths]
        self.passes: Passes | None = None
        self.slots = [slots_for(units, structure.lead) for units in self.units]
        self.buffers = self._buffers(self.slots)
        self.handover = Handover(structure, optimizer, self.optimizer.moments)

    def take_(self) -> None:
        """Move the weights and moments from the model and its optimizer to here."""
        self.handover.take_(self.buffers, self.units)
        for row in self._rows_of_gradients():
            self.buffers.make(row)
        self._use(self.buffers, self._importances(self.units))
        self.importances.update(self._log_nus())

    def give_back_(self) -> None:
        """Move everything back to the model and its optimizer; the network cannot be used any more."""
        count, names = self.optimizer.count, self.optimizer.names
        # Their tensors would keep the buffers alive.
        self.passes = None
        for name in ("optimizer", "prefixes", "term"):
            vars(self).pop(name, None)
        self.handover.give_back_(self.buffers, self.units, self.capacities, count)
        give_back_nus_(self.structure, self.torch_optimizer, self.nus, names)
        if self.ordered:
            for width in self.widths:
                width.draw_(self.draw)

    # A step

    def batches(self, order: Tensor, number: int) -> Iterator[Batch]:
        """The samples in an order, in so many batches, as `step` takes them."""
        outputs, dtype = self.structure.layers[-1].linear.out_features, self.dtype
        of_classes = self.recipe.make_term(outputs, 1, dtype).of_classes
        return batches(self.data, order, number, outputs if of_classes else None, self.structure.lead)

    def step(self, batch: Batch, resize: bool) -> float:
        """One step, which brings the widths to what ν asks for if `resize`; returns the data term."""
        samples = batch.target.shape[1]
        if self.passes is None or self.passes.samples != samples:
            self._make_passes(samples)
        assert self.passes is not None
        loss = self.term.loss(self.passes.forward(batch.x), batch)
        prefix = drawn_units(self.widths, self.units, self.draw) if self.ordered else None
        if prefix is not None:
            self.term.d.mul_(0.5)
        self.passes.backward(self.term.d, batch.x_t)
        slopes = self.importances.slopes()
        if prefix is not None:
            where = self._log_nus(), self._capacities()
            of_prefix, more = self.prefixes.add_gradients(prefix, *where, batch, self.term)
            loss, slopes = 0.5 * (loss + of_prefix), [a + b for a, b in zip(slopes, more, strict=True)]
        self._collect_slopes(slopes)
        if self.has_prior:
            self._add_prior()
        if self.recipe.clip is not None:
            self._clip(self.recipe.clip)
        self.optimizer.update()
        for nu in self.nus:
            nu.count += 1
            nu.log = self.optimizer.update_number(nu.log, nu.slope, nu.moments, nu.count, nu.options)
        if not (resize and self._resized()):
            self.importances.update(self._log_nus())
        self.draw += self.ordered
        return loss

    def _make_passes(self, samples: int) -> None:
        lead, between = self.structure.lead, self.recipe.between
        self.passes = Passes(self.buffers.blocks, lead, self.importances, between, self._capacities(), samples)
        self.term = self.recipe.make_term(self.structure.layers[-1].linear.out_features, samples, self.dtype)

    def _collect_slopes(self, by_layer: Sequence[float]) -> None:
        """dL/dlog ν of every width; a width that layers share has the sum of theirs."""
        slopes = [0.0] * len(self.nus)
        for maker, slope in zip(self.makers, by_layer, strict=True):
            slopes[maker] += slope
        if self.recipe.width_terms.present:
            self.recipe.width_terms.add_to(slopes, [nu.log for nu in self.nus], self.units)
        # A number that is lost anywhere in the batch or the weights is lost here as well, before any weight changes.
        for number, slope in enumerate(slopes):
            if not math.isfinite(slope):
                raise LostNumber(number, NonFiniteError(f"the gradient of ν is {slope}"), in_gradient=True)
        for nu, slope in zip(self.nus, slopes, strict=True):
            nu.slope = slope

    def _add_prior(self) -> None:
        weight, gradient = self.buffers.rows[WEIGHT], self.buffers.rows[GRADIENT]
        if isinstance(self.factors, Tensor):
            gradient.addcmul_(weight, self.factors)
        else:
            gradient.add_(weight, alpha=self.factors)

    def _clip(self, largest: float) -> None:
        """Scale all gradients so that their norm is at most `largest`, as `clip_grad_norm_` does."""
        gradient = self.buffers.rows[GRADIENT]
        squares = torch.linalg.vector_norm(gradient).item() ** 2 + sum(nu.slope**2 for nu in self.nus)
        scale = min(1.0, largest / (math.sqrt(squares) + 1e-6))
        gradient.mul_(scale)
        for nu in self.nus:
            nu.slope *= scale

    # Widths

    def _resized(self) -> bool:
        """Bring every width to what its ν asks for; returns whether one changed."""
        wanted = self.units.copy()
        for number, (nu, width) in enumerate(zip(self.nus, self.widths, strict=True)):
            if not width.keeps(nu.log, wanted[number]):
                try:
                    wanted[number], nu.log = width.settle(nu.log)
                except NonFiniteError as error:
                    raise LostNumber(number, error, in_gradient=False) from None
        if wanted == self.units:
            return False
        check_growth(self._moves(wanted), self.bounds)
        self._resize(wanted)
        return True

    def _resize(self, wanted: list[int]) -> None:
        before, old = self.units, self.buffers
        slots = [slots_after(units, self.structure.lead, kept) for units, kept in zip(wanted, self.slots, strict=True)]
        fresh = None if slots == self.slots else self._allocate(slots, wanted)
        self._clear(before, wanted)
        self.units, self.slots = wanted, slots
        # What the model's tensors would have room for by now, if it had followed every change.
        before_capacities = self.capacities
        self.capacities = [
            kept if width.fits(units, kept) else width.capacity_for(units)
            for width, kept, units in zip(self.widths, self.capacities, wanted, strict=True)
        ]
        if fresh is not None:
            fresh.copy_(old)
            self._use(fresh, self._importances(wanted))
        else:
            for layer, maker in enumerate(self.makers):
                if before[maker] != wanted[maker]:
                    self.importances.set_units(layer, wanted[maker])
        if fresh is not None or (self.recipe.between.dropout and self.capacities != before_capacities):
            self.passes = None  # its views are of what was
        self.importances.update(self._log_nus())
        draw_new_units_(self.structure, self.buffers, self.importances, before, wanted)

    def _allocate(self, slots: list[int], wanted: list[int]) -> Buffers:
        moves = self._moves(wanted)
        rows = 2 * (5 if self.ordered else 4)  # the model itself needs as much, when it gets the units back
        weights = sum(inside * outside for inside, outside in self.structure.sizes(slots))
        check_memory(moves, rows * weights * self.dtype.itemsize)
        try:
            return self._buffers(slots, self.buffers.rows)
        except (RuntimeError, MemoryError, TypeError) as error:
            raise too_wide(moves, error) from error

    def _moves(self, wanted: list[int]) -> dict[str, Move]:
        return dict(zip(self.names, map(Move, self.units, wanted, wanted), strict=True))

    def _clear(self, before: list[int], wanted: list[int]) -> None:
        """Zero the weights and moments of units that are dropped; the next backward pass zeroes their gradients."""
        lead, rows = self.structure.lead, self.buffers.rows.keys() - self._rows_of_gradients()
        for layer, block in zip(self.structure.layers, self.buffers.arrays, strict=True):
            makes, reads = layer.makes, layer.reads
            if makes is not None and wanted[makes] < before[makes]:
                for row in rows:
                    block[row][wanted[makes] : before[makes]] = 0
            if reads is not None and wanted[reads] < before[reads]:
                for row in rows:
                    block[row][:, lead + wanted[reads] : lead + before[reads]] = 0

    def _use(self, buffers: Buffers, importances: Importances) -> None:
        self.buffers, self.importances = buffers, importances
        if self.ordered:
            self.prefixes = Prefixes(self.structure, buffers, self._importances(self.units), self.recipe.between)
        self.optimizer.attach(buffers, buffers.spread(decays(self.torch_optimizer, self.structure)))
        self.factors = buffers.spread(self.recipe.factors)
        self.has_prior = isinstance(self.factors, Tensor) or self.factors != 0

    def _buffers(self, slots: list[int], rows: Iterable[int] = ()) -> Buffers:
        return Buffers(self.structure.sizes(slots), self.structure.lead, self.dtype, rows)

    def _rows_of_gradients(self) -> set[int]:
        return {GRADIENT, PREFIX} if self.ordered else {GRADIENT}

    def _importances(self, units: list[int]) -> Importances:
        widths = [self.structure.groups[maker].width for maker in self.makers]
        active = [units[maker] for maker in self.makers]
        slots = [self.slots[maker] for maker in self.makers]
        return make_importances(widths, active, slots, self.structure.lead, self.dtype)

    def _log_nus(self) -> list[float]:
        """Per hidden layer."""
        return [self.nus[maker].log for maker in self.makers]

    def _capacities(self) -> list[int]:
        """Per hidden layer."""
        return [self.capacities[maker] for maker in self.makers]
