"""Plan: the widths, axes and attributes of what was found, ready to be connected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, nn

from awn.adapt.bench import Patches
from awn.adapt.groups import Candidate, layout, owner
from awn.adapt.hidden import Hidden
from awn.adapt.record import Place, Recorder
from awn.adapt.sizes import size_names
from awn.adapt.terms import Term
from awn.core.attribute import Attribute
from awn.core.axes import Norm
from awn.core.axis import Axis, Block, Blocks, Layout, Role
from awn.core.families import Exponential
from awn.core.groups import WIDTH_NAME, check_connection
from awn.core.importance import Importance
from awn.core.width import NewUnits, Width, even_amplitude
from awn.errors import ArgumentError, AwnError

# What tensors of norms hold for a new unit.
_NORM_STARTS = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}


@dataclass
class Plan:
    """A width that is ready to be connected."""

    name: str
    width: Width
    axes: list[Axis]
    attributes: list[Attribute] = field(default_factory=list)


class Limits(NamedTuple):
    """The options of all widths that do not depend on their number of units."""

    min_units: int
    max_units: int | None
    block: int
    new_units: NewUnits
    ordered: float


@dataclass(frozen=True)
class Options:
    """How widths are made."""

    importance: Importance | type[Importance] | None
    quantile: float
    limits: Limits

    def width(self, units: int, like: Tensor, gain: float | None = None) -> Width:
        """A width of so many units, which leaves sums over them as large as they are."""
        if isinstance(self.importance, Importance):
            family = self.importance
        else:
            family = (self.importance or Exponential).for_units(units, self.quantile)
        gain = math.sqrt(2) if gain is None else gain
        width = Width(
            family, quantile=self.quantile, gain=gain, device=like.device, dtype=like.dtype, **self.limits._asdict()
        )
        width.amplitude = even_amplitude(family, width.units)
        width.set_units(units, units)  # as the tensors are: no slot is inert yet
        return width


def plan_named(hidden: Hidden, path: str, options: Options) -> Plan:
    """The plan of what the user names."""
    axes = hidden.axes()
    return Plan(path, options.width(hidden.units, axes[0].tensor, hidden.gain), axes)


def plan_found(
    model: nn.Module, recorder: Recorder, candidates: Sequence[Candidate], patches: Patches, options: Options
) -> list[Plan]:
    """The plans of candidates that hold; a candidate that cannot be connected gets the reason instead."""
    modules = dict(model.named_modules())
    order = {path: place for place, path in enumerate(modules)}
    left = sorted(candidates, key=lambda one: order[one.name])
    while True:
        plans, widths = list[Plan](), {}
        for one in left:
            like = getattr(modules[owner(one.makers[0][0])], one.makers[0][0].rpartition(".")[2])
            try:
                widths[one.leaf] = options.width(one.size, like, one.gain)
            except ArgumentError as error:  # some families have no width of few units
                one.why = str(error).rstrip(".")
        taken: set[str] = set()
        for one in left:
            if one.why is not None:
                continue
            try:
                plans.append(_plan(one, recorder, modules, widths, taken))
                check_connection(plans[-1].width, plans[-1].axes)
            except AwnError as error:
                one.why = str(error).rstrip(".")
        if len(plans) == len(left) and all(one.why is None for one in left):
            break
        left = [one for one in left if one.why is None]  # layouts that mention a width that goes change with it
    by_width = {plan.width: plan for plan in plans}
    for (path, name, index), term in patches.items():
        counts = layout(term, widths)
        owners = [width for width, _ in counts or () if width is not None]
        if counts is not None and owners:
            by_width[owners[0]].attributes.append(Attribute(modules[path], name, tuple(counts), index))
    return plans


def _plan(
    candidate: Candidate,
    recorder: Recorder,
    modules: Mapping[str, nn.Module],
    widths: Mapping[Term, Width],
    taken: set[str],
) -> Plan:
    width = widths[candidate.leaf]
    gated = [*candidate.readers, *candidate.silent]
    makers = [place for place in candidate.makers if place not in candidate.silent]
    free = [place for place in makers if recorder.tensors[place[0]].dim() > 1 and owner(place[0]) not in taken]
    carriers = [place for place in free if not hasattr(modules[owner(place[0])], WIDTH_NAME)] or free
    if not carriers:
        raise AwnError("the module that makes its units carries another learned width already")
    first = next((place for place in carriers if owner(place[0]) == candidate.name), carriers[0])
    makers = sorted(makers, key=lambda place: place != first)
    candidate.name = owner(first[0])
    taken.add(candidate.name)
    weighted = {owner(name) for name, _ in makers if recorder.tensors[name].dim() > 1}
    makes: list[tuple[Place, Role]] = [(place, "producer") for place in makers]
    reads: list[tuple[Place, Role]] = [(place, "consumer") for place in gated]
    axes = [_axis(place, role, recorder, modules, widths, width, weighted) for place, role in makes + reads]
    return Plan(candidate.name, width, axes)


def _axis(
    place: Place,
    role: Role,
    recorder: Recorder,
    modules: Mapping[str, nn.Module],
    widths: Mapping[Term, Width],
    own: Width,
    weighted: set[str],
) -> Axis:
    name, dim = place
    path, _, tensor = name.rpartition(".")
    module = modules[path]
    blocks = layout(recorder.axes[name][dim], widths)
    if blocks is None:
        raise AwnError(f"the entries of its units lie in too many places of {name!r}")
    names = size_names(module, tensor, dim)
    fill = _fill(module, tensor, role, path in weighted)
    return Axis(
        module,
        tensor,
        dim,
        role,
        _as_layout(tuple(blocks), own),
        fill,
        names[0] if len(names) == 1 else names or None,
    )


def _as_layout(blocks: Blocks, own: Width) -> Layout:
    if len(blocks) == 1:
        return blocks[0][1]
    return tuple(
        Block(entries, fixed=True) if width is None else Block(entries, None if width is own else width)
        for width, entries in blocks
    )


def _fill(module: nn.Module, name: str, role: Role, has_weight: bool) -> float | None:
    """The value of new units in tensors that are not drawn at random."""
    tensor = getattr(module, name)
    if isinstance(module, Norm | nn.GroupNorm):
        return _NORM_STARTS.get(name, 0.0)
    if role == "consumer":
        return 0.0 if tensor.dim() < 2 else None
    if isinstance(module, nn.PReLU):
        return 0.25
    if isinstance(tensor, nn.Parameter) and (tensor.dim() > 1 or has_weight):
        return None
    return float(tensor.detach().double().mean())
