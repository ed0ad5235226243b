"""Ordered training: steps that use a prefix of every layer's units besides the whole network.

The prefix of the next step is drawn where widths are settled, by `resize_`. Forwards use it only between
`use_prefix_(model, True)` and `use_prefix_(model, False)`, and only in training mode.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from awn.core.groups import WidthGroup, find_groups
from awn.core.width import Width
from awn.parallel.unwrap import unwrapped

# A loop that ignores as many prefixes in a row has no code for them.
_TOO_MANY_UNUSED = 10


def order_(model: nn.Module, share: float) -> None:
    """Set the share of the training steps that also use a prefix, in every layer.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> order_(model, 0.5)
    >>> model.hidden[0].width.ordered
    0.5
    """
    for group in find_groups(model):
        group.width.ordered = float(share)
        group.width.draw_(group.width.draw)


def draw_prefix_(groups: Sequence[WidthGroup]) -> None:
    """Draw the prefix of the next step, tied over all layers. `resize_` calls it.

    >>> import awn
    >>> model = awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(128), ordered=1.0)
    >>> draw_prefix_(find_groups(model))
    >>> model.hidden[0].width.prefix_units
    61
    """
    ordered = [group.width for group in groups if group.width.ordered]
    if not ordered:
        return
    if has_prefix(groups):
        _count_unused(ordered[0])
    number = ordered[0].draw + 1
    for width in ordered:
        width.draw_(number)


def has_prefix(groups: Sequence[WidthGroup]) -> bool:
    """Whether the next step has a prefix: its draw leaves out units of some layer."""
    return any(group.width.prefix_units < group.width.units for group in groups)


def use_prefix_(model: nn.Module, on: bool) -> bool:
    """Have training forwards use the drawn prefix, or the whole network again; returns whether they used one before.

    If no prefix is drawn, they use the whole network in either case. A batch norm normalises a prefix by the statistics
    of the batch. It does not update its running statistics, which are those of the whole network.
    """
    groups = find_groups(model)
    ordered = [group.width for group in groups if group.width.ordered]
    before = bool(ordered) and ordered[0].uses_prefix
    on = on and has_prefix(groups)
    if before == on:
        return before
    first = ordered[0]
    if on:
        norms = (module for module in unwrapped(model).modules() if isinstance(module, _NormBase))
        first.paused_norms = [norm for norm in norms if norm.track_running_stats]
        first.unused_prefixes = 0
    for norm in first.paused_norms:
        norm.track_running_stats = not on
    for width in ordered:
        width.uses_prefix = on
    return before


def _count_unused(width: Width) -> None:
    width.unused_prefixes += 1
    if width.unused_prefixes == _TOO_MANY_UNUSED:
        warnings.warn(
            f"ordered={width.ordered:g}, but the last {_TOO_MANY_UNUSED} prefixes were not used: this training is not "
            "ordered. Compute the data loss by awn.advanced.ordered_loss(model, closure).",
            stacklevel=4,
        )
