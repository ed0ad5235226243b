"""adapt_: give the hidden layers of any PyTorch model a learned width, in place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

from awn.adapt.hidden import Hidden, Refusal
from awn.adapt.patterns import Patterns, as_list, check_patterns, explicit_groups, matches
from awn.adapt.preserve import preserve_, unit_energies
from awn.adapt.report import Adapted, Report, Skipped
from awn.adapt.rules.recurrent import recurrent_layer
from awn.adapt.trace import find_hidden
from awn.core.axis import Axis
from awn.core.families import Exponential
from awn.core.groups import WidthGroup, check_connection, connect_, disconnect_, find_groups
from awn.core.importance import Importance
from awn.core.initialise import kaiming_plus_
from awn.core.resize import set_units_
from awn.core.state import follow_state_dicts_
from awn.core.width import NewUnits, Width, even_amplitude
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

    Hidden layers are found by the patterns of `groups`, by rules for known modules, and by tracing the forward; tracing
    sees through reshapes better with an `example_input`: a tensor, a tuple of arguments, or a dict of named ones.
    `include` and `exclude` choose among what is found, by patterns of the layers' names.

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
    _check_importance(importance, preserve)
    _check_start(preserve, redraw, data)
    named = explicit_groups(model, groups)
    paths = {module: path for path, module in model.named_modules()}
    chosen, skipped = _choose(model, named, find_hidden(model, example_input), paths, include, exclude)
    _check_found(model, [*named, *chosen], skipped)
    _check_cap([*named, *chosen], paths, max_units, preserve)
    limits = {"min_units": min_units, "max_units": max_units, "block": block, "new_units": new_units}
    plans = [_plan(hidden, importance, quantile, {**limits, "ordered": ordered}) for hidden in [*named, *chosen]]
    energies = {} if data is None else unit_energies(model, {plan.width: plan.axes for plan in plans}, data)
    _connect_all_(model, plans)
    if redraw:
        _redraw_(find_groups(model))
    if preserve:
        preserve_(find_groups(model), energies)
    follow_state_dicts_(model)
    return _report(model, skipped)


@dataclass(frozen=True)
class _Plan:
    """A width that is ready to be connected."""

    width: Width
    axes: list[Axis]


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"adapt_ takes a torch.nn.Module, got {type(model).__name__}.")
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
    adaptive = find_groups(model)
    if adaptive:
        raise ArgumentError(
            f"the model is adaptive already: {adaptive[0].name!r} has a learned width of "
            f"{adaptive[0].width.units} units. Call adapt_ once, on the whole model."
        )


def _check_start(preserve: bool, redraw: bool, data: Any) -> None:
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


def _check_cap(found: Sequence[Hidden], paths: dict[nn.Module, str], max_units: int | None, preserve: bool) -> None:
    for hidden in found:
        if preserve and max_units is not None and hidden.units > max_units:
            raise ArgumentError(
                f"layer {paths[hidden.producers[0]]!r} has {hidden.units} units, more than max_units={max_units}, and "
                "preserve=True keeps them all. Shrink it afterwards, by awn.truncate, or by a Budget as it trains."
            )


def _check_found(model: nn.Module, found: Sequence[Hidden], skipped: Sequence[Skipped]) -> None:
    if found:
        return
    others = _others(model, {one.name for one in skipped})
    why = "\n".join(f"  {one.name}: {one.reason}" for one in (*skipped, *others))
    raise ArgumentError(
        f"{type(model).__name__} has no hidden layer whose width can be learned."
        + (f" What it has:\n{why}" if why else " It has no layer that reads what another one makes.")
    )


def _choose(
    model: nn.Module,
    named: Sequence[Hidden],
    found: Iterable[Hidden | Refusal],
    paths: dict[nn.Module, str],
    include: Patterns | None,
    exclude: Patterns,
) -> tuple[list[Hidden], list[Skipped]]:
    """What of all that was found is to be adapted, and what is not."""
    ties = _tied(model)
    for hidden in named:
        reason = _why_not(hidden, ties)
        if reason is not None:
            raise ArgumentError(f"groups names {paths[hidden.producers[0]]!r}, but {reason}.")
    by_user = {layer for hidden in named for layer in hidden.producers}
    usable: dict[str, Hidden] = {}
    refused: dict[str, str] = {}
    for one in found:
        layer = one.layer if isinstance(one, Refusal) else one.producers[0]
        if isinstance(one, Hidden):
            _check_named(named, one, paths)
        if layer in by_user:
            continue
        reason = one.reason if isinstance(one, Refusal) else _frozen(one) or _why_not(one, ties)
        if reason is not None:
            refused[paths[layer]] = reason
        else:
            assert isinstance(one, Hidden)
            usable[paths[layer]] = one
    usable = {name: hidden for name, hidden in usable.items() if name not in refused}
    included, excluded = None if include is None else as_list(include), as_list(exclude)
    check_patterns("include", included or (), list(usable), refused)
    check_patterns("exclude", excluded, list(usable), {})
    chosen = []
    for name, hidden in usable.items():
        if included is not None and not matches(name, included):
            refused[name] = "include does not name it"
        elif matches(name, excluded):
            refused[name] = "exclude names it"
        else:
            chosen.append(hidden)
    return chosen, [Skipped(name, reason) for name, reason in refused.items()]


def _check_named(named: Sequence[Hidden], found: Hidden, paths: dict[nn.Module, str]) -> None:
    """Refuse groups that leave out a layer which is known to make or to read the same units."""
    for hidden in named:
        for role in ("producers", "consumers"):
            here, there = set(getattr(hidden, role)), set(getattr(found, role))
            shared = here & there
            left_out = {*found.producers, *found.consumers} - {*hidden.producers, *hidden.consumers}
            if shared and left_out:
                names = sorted(paths[layer] for layer in left_out)
                raise ArgumentError(
                    f"groups names {paths[shared.pop()]!r}, but not {names[0]!r}, which has to do with the same units: "
                    "name all layers that make them and all that read them."
                )


def _tied(model: nn.Module) -> dict[Tensor, list[str]]:
    """The parameters that stand in more than one place of a model."""
    names: dict[Tensor, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    slots: dict[Tensor, set[int]] = {}
    for module in model.modules():
        for own in module.parameters(recurse=False):
            slots.setdefault(own, set()).add(id(module))
    return {parameter: names[parameter] for parameter, holders in slots.items() if len(holders) > 1}


def _frozen(hidden: Hidden) -> str | None:
    """Say so if the layers are not trained: units that are added to them would never learn anything."""
    weights = [weight for layer in (*hidden.producers, *hidden.consumers) for weight in layer.parameters()]
    if all(weight.requires_grad for weight in weights):
        return None
    return (
        "weights are frozen (requires_grad=False). To have the width learned all the same, name the layers in groups="
    )


def _why_not(hidden: Hidden, ties: dict[Tensor, list[str]]) -> str | None:
    """Why a hidden axis that was found cannot have a learned width after all; None if it can."""
    layers = (*hidden.producers, *hidden.consumers)
    for layer in layers:
        for parameter in layer.parameters(recurse=False):
            if parameter in ties:
                return f"a weight is tied: {' is '.join(ties[parameter])}. Untie it, or leave the width fixed"
    try:
        check_connection(_width_of(hidden.units), hidden.axes())
    except AwnError as error:
        return str(error).rstrip(".")
    return None


def _width_of(units: int) -> Width:
    return Width(Exponential.for_units(units), block=1)


def _plan(
    hidden: Hidden, importance: Importance | type[Importance] | None, quantile: float, limits: dict[str, Any]
) -> _Plan:
    axes, units = hidden.axes(), hidden.units
    like = axes[0].tensor
    if isinstance(importance, Importance):
        family = importance
    else:
        family = (importance or Exponential).for_units(units, quantile)
    width = Width(family, quantile=quantile, gain=hidden.gain, device=like.device, dtype=like.dtype, **limits)
    # The weights that read the units stay as they are: on average, the importance leaves their sums as large.
    width.amplitude = even_amplitude(family, width.units)
    width.set_units(units, units)  # as the tensors are: no slot is inert yet
    return _Plan(width, axes)


def _connect_all_(model: nn.Module, plans: Sequence[_Plan]) -> None:
    """Connect every width; after a failure the model is as it was."""
    try:
        for plan in plans:
            connect_(plan.width, plan.axes)
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


def _report(model: nn.Module, skipped: Sequence[Skipped]) -> Report:
    paths = {module: path for path, module in model.named_modules()}

    def layers(group: WidthGroup, role: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(paths[axis.module] for axis in group.axes if axis.role == role))

    adapted = [
        Adapted(group.name, group.width.units, layers(group, "producer"), layers(group, "consumer"))
        for group in find_groups(model)
    ]
    told = {name for one in adapted for name in (*one.producers, *one.consumers)} | {one.name for one in skipped}
    return Report(tuple(adapted), (*skipped, *_others(model, told)))


def _others(model: nn.Module, told: set[str]) -> Iterator[Skipped]:
    """The layers with a weight of which nothing was said yet: a reader of the report should not miss any."""
    for path, module in model.named_modules():
        parts = path.split(".")
        if any(".".join(parts[:end]) in told for end in range(1, len(parts) + 1)):
            continue
        if any(parameter is not None and parameter.dim() > 1 for parameter in module._parameters.values()):
            told.add(path)
            refused = recurrent_layer(module)
            unknown = f"the width of {type(module).__name__} is not learned" if path else "it has a weight of its own"
            yield Skipped(path or "the model itself", refused[0].reason if refused else unknown)
        elif parametrize.is_parametrized(module):
            told.add(path)
            yield Skipped(path, "its weight is computed by a parametrization such as weight norm: remove that first")
