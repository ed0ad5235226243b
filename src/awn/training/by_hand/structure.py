"""What is trained by hand: the layers of an `AdaptiveMLP`, and which widths they make and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from awn.core.groups import WidthGroup, find_groups
from awn.nn.mlp import AdaptiveMLP


@dataclass(frozen=True)
class Layer:
    """A linear layer, and the numbers of the widths that it reads and makes; None where that is fixed."""

    linear: nn.Linear
    reads: int | None
    makes: int | None
    #: Whether new rows are drawn before new columns, as `awn.core.initialise` does. Where both are new, the last wins.
    rows_first: bool

    def parameters(self) -> tuple[nn.Parameter, nn.Parameter | None]:
        """The stored weight, before any gate, and the bias."""
        weight = self.linear._parameters["weight"]
        assert weight is not None
        return weight, self.linear._parameters["bias"]


@dataclass(frozen=True)
class Structure:
    """An AdaptiveMLP as a list of layers."""

    model: AdaptiveMLP
    groups: tuple[WidthGroup, ...]
    layers: tuple[Layer, ...]
    #: 1 if layers have biases, otherwise 0.
    lead: int

    @classmethod
    def of(cls, model: AdaptiveMLP) -> Structure:
        """Read from the model.

        >>> [(layer.reads, layer.makes) for layer in Structure.of(AdaptiveMLP(2, 2, hidden_layers=2)).layers]
        [(None, 0), (0, 1), (1, None)]
        """
        groups = tuple(find_groups(model))
        linears: list[nn.Linear] = [*model.hidden, model.output]
        makes: dict[nn.Module, int] = {}
        reads: dict[nn.Module, int] = {}
        rows_first = set()
        for number, group in enumerate(groups):
            for axis in group.axes:
                (makes if axis.role == "producer" else reads)[axis.module] = number
                if axis.role == "consumer" and makes.get(axis.module) == number:  # a width that layers share
                    rows_first.add(axis.module)
        layers = [Layer(one, reads.get(one), makes.get(one), one in rows_first) for one in linears]
        return cls(model, groups, tuple(layers), 1 if model.options["bias"] else 0)

    def sizes(self, units: Sequence[int]) -> list[tuple[int, int]]:
        """Outputs and inputs of every layer, at numbers of units (or slots for them) of the widths."""
        return [
            (
                layer.linear.out_features if layer.makes is None else units[layer.makes],
                layer.linear.in_features if layer.reads is None else units[layer.reads],
            )
            for layer in self.layers
        ]
