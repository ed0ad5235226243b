"""Averages of weights (EMA, SWA) that follow the widths of a model."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from awn.core.count import axes_by_tensor, blocks_by_dim
from awn.core.groups import require_groups
from awn.core.initialise import generator_apart
from awn.core.places import active_parts
from awn.core.resize import Resize, set_units_
from awn.errors import ArgumentError


def follow_widths_(average: nn.Module, model: nn.Module) -> dict[str, Resize]:
    """Bring an average of a model, or any copy of it, to the model's widths; returns the layers that changed.

    Call it before each `update_parameters`. Units that are new to the average start at the model's present values.

    >>> import awn
    >>> from torch.optim.swa_utils import get_ema_multi_avg_fn
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    >>> _ = set_units_(model, {"hidden.0": 300}, optimizer=None)      # in a real run: resize_
    >>> follow_widths_(average, model)
    {'hidden.0': Resize(before=231, after=300)}
    >>> average.update_parameters(model)
    """
    copy = average.module if isinstance(average, AveragedModel) else average
    there, here = require_groups(model), require_groups(copy)
    if [group.name for group in here] != [group.name for group in there]:
        raise ArgumentError(
            f"the average has learned widths in {', '.join(repr(group.name) for group in here)}, the model in "
            f"{', '.join(repr(group.name) for group in there)}. Build the average after adapt_, from the same model."
        )
    units = {group.name: group.width.units for group in there}
    capacities = {group.name: group.width.capacity for group in there}
    if all((group.width.units, group.width.capacity) == (units[group.name], capacities[group.name]) for group in here):
        return {}
    old, new = axes_by_tensor(here), list(axes_by_tensor(there))
    fewer = {group.width: min(group.width.units, units[group.name]) for group in here}
    kept = [
        [part.view.clone() for part in active_parts(tensor, blocks_by_dim(axes), lambda width: fewer[width])]
        for tensor, axes in old.items()
    ]
    apart = generator_apart(copy)
    changed = set_units_(copy, units, None, capacities=capacities, generator=apart)
    with torch.no_grad():
        for (tensor, axes), source, parts in zip(axes_by_tensor(here).items(), new, kept, strict=True):
            tensor.copy_(source)
            now = active_parts(tensor, blocks_by_dim(axes), lambda width: fewer[width])
            for part, values in zip(now, parts, strict=True):
                part.view.copy_(values)
    return changed
