"""AdaptiveMLP: a multi-layer perceptron that learns the width of its hidden layers."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from awn.basics.checks import check_number, check_units
from awn.core.axes import consumed_by, produced_by
from awn.core.axis import Axis
from awn.core.groups import connect_, find_groups
from awn.core.importance import Importance
from awn.core.initialise import gain_of, kaiming_plus_
from awn.core.state import follow_state_dicts_
from awn.core.width import NewUnits, Width
from awn.errors import ArgumentError
from awn.nn.activations import make_activation


class AdaptiveMLP(nn.Module):
    """A multi-layer perceptron whose hidden layers learn their width.

    >>> model = AdaptiveMLP(2, 3, hidden_layers=2, activation="tanh")
    >>> model(torch.zeros(5, 2)).shape
    torch.Size([5, 3])

    `importance` is one family for all hidden layers, or one per layer. `shared_width=True` gives all hidden layers one
    common width. `batch_norm` comes before the activation, `dropout` after it. The other options are those of
    `awn.advanced.Width`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        hidden_layers: int = 1,
        *,
        activation: str | nn.Module = "relu",
        importance: Importance | Sequence[Importance] | None = None,
        quantile: float = 0.9,
        min_units: int = 1,
        max_units: int | None = None,
        block: int = 8,
        new_units: NewUnits = "zero",
        amplitude: float = 1.0,
        ordered: float = 0.0,
        shared_width: bool = False,
        batch_norm: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_units("in_features", in_features)
        check_units("out_features", out_features)
        check_units("hidden_layers", hidden_layers)
        check_number("dropout", dropout, or_equal=True)
        if dropout >= 1:
            raise ArgumentError(f"dropout must be at least 0 and below 1, got {dropout}.")
        #: The options that rebuild this network, without its weights.
        self.options: dict[str, Any] = {
            "in_features": int(in_features),
            "out_features": int(out_features),
            "hidden_layers": int(hidden_layers),
            "activation": activation,
            "shared_width": shared_width,
            "batch_norm": batch_norm,
            "dropout": dropout,
            "bias": bias,
        }
        self.activation = make_activation(activation)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        limits: dict[str, Any] = {"min_units": min_units, "max_units": max_units, "block": block}
        units: dict[str, Any] = {"new_units": new_units, "amplitude": amplitude, "ordered": ordered, **limits}
        gain = gain_of(self.activation)
        widths = [
            Width(family, quantile=quantile, gain=gain, **units, device=device, dtype=dtype)
            for family in _one_each(importance, 1 if shared_width else hidden_layers)
        ]
        self._build([width.capacity for width in widths], device, dtype)
        self._connect(widths)
        kaiming_plus_(find_groups(self), generator)
        follow_state_dicts_(self)

    def _build(self, capacities: Sequence[int], device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        options = self.options
        sizes = list(capacities) * (options["hidden_layers"] // len(capacities))
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        layers = [
            _zero_linear(inside, outside, bias=options["bias"], **made)
            for inside, outside in zip([options["in_features"], *sizes], [*sizes, options["out_features"]], strict=True)
        ]
        self.hidden = nn.ModuleList(layers[:-1])
        self.norms = nn.ModuleList(nn.BatchNorm1d(size, **made) for size in sizes if options["batch_norm"])
        self.output = layers[-1]

    def _connect(self, widths: Sequence[Width]) -> None:
        layers: list[Any] = [*self.hidden, self.output]
        axes: list[list[Axis]] = [[] for _ in layers[1:]]
        for number, (producer, consumer) in enumerate(itertools.pairwise(layers)):
            axes[number] += [*produced_by(producer), *consumed_by(consumer)]
        for number, norm in enumerate(self.norms):
            assert isinstance(norm, nn.BatchNorm1d)
            axes[number] += produced_by(norm)
        if self.options["shared_width"]:
            connect_(widths[0], [axis for layer in axes for axis in layer])
        else:
            for width, layer_axes in zip(widths, axes, strict=True):
                connect_(width, layer_axes)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in_features] to [..., out_features]; with batch norm, inputs must be [samples, in_features]."""
        if x.dim() != 2 and self.norms:
            raise ArgumentError(f"with batch_norm, inputs must be [samples, features], got shape {tuple(x.shape)}.")
        activation, dropout = self.activation, self.dropout if self.options["dropout"] else None
        for layer, norm in itertools.zip_longest(self.hidden, self.norms):
            x = layer(x) if norm is None else norm(layer(x))
            x = activation(x) if dropout is None else dropout(activation(x))
        out: Tensor = self.output(x)
        return out

    def as_sequential(self) -> nn.Sequential:
        """The layers of this network, not copied, as a plain `nn.Sequential`."""
        layers: list[nn.Module] = []
        for number, layer in enumerate(self.hidden):
            layers += [layer, *self.norms[number : number + 1], copy.deepcopy(self.activation)]
            if self.options["dropout"]:
                layers.append(copy.deepcopy(self.dropout))
        sequential = nn.Sequential(*layers, self.output)
        sequential.training = self.training
        return sequential


def _one_each(importance: Importance | Sequence[Importance] | None, layers: int) -> list[Importance | None]:
    if importance is None or isinstance(importance, Importance):
        return [importance] * layers
    if isinstance(importance, str) or not isinstance(importance, Sequence):
        raise ArgumentError(f"importance must be a family such as awn.Exponential(), got {importance!r}.")
    if len(importance) != layers:
        raise ArgumentError(
            f"importance lists {len(importance)} families for {layers} learned widths. Give one per width."
        )
    return list(importance)


def _zero_linear(inside: int, outside: int, **options: Any) -> nn.Linear:
    """A linear layer of zeros, made without random numbers, so that these do not depend on the capacity."""
    where = options.pop("device") or torch.get_default_device()
    layer = nn.Linear(inside, outside, device="meta", **options).to_empty(device=where)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer
