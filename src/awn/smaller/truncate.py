"""Truncation: drop the least important units of a trained network.

All functions return a copy and leave the model unchanged.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypeVar, cast, get_args

from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from awn.basics.checks import check_number, check_units
from awn.core.count import count_parameters
from awn.core.groups import WidthGroup, check_layers, require_groups
from awn.core.importance import round_up
from awn.core.resize import set_units_
from awn.errors import ArgumentError, NonFiniteError
from awn.parallel.unwrap import unwrapped
from awn.smaller.reference import Reference
from awn.smaller.repair import repair_to_

ModelT = TypeVar("ModelT", bound=nn.Module)
Scope = Literal["layer", "global"]
Units = dict[str, int]


def truncate(
    model: ModelT,
    *,
    keep: float | None = None,
    units: int | Mapping[str, int] | None = None,
    max_params: int | None = None,
    scope: Scope = "layer",
    calibrate: Iterable[Any] | None = None,
    repair: Any = None,
) -> ModelT:
    """A copy without the least important units, those at the end of each layer.

    Choose the size in one way: a fraction `keep`; a number of `units`, for every layer or by layer name; or the largest
    network of at most `max_params` parameters. With `scope="layer"` every layer keeps the same fraction. With
    `scope="global"` all layers are truncated at a common quantile of their importance, and `keep` and `units` refer to
    the total. The remaining units keep their importance, and training can continue: the quantile is lowered to the
    share that they hold. `calibrate`, batches of inputs, re-estimates the statistics of batch norms. `repair`, a tensor
    of inputs or batches of them, also refits the weights that read the remaining units, so that the copy stays close to
    the model on this data; see `awn.advanced.repair_`.

    >>> import awn
    >>> awn.widths(awn.truncate(awn.AdaptiveMLP(2, 2, hidden_layers=2), keep=0.7))
    {'hidden.0': 162, 'hidden.1': 162}
    >>> awn.widths(awn.truncate(awn.AdaptiveMLP(2, 2, hidden_layers=2), max_params=1000))
    {'hidden.0': 28, 'hidden.1': 28}
    """
    if sum(choice is not None for choice in (keep, units, max_params)) != 1:
        raise ArgumentError("choose the size in exactly one way: keep=, units= or max_params=.")
    ladder = _Ladder(require_groups(model), scope)
    if keep is not None:
        if not (isinstance(keep, Real) and 0 < keep <= 1):
            raise ArgumentError(f"keep must be a fraction above 0 and at most 1, got {keep}.")
        chosen = ladder.at(max(1, round(keep * ladder.top)))
    elif isinstance(units, Mapping):
        chosen = _named_units(ladder, units)
    elif units is not None:
        chosen = _plain_units(ladder, units)
    else:
        assert max_params is not None
        chosen = _within_parameters(model, ladder, max_params)
    reference = None if repair is None else Reference.of(model, repair)
    return _cut(model, chosen, calibrate, reference)


def compress(
    model: ModelT,
    score: Callable[[ModelT], float],
    *,
    max_drop: float = 0.005,
    scope: Scope = "global",
    calibrate: Iterable[Any] | None = None,
    repair: Any = None,
) -> ModelT:
    """The smallest truncation whose score is at most `max_drop` below that of the model.

    `score` takes a model and returns a number, higher is better. The search is a bisection with about log₂(units)
    evaluations. If the score is not monotonic, the result satisfies `max_drop` but may not be the very smallest. With
    `repair`, as in `truncate`, every truncation is repaired before it is scored.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> small = awn.compress(model, score=lambda m: min(1.0, awn.widths(m)["hidden.0"] / 100))
    >>> awn.widths(small)
    {'hidden.0': 100}
    """
    check_number("max_drop", max_drop, or_equal=True)
    batches = None if calibrate is None else list(calibrate)
    ladder = _Ladder(require_groups(model), scope)
    reference = None if repair is None else Reference.of(model, repair)
    whole = _score(score, model)
    lowest_allowed = whole - max_drop - 1e-9 * max(1.0, abs(whole))  # rounding: a drop from 0.8 to 0.7 is within 0.1
    best = _cut(model, ladder.at(ladder.top), None)
    low, high = 0, ladder.top  # at `low` the score is too low, or no unit is left; at `high` it is good enough
    while high - low > 1:
        middle = (low + high) // 2
        candidate = _cut(model, ladder.at(middle), batches, reference)
        if _score(score, candidate) >= lowest_allowed:
            best, high = candidate, middle
        else:
            low = middle
    return best


@dataclass(frozen=True)
class _Ladder:
    """All joint truncations of a model's layers, ordered by size."""

    groups: Sequence[WidthGroup]
    scope: Scope

    def __post_init__(self) -> None:
        if self.scope not in get_args(Scope):
            raise ArgumentError(f"scope must be 'layer' or 'global', got {self.scope!r}.")

    @property
    def present(self) -> Units:
        return {group.name: group.width.units for group in self.groups}

    @property
    def top(self) -> int:
        """The rung of the whole model: the units of its widest layer, or of all layers together."""
        return max(self.present.values()) if self.scope == "layer" else sum(self.present.values())

    def at(self, rung: int) -> Units:
        """The truncation at a rung: the same fraction per layer, or a common quantile with `rung` units in total."""
        if rung >= self.top:
            return self.present
        if self.scope == "layer":
            return {name: max(1, round(units * rung / self.top)) for name, units in self.present.items()}
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            if sum(self._at_quantile(middle).values()) <= rung:
                low = middle
            else:
                high = middle
        return self._at_quantile(low)

    def _at_quantile(self, quantile: float) -> Units:
        cut = {}
        for group in self.groups:
            soft = group.width.family.soft_width(quantile, group.width.value) if quantile > 0 else 0.0
            cut[group.name] = round_up(min(soft, group.width.units))
        return cut


def _named_units(ladder: _Ladder, units: Mapping[str, int]) -> Units:
    check_layers(ladder.groups, units)
    for name, number in units.items():
        check_units(f"units[{name!r}]", number)
        if number > ladder.present[name]:
            raise ArgumentError(
                f"layer {name!r} has {ladder.present[name]} units, so it cannot be truncated to {number}."
            )
    return {**ladder.present, **units}


def _plain_units(ladder: _Ladder, units: int) -> Units:
    check_units("units", units)
    if ladder.scope == "layer":
        return {name: min(units, number) for name, number in ladder.present.items()}
    if units < len(ladder.groups):
        raise ArgumentError(
            f"{units} units in total are too few: each of the {len(ladder.groups)} layers needs at least one."
        )
    return ladder.at(units)


def _within_parameters(model: nn.Module, ladder: _Ladder, max_params: int) -> Units:
    """The highest rung whose network has at most `max_params` parameters."""
    check_units("max_params", max_params)

    def parameters(rung: int) -> int:
        return count_parameters(model, units=ladder.at(rung))

    if parameters(1) > max_params:
        raise ArgumentError(
            f"max_params={max_params:,} cannot be met: with one unit per layer there are {parameters(1):,} parameters.",
            argument="max_params",
        )
    low, high = 1, ladder.top + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if parameters(middle) <= max_params else (low, middle)
    return ladder.at(low)


def _cut(model: ModelT, units: Units, calibrate: Iterable[Any] | None, reference: Reference | None = None) -> ModelT:
    smaller = _cut_(_copy(model), units, calibrate)
    if reference is not None:
        repair_to_(reference, smaller)
    return smaller


def _copy(model: ModelT) -> ModelT:
    """A copy without a DistributedDataParallel around it."""
    require_groups(model)
    return cast("ModelT", copy.deepcopy(unwrapped(model)))


def _cut_(model: ModelT, units: Units, calibrate: Iterable[Any] | None) -> ModelT:
    groups = require_groups(model)
    present = {group.name: group.width.units for group in groups}
    capacities = {group.name: group.width.capacity_for(units.get(group.name, present[group.name])) for group in groups}
    set_units_(model, units, None, capacities=capacities)
    for group in groups:
        if group.width.units < present[group.name]:
            group.width.hold_()
    if calibrate is not None:
        batches = list(calibrate)
        if not batches:
            raise ArgumentError("calibrate has no batches, but the batch norms need at least one.")
        update_bn(batches, model)
    return model


def _score(score: Callable[[ModelT], float], model: ModelT) -> float:
    returned: Any = score(model)
    if not isinstance(returned, Real | Tensor):
        raise ArgumentError(f"score() must return a number, higher is better; it returned {returned!r}.")
    number = float(returned)
    if not math.isfinite(number):
        raise NonFiniteError(
            f"score() returned {number} for a network of {count_parameters(model):,} parameters, not a finite number."
        )
    return number
