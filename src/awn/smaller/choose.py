"""Choosing a width: the smallest version of a trained network whose held-out loss is as good as the best."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, cast

import torch
from torch import nn

from awn.basics.batches import Batch
from awn.basics.checks import check_number
from awn.basics.text_table import text_table
from awn.basics.timing import in_turns
from awn.core.groups import WidthGroup, require_groups
from awn.errors import ArgumentError
from awn.loss.budget import Budget
from awn.loss.positions import positions as count_positions
from awn.smaller.curve_picture import draw_curve
from awn.smaller.finalize import finalize
from awn.smaller.held_out import HeldOut, Loss
from awn.smaller.ladder import CuttableNetwork, Rung, Score, climb_down
from awn.smaller.reference import Reference
from awn.smaller.truncate import truncate

ModelT = TypeVar("ModelT", bound=nn.Module)
#: A loss this many standard errors above the best counts as equally good.
SLACK = 0.25
_LATENCY_TURNS = 15


@dataclass(frozen=True)
class CurvePoint:
    """One size of a network on the curve of loss against size.

    `loss` and its standard error `error` are those of the held-out rows; `plain_loss` is the loss without the repair of
    the last cut. `score` is present if a score was given, `flops` if `max_flops` or `positions` was
    given.
    """

    units: Mapping[str, int]
    parameters: int
    loss: float
    error: float
    plain_loss: float
    score: float | None = None
    flops: float | None = None

    @property
    def total_units(self) -> int:
        """The units of all layers together."""
        return sum(self.units.values())


@dataclass(frozen=True, eq=False)
class Choice(Generic[ModelT]):
    """A curve of loss against size, and the chosen point. `print` shows it as a table, `model()` builds the network.

    Notebooks draw the curve, and `svg()` returns the picture. `curve` goes from the whole network down to one unit per
    layer. `reason` says why the point was chosen.
    """

    curve: tuple[CurvePoint, ...]
    chosen: int
    reason: str
    _network: Callable[[int], ModelT] = field(repr=False)

    @property
    def point(self) -> CurvePoint:
        """The chosen point."""
        return self.curve[self.chosen]

    @property
    def widths(self) -> dict[str, int]:
        """The chosen number of units per layer."""
        return dict(self.point.units)

    def model(self, place: int | None = None) -> ModelT:
        """The network at the chosen point, or at another place of the curve, cut and repaired."""
        return self._network(self.chosen if place is None else range(len(self.curve))[place])

    def svg(self) -> str:
        """A picture of the curve with the chosen point, as the text of an SVG file."""
        return draw_curve(self.curve, self.chosen)

    _repr_svg_ = svg

    def __str__(self) -> str:
        scored = any(point.score is not None for point in self.curve)
        head = ["", "units", "layers", "parameters", "loss", "std. error", *(["score"] if scored else [])]
        rows = []
        for place, point in enumerate(self.curve):
            row = [
                "→" if place == self.chosen else "",
                f"{point.total_units:,}",
                ", ".join(map(str, point.units.values())),
            ]
            row += [f"{point.parameters:,}", f"{point.loss:.4f}", f"{point.error:.4f}"]
            rows.append([*row, *([f"{point.score:.4f}"] if point.score is not None else [])])
        return text_table(head, rows) + f"\nChosen: {self.reason}."


def choose(
    model: ModelT,
    data: Any,
    loss: Loss,
    *,
    repair: Any = None,
    score: Score | None = None,
    slack: float = SLACK,
    max_drop: float | None = None,
    max_units: int | None = None,
    max_params: int | None = None,
    max_flops: float | None = None,
    max_latency: float | None = None,
    step: float = 0.2,
    positions: Mapping[str, int] | None = None,
) -> Choice[ModelT]:
    """The smallest version of a trained network whose loss on held-out rows is as good as the best.

    `data` are held-out rows that training has not seen: (inputs, targets) or batches of them. `loss(outputs, targets,
    weights)` is the mean loss, such as `awn.likelihood.categorical`. The network is cut step by step, each time by the
    fraction `step` of the layer whose cut costs the least loss per parameter, and repaired after each cut. `repair` are
    the inputs for this, best those of the training set; by default those of `data`; False cuts without repair.

    The choice is the smallest network whose loss is within `slack` standard errors of the lowest. `max_units`,
    `max_params`, `max_flops` and `max_latency` (seconds for one batch of `data`) restrict it to smaller networks. With
    `max_drop`, it is the smallest network whose `score` is at most that much below the whole network's. `positions` is
    that of `awn.Budget`; by default they are counted, for `max_flops`, on a batch of `data`. The model itself is not
    changed.

    >>> import awn
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(400, 2)
    >>> model = awn.AdaptiveMLP(2, 1, importance=awn.Exponential.for_units(32))
    >>> y = awn.truncate(model, units=4)(x).detach()                       # a task for which 4 units are enough
    >>> choice = awn.choose(model, (x, y), awn.likelihood.gaussian)
    >>> choice.widths
    {'hidden.0': 4}
    >>> awn.widths(choice.model())
    {'hidden.0': 4}
    """
    groups = require_groups(model)
    _check(slack, step, max_drop, score)
    limits = _limits(max_units=max_units, max_params=max_params, max_flops=max_flops)
    held_out = HeldOut.of(data, loss)
    inputs, argument = (held_out.inputs(), "data") if repair is None else (repair, "repair")
    reference = None if repair is False else Reference.of(model, inputs, argument)
    batch = held_out.parts[0].batch
    flops = _flops_of(model, groups, positions, None if max_flops is None else batch)
    rungs = list(climb_down(model, held_out, reference, step, score))
    build = partial(_rebuilt, model, reference, rungs)
    curve = tuple(_point(rung, flops) for rung in rungs)
    allowed = [place for place, point in enumerate(curve) if all(limit(point) for limit in limits)]
    if max_latency is not None:
        check_number("max_latency", max_latency)
        allowed = _fast_enough(allowed, build, batch, max_latency)
    if not allowed:
        raise ArgumentError("no version of the network meets the limits, not even one with a single unit per layer.")
    chosen, reason = _pick(curve, allowed, slack, max_drop)
    return Choice(curve, chosen, reason, build)


def _point(rung: Rung, flops: Callable[[Mapping[str, int]], float] | None) -> CurvePoint:
    losses = rung.losses.mean, rung.losses.error, rung.plain.mean
    return CurvePoint(
        rung.units, rung.parameters, *losses, score=rung.score, flops=None if flops is None else flops(rung.units)
    )


def pick_smallest(curve: Sequence[CurvePoint], allowed: Sequence[int], slack: float = SLACK) -> tuple[int, str]:
    """The place of the smallest network whose loss is within the slack of the best, and the reason in words."""
    best = min(allowed, key=lambda place: curve[place].loss)
    limit = curve[best].loss + slack * curve[best].error
    good = [place for place in allowed if curve[place].loss <= limit]
    reason = f"the smallest with a loss of at most {limit:.4f}, {slack:g} standard errors above the best"
    return min(good, key=lambda place: _size(curve[place])), reason


def _size(point: CurvePoint) -> tuple[int, int]:
    return point.parameters, point.total_units


def _pick(curve: Sequence[CurvePoint], allowed: Sequence[int], slack: float, max_drop: float | None) -> tuple[int, str]:
    if max_drop is None:
        return pick_smallest(curve, allowed, slack)
    whole = curve[0].score
    assert whole is not None
    lowest = whole - max_drop - 1e-9 * max(1.0, abs(whole))
    good = [place for place in allowed if (curve[place].score or -math.inf) >= lowest]
    if not good:
        raise ArgumentError(
            f"no version of the network within the limits scores at least {lowest:.4f}. Raise max_drop.",
            argument="max_drop",
        )
    return min(good, key=lambda place: _size(curve[place])), f"the smallest with a score of at least {lowest:.4f}"


def _check(slack: float, step: float, max_drop: float | None, score: object) -> None:
    check_number("slack", slack, or_equal=True)
    if not 0 < step < 1:
        raise ArgumentError(f"step must lie strictly between 0 and 1, got {step}.", argument="step")
    if max_drop is not None:
        check_number("max_drop", max_drop, or_equal=True)
        if score is None:
            raise ArgumentError("max_drop is a drop of the score, so it needs score=….", argument="max_drop")


def _limits(**limits: float | None) -> list[Callable[[CurvePoint], bool]]:
    of_point: dict[str, Callable[[CurvePoint], float | None]] = {
        "max_units": lambda point: point.total_units,
        "max_params": lambda point: point.parameters,
        "max_flops": lambda point: point.flops,
    }

    def within(name: str, limit: float) -> Callable[[CurvePoint], bool]:
        def check(point: CurvePoint) -> bool:
            value = of_point[name](point)
            return value is not None and value <= limit

        return check

    checks = []
    for name, limit in limits.items():
        if limit is not None:
            check_number(name, limit)
            checks.append(within(name, limit))
    return checks


def _rebuilt(model: ModelT, reference: Reference | None, rungs: Sequence[Rung], place: int) -> ModelT:
    """The network at a place of the ladder, by making its cuts again."""
    network = CuttableNetwork(model, reference)
    with network.first_layer_known():
        for rung in rungs[1 : place + 1]:
            assert rung.cut is not None
            network.cut_(rung.cut)
    units = network.units
    for group, original in zip(network.groups, require_groups(model), strict=True):
        group.width.set_units(original.width.units, group.width.capacity)
    return truncate(cast("ModelT", network.model), units=units)


def _flops_of(
    model: nn.Module, groups: Sequence[WidthGroup], positions: Mapping[str, int] | None, counted: Batch | None
) -> Callable[[Mapping[str, int]], float] | None:
    """The FLOPs of the adaptive layers for one sample, at given widths; None if its positions are unknown.

    Positions that are not given are those in `counted`, a batch, if there is one.
    """
    if positions is None and counted is not None:
        positions = count_positions(model, counted.kwargs or counted.args)
    if positions is None:
        return None
    products = Budget(max_flops=1.0, positions=positions).cost(model, groups)
    names = [group.name for group in groups]
    return lambda units: sum(factor * math.prod(units[names[number]] for number in used) for factor, used in products)


def _fast_enough(allowed: Sequence[int], build: Callable[[int], nn.Module], batch: Batch, limit: float) -> list[int]:
    """The places whose finalized network takes at most `limit` seconds for a batch; by bisection."""
    low, high = 0, len(allowed)  # all before `low` are too slow, all from `high` on are fast enough
    while low < high:
        middle = (low + high) // 2
        network = finalize(build(allowed[middle])).eval()
        with torch.no_grad():
            seconds = in_turns({"forward": partial(batch.run, network)}, _LATENCY_TURNS, burst=0.0)["forward"]
        low, high = (low, middle) if statistics.median(seconds) <= limit else (middle + 1, high)
    return list(allowed[low:])
