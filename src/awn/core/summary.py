"""The widths of a model, as numbers and as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from awn.basics.text_table import text_table
from awn.core.count import active_shape, axes_by_tensor, count_parameters
from awn.core.groups import find_groups, require_groups


def widths(model: nn.Module) -> dict[str, int]:
    """The number of units of every adaptive layer.

    >>> import awn
    >>> awn.widths(awn.AdaptiveMLP(2, 2, hidden_layers=2))
    {'hidden.0': 231, 'hidden.1': 231}
    """
    return {group.name: group.width.units for group in find_groups(model)}


@dataclass(frozen=True)
class LayerSummary:
    """One row of a summary."""

    layer: str
    units: int
    parameters: int
    share_of_importance: float
    nu: float


@dataclass(frozen=True)
class Summary:
    """The learned widths of a model and their parameters. It prints as a table."""

    layers: tuple[LayerSummary, ...]
    units: int
    parameters: int

    def __str__(self) -> str:
        head = ("layer", "units", "parameters", "importance", "ν")
        rows = [
            (
                row.layer,
                f"{row.units:,}",
                f"{row.parameters:,}",
                f"{row.share_of_importance:.1%}",
                f"{row.nu:.4g}",
            )
            for row in self.layers
        ]
        inside = sum(row.parameters for row in self.layers)
        rows.append(("other layers", "", f"{self.parameters - inside:,}", "", ""))
        rows.append(("total", f"{self.units:,}", f"{self.parameters:,}", "", ""))
        return text_table(head, rows)


def summary(model: nn.Module) -> Summary:
    """A table of the adaptive layers: units, parameters, and the share of the importance that the units hold.

    The parameters of a layer are those of its producers. A weight between two adaptive layers counts once.

    >>> import awn
    >>> print(awn.summary(awn.AdaptiveMLP(2, 2, hidden_layers=2)))
    layer         units  parameters  importance     ν
    hidden.0        231         693       90.1%  0.01
    hidden.1        231      53,592       90.1%  0.01
    other layers                464
    total           462      54,749
    """
    groups = require_groups(model)
    table = axes_by_tensor(groups)
    rows = []
    for group in groups:
        made = {axis.tensor for axis in group.axes if axis.role == "producer" and isinstance(axis.tensor, nn.Parameter)}
        value = group.width.value
        parameters = sum(math.prod(active_shape(tensor, table[tensor])) for tensor in made)
        rows.append(
            LayerSummary(
                group.name,
                group.width.units,
                parameters,
                group.width.family.share(group.width.units, value),
                value,
            )
        )
    return Summary(tuple(rows), sum(row.units for row in rows), count_parameters(model))
