"""`make_network`: an untrained network with the parameters of an estimator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from awn.basics.checks import check_units
from awn.core.families import Exponential
from awn.nn.fixed import fixed_mlp
from awn.nn.mlp import AdaptiveMLP
from awn.tabular.parameters import NetworkParameters

# Layers grow no wider, unless the user says so.
_MOST_UNITS = 256
# Layers of tables end with about 48 units. The importance of their first unit is then 1, and not 128/48: an optimizer's
# step moves the product of weight and importance, so importances above 1 make steps too long.
_AMPLITUDE = 48 / 128


def make_network(
    wanted: NetworkParameters, inputs: int, outputs: int, seed: int, units: Sequence[int] | None = None
) -> nn.Module:
    """A network that learns its widths, or has fixed ones; `units` are those at the start, if not the usual ones.

    >>> make_network(NetworkParameters(hidden_layers=1, fixed_widths=[4]), inputs=3, outputs=2, seed=0)
    Sequential(
      (0): Linear(in_features=3, out_features=4, bias=True)
      (1): SiLU()
      (2): Linear(in_features=4, out_features=2, bias=True)
    )
    """
    if wanted.fixed_widths is None:
        check_units("hidden_layers", wanted.hidden_layers)
        starts = units or [wanted.units] * wanted.hidden_layers
        return AdaptiveMLP(
            inputs,
            outputs,
            hidden_layers=wanted.hidden_layers,
            activation=wanted.activation,
            importance=[Exponential.for_units(start, wanted.quantile, scale=wanted.scale) for start in starts],
            quantile=wanted.quantile,
            max_units=max(_MOST_UNITS, 2 * wanted.units) if wanted.max_units is None else wanted.max_units,
            amplitude=_AMPLITUDE if wanted.scale == "anchored" else 1.0,
            ordered=wanted.ordered,
            dropout=wanted.dropout,
            batch_norm=wanted.batch_norm,
            generator=torch.Generator().manual_seed(seed),
        )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return fixed_mlp(
            inputs,
            outputs,
            wanted.fixed_widths,
            activation=wanted.activation,
            dropout=wanted.dropout,
            batch_norm=wanted.batch_norm,
        )
