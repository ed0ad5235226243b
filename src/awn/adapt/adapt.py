"""adapt_: give the hidden layers of any PyTorch model a learned width, in place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from awn.adapt.discover import Discovery, check_dense, discover, tied
from awn.adapt.groups import Candidate, owner
from awn.adapt.hidden import Hidden
from awn.adapt.interrupt import check_interrupt, interrupts_delayed
from awn.adapt.patterns import Patterns, as_list, check_patterns, explicit_groups, matches
from awn.adapt.plan import Limits, Options, Plan, plan_found, plan_named
from awn.adapt.preserve import preserve_, unit_energies
from awn.adapt.reasons import reasons_for_others, report_on
from awn.adapt.report import Report, Skipped
from awn.adapt.untouched import untouched
from awn.core.groups import WidthGroup, check_connection, connect_, disconnect_, find_groups
from awn.core.importance import Importance
from awn.core.initialise import kaiming_plus_
from awn.core.resize import set_units_
from awn.core.state import follow_state_dicts_
from awn.core.width import NewUnits, Width
from awn.errors import ArgumentError, AwnError
from awn.parallel.unwrap import uncompiled


def adapt_(
    model: nn.Module,
    *,
    include: Patterns | None = None,
    exclude: Patterns = (),
    groups: Iterable[tuple[Patterns, Patterns]] = (),
    importance: Importance | type[Importance] | None = None,
    quantile: float = 0.9,
    preserve: bool = False,
    data: Any = None,
    redraw: bool = False,
    example_input: Any = None,
    min_units: int = 1,
    max_units: int | None = None,
    block: int = 8,
    new_units: NewUnits = "zero",
    ordered: float = 0.0,
) -> Report:
    """Make a model's hidden layers adaptive, in place, before its optimizer is built; says what was done.

    A copy of the model runs on `example_input` while awn follows its dimensions, and what is found is verified by
    numbers. The example is a tensor, a tuple of arguments, or a dict of named ones, and may be left out if the first
    layers say what the model reads. `groups` names further layers. `include` and `exclude` choose among what is found,
    by patterns of the layers' names.

    Every layer starts at the width that it has, with the exponential importance or that of another class. An instance,
    such as `awn.Exponential.for_units(64)`, sets the initial width of all layers. A fresh model keeps its own weights:
    the importance has a mean square of 1, so that sums over units keep their variance. `redraw=True` draws all weights
    anew by Kaiming+, as the paper does. For a trained model, `preserve=True` keeps the outputs: units are sorted by
    their strength, and the weights that read them are divided by the importance. The strength is the norm of a unit's
    weights or, given `data` (a tensor of inputs or an iterable of batches), the energy of its contribution there.
    `ordered`: see `awn.advanced.ordered_loss`.

    >>> import awn
    >>> model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
    >>> print(awn.adapt_(model))
    layer  units  made by  read by
    0         64  0        2
    fixed  why
    2      it is an output of Sequential
    >>> awn.widths(model)
    {'0': 64}
    """
    _check_model(model)
    _check_start(importance, preserve, redraw, data)
    named = explicit_groups(model, groups)
    limits = Limits(min_units, max_units, block, new_units, ordered)
    options = Options(importance, quantile, limits)
    with interrupts_delayed():
        with untouched(model):
            # A bad option is refused before anything runs. Every family has this width.
            options.width(_ORDINARY, next(model.parameters(), _NOTHING))
            found = discover(model, example_input, required=not named)
        plans, skipped = _plans(model, named, found, options, include, exclude)
        _check_cap(plans, max_units, preserve)
        energies = {} if data is None else unit_energies(model, {plan.width: plan.axes for plan in plans}, data)
        check_interrupt()
        _connect_all_(model, plans)
        _start_(model, preserve=preserve, redraw=redraw, energies=energies)
        return report_on(model, found, skipped)


def _start_(model: nn.Module, *, preserve: bool, redraw: bool, energies: Mapping[Width, Tensor]) -> None:
    """Give a model that has just been connected its weights."""
    if redraw:
        _redraw_(find_groups(model))
    if preserve:
        preserve_(find_groups(model), energies)
    follow_state_dicts_(model)


# What widths are made like in a model without parameters, and a number of units that no family refuses.
_NOTHING, _ORDINARY = torch.zeros(()), 128


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"adapt_ takes a torch.nn.Module, got {type(model).__name__}.")
    if isinstance(model, torch.jit.ScriptModule):
        raise ArgumentError("this is what torch.jit.script returned. Adapt the model that it was given.")
    if uncompiled(model) is not model:
        raise ArgumentError(
            "this is what torch.compile returned. Adapt the model that it was given, then compile that."
        )
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        raise ArgumentError(f"adapt the model inside, and wrap it in {type(model).__name__} afterwards.")
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            raise ArgumentError(f"{name!r} is lazy: it has no numbers before the first forward. Run one, then adapt_.")
        if tensor.is_meta:
            raise ArgumentError(f"{name!r} is on the meta device: it has no numbers. Load them, then adapt_.")
    check_dense(model)
    adaptive = find_groups(model)
    if adaptive:
        raise ArgumentError(
            f"the model is adaptive already: {adaptive[0].name!r} has a learned width of "
            f"{adaptive[0].width.units} units. Call adapt_ once, on the whole model."
        )


def _check_start(importance: Any, preserve: bool, redraw: bool, data: Any) -> None:
    _check_importance(importance, preserve)
    if preserve and redraw:
        raise ArgumentError("preserve=True keeps what a model computes, and redraw=True does not: choose one.")
    if data is not None and not preserve:
        raise ArgumentError("data orders the units of a trained model: pass preserve=True with it.")


def _check_importance(importance: Any, preserve: bool) -> None:
    of_class = isinstance(importance, type) and issubclass(importance, Importance)
    if not (importance is None or of_class or isinstance(importance, Importance)):
        raise ArgumentError(f"importance must be a family such as awn.Exponential, got {importance!r}.")
    if preserve and isinstance(importance, Importance):
        raise ArgumentError(
            f"preserve=True keeps every layer's width, and {importance} brings one of its own. "
            f"Pass the class: importance=awn.{type(importance).__name__}."
        )


def _connect_all_(model: nn.Module, plans: Sequence[Plan]) -> None:
    """Connect every width; after a failure the model is as it was."""
    try:
        for plan in plans:
            connect_(plan.width, plan.axes, plan.attributes)
        wanted = {group.name: group.width.settle(group.width.log_nu.item())[0] for group in find_groups(model)}
        set_units_(model, wanted)
    except BaseException:
        for plan in reversed(plans):
            disconnect_(plan.width, fold=False)
        raise


def _redraw_(groups: Sequence[WidthGroup]) -> None:
    for group in groups:
        group.width.amplitude = 1.0
        group.width.set_units(group.width.units, group.width.capacity)
    kaiming_plus_(groups)


def _check_cap(plans: Sequence[Plan], max_units: int | None, preserve: bool) -> None:
    for plan in plans:
        if preserve and max_units is not None and plan.width.units > max_units:
            raise ArgumentError(
                f"layer {plan.name!r} has {plan.width.units} units, more than max_units={max_units}, and "
                "preserve=True keeps them all. Shrink it afterwards, by awn.truncate, or by a Budget as it trains."
            )


def _plans(
    model: nn.Module,
    named: Sequence[Hidden],
    found: Discovery,
    options: Options,
    include: Patterns | None,
    exclude: Patterns,
) -> tuple[list[Plan], list[Skipped]]:
    """What is to be connected, and what was found but is not, with the reason."""
    paths = {module: path for path, module in model.named_modules()}
    plans = [plan_named(hidden, paths[hidden.producers[0]], options) for hidden in named]
    _check_named(model, named, plans, found, paths)
    by_user = {paths[layer] for hidden in named for layer in hidden.producers}
    usable = [one for one in found.kept if one.name not in by_user]
    rest = plan_found(model, found.recorder, usable, found.patches, options)
    names = [plan.name for plan in rest]
    makes = [axis for plan in rest for axis in plan.axes if axis.role == "producer"]
    making = {f"{paths[axis.module]}.{axis.name}".lstrip(".") for axis in makes}
    refused = {
        _layer_of(one, names): one.why
        for one in found.candidates
        if one.why is not None
        and one.name not in by_user
        and not (one.name in names and making & {name for name, _ in one.makers})
    }
    included, excluded = None if include is None else as_list(include), as_list(exclude)
    told = {**reasons_for_others(model, found, {*names, *by_user, *refused}), **refused}
    check_patterns("include", included or (), names, told)
    check_patterns("exclude", excluded, names, {})
    chosen = [name for name in names if (included is None or matches(name, included)) and not matches(name, excluded)]
    for name in names:
        if name not in chosen:
            refused[name] = "exclude names it" if matches(name, excluded) else "include does not name it"
    if len(chosen) < len(names):  # layouts mention the widths of others
        usable = [one for one in usable if one.why is None and one.name in chosen]
        rest = plan_found(model, found.recorder, usable, found.patches, options)
    skipped = [Skipped(name, reason) for name, reason in refused.items() if reason is not None]
    if not plans and not rest:
        _raise_nothing_found(model, found, skipped)
    return [*plans, *rest], skipped


def _layer_of(candidate: Candidate, named: Sequence[str]) -> str:
    """The name of the layer that a reason is about: of a module that carries another width, that of the weight."""
    path = candidate.name.split(".parametrizations.")[0]
    return candidate.makers[0][0] if path in named and candidate.makers else path


def _raise_nothing_found(model: nn.Module, found: Discovery, skipped: Sequence[Skipped]) -> None:
    others = reasons_for_others(model, found, {one.name for one in skipped})
    reasons = {one.name: one.reason for one in skipped} | others
    why = "\n".join(f"  {name}: {reason}" for name, reason in reasons.items())
    raise ArgumentError(
        f"{type(model).__name__} has no hidden layer whose width can be learned."
        + (f" What it has:\n{why}" if why else " It has no layer that reads what another one makes.")
    )


def _check_named(
    model: nn.Module, named: Sequence[Hidden], plans: Sequence[Plan], found: Discovery, paths: dict[nn.Module, str]
) -> None:
    """Refuse groups that cannot be connected, or leave out a layer that makes or reads the same units."""
    ties = tied(model)
    for hidden, plan in zip(named, plans, strict=True):
        for axis in plan.axes:
            if axis.tensor in ties:
                why = f"a weight is tied: {' is '.join(ties[axis.tensor])}. Untie it, or leave the width fixed"
                raise ArgumentError(f"groups names {plan.name!r}, but {why}.")
        try:
            check_connection(plan.width, plan.axes)
        except AwnError as error:
            raise ArgumentError(f"groups names {plan.name!r}, but {error}") from error
        makers, readers = ({paths[layer] for layer in layers} for layers in (hidden.producers, hidden.consumers))
        for candidate in found.kept:
            _check_complete(makers, readers, candidate)


def _check_complete(makers: set[str], readers: set[str], candidate: Candidate) -> None:
    makes, reads = ({owner(name) for name, _ in places} for places in (candidate.makers, candidate.readers))
    shared = (makers & makes) | (readers & reads)
    left_out = sorted((makes | reads) - makers - readers)
    if shared and left_out:
        raise ArgumentError(
            f"groups names {shared.pop()!r}, but not {left_out[0]!r}, which has to do with the same units: "
            "name all layers that make them and all that read them."
        )
