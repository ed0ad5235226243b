"""Repair: refit the weights that read a cut network's units, so that it stays close to the uncut network on data.

Ridge least squares, one layer after the other in the order of the forward: each layer is fitted to what it computed in
the uncut network, from what it reads in the cut network with all layers before it repaired. No labels are needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from awn.basics.checks import check_number
from awn.basics.text_table import text_table
from awn.parallel.unwrap import unwrapped
from awn.smaller.batch_norms import BatchNorms
from awn.smaller.readers import Reader
from awn.smaller.reference import Kept, Reference


@dataclass(frozen=True)
class RepairedLayer:
    """A layer that reads units: whether its weights were refitted, and the reason if not.

    `before` and `after` are the relative errors of its outputs on held-out data, ‖outputs − wanted‖ / ‖wanted‖.
    """

    name: str
    repaired: bool
    before: float | None = None
    after: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Repair:
    """What `repair_` did; `before` and `after` are the relative errors of the network's outputs on held-out data.

    >>> print(Repair((RepairedLayer("output", True, 0.5, 0.25),), before=0.5, after=0.25))
    layer    before   after
    output   0.5000  0.2500
    network  0.5000  0.2500
    """

    layers: tuple[RepairedLayer, ...]
    before: float
    after: float

    def __str__(self) -> str:
        rows = [(one.name, one.before, one.after, one.reason) for one in self.layers]
        rows.append(("network", self.before, self.after, ""))
        cells = [
            [name, *("–" if error is None else f"{error:.4f}" for error in errors), reason]
            for name, *errors, reason in rows
        ]
        any_left = any(not one.repaired for one in self.layers)
        head = ["layer", "before", "after", "not repaired, because"]
        return text_table(head if any_left else head[:3], cells if any_left else [row[:3] for row in cells])


def repair_(
    smaller: nn.Module, model: nn.Module, data: Any, *, kept: Kept | None = None, ridge: float = 1e-3
) -> Repair:
    """Refit the weights and biases that read the units of a cut network, in place, to stay close to the uncut `model`.

    `data` holds inputs: one tensor, or an iterable of batches. At most 8,192 rows are read. Every fifth batch is held
    out: a layer's new weights are kept if its outputs there get closer to those of the model, and the whole repair is
    kept if the network's outputs do. `kept` lists, by layer name, the units of the model that remain; the default is
    the first units of each layer. `ridge` penalises changes of the weights, relative to the mean diagonal of the Gram
    matrix. The statistics of batch norms are re-estimated, if that brings the outputs closer.

    >>> import awn
    >>> _ = torch.manual_seed(0)
    >>> model, x = awn.AdaptiveMLP(2, 2, hidden_layers=2), torch.randn(500, 2)
    >>> small = awn.truncate(model, keep=0.5)
    >>> report = repair_(small, model, x)
    >>> report.after < report.before
    True
    """
    check_number("ridge", ridge, or_equal=True)
    return repair_to_(Reference.of(model, data, "data"), smaller, kept=kept, ridge=ridge)


@torch.no_grad()
def repair_to_(reference: Reference, smaller: nn.Module, *, kept: Kept | None = None, ridge: float = 1e-3) -> Repair:
    """Do what `repair_` does, given a reference, so that several cuts of a network share one run of it."""
    smaller = unwrapped(smaller)
    reference.check_cut(smaller, kept)
    readers, norms = reference.readers(smaller), BatchNorms.of(smaller)
    cut = _State.of(readers.values(), norms)
    try:
        before = reference.output_error(smaller)
        layers = [_repair_layer_(reference, smaller, reader, kept, ridge) for reader in readers.values()]
        after, is_repaired = _keep_best_(reference, smaller, norms, cut, before)
    except BaseException:
        cut.restore_()
        raise
    if not is_repaired:
        layers = [_left(one) for one in layers]
    layers += [RepairedLayer(name, False, reason=reason) for name, reason in reference.others.items()]
    return Repair(tuple(layers), before, after)


def _repair_layer_(
    reference: Reference, smaller: nn.Module, reader: Reader, kept: Kept | None, ridge: float
) -> RepairedLayer:
    moments = reference.collect(smaller, kept, only=[reader.name]).get(reader.name)
    if moments is None:
        reason = "it is called at other positions than in the uncut network"
        return RepairedLayer(reader.name, False, reason=reason)
    if not moments.is_finite:
        return RepairedLayer(reader.name, False, reason="its inputs or outputs are not finite on this data")
    now = reader.weights()
    new = moments.solve(now, ridge=ridge).to(now)
    before, after = reference.held_errors(smaller, reader, [now, new], kept)
    if not after < before:
        return RepairedLayer(reader.name, False, before, before, "its outputs do not get closer")
    reader.set_weights_(new)
    return RepairedLayer(reader.name, True, before, after)


def _left(layer: RepairedLayer) -> RepairedLayer:
    reason = layer.reason or "the network's outputs do not get closer"
    return replace(layer, repaired=False, after=layer.before, reason=reason)


def _keep_best_(
    reference: Reference, smaller: nn.Module, norms: BatchNorms, cut: _State, before: float
) -> tuple[float, bool]:
    """Leave the network in its best state on the held-out data; returns its error, and whether that is a repaired one.

    The states are the cut, the repaired network, and both with the batch norms' statistics re-estimated.
    """
    repaired = cut.again()
    tried = [(before, False, cut), (reference.output_error(smaller), True, repaired)]
    for state in (cut, repaired) if norms.norms else ():
        state.restore_()
        norms.recalibrate_([observed.batch for observed in reference.fitted])
        tried.append((reference.output_error(smaller), state is repaired, cut.again()))
    after, is_repaired, best = min(tried, key=itemgetter(0))
    best.restore_()
    return after, is_repaired


@dataclass(frozen=True, eq=False)
class _State:
    """The values of all tensors that a repair may change."""

    values: dict[Tensor, Tensor]

    @classmethod
    def of(cls, readers: Iterable[Reader], norms: BatchNorms) -> _State:
        tensors = [tensor for reader in readers for tensor in (reader.axis.tensor, reader.bias) if tensor is not None]
        tensors += norms.statistics()
        return cls({tensor: tensor.detach().clone() for tensor in tensors})

    def again(self) -> _State:
        """The values that the tensors have now."""
        return _State({tensor: tensor.detach().clone() for tensor in self.values})

    def restore_(self) -> None:
        for tensor, value in self.values.items():
            tensor.copy_(value)
