"""fixed_mlp: an ordinary multi-layer perceptron of given widths, as a reference for an adaptive one."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence

from torch import nn

from awn.basics.checks import check_units
from awn.nn.activations import make_activation


def fixed_mlp(
    in_features: int,
    out_features: int,
    widths: Sequence[int],
    *,
    activation: str | nn.Module = "relu",
    dropout: float = 0.0,
    batch_norm: bool = False,
) -> nn.Sequential:
    """The layers of an `AdaptiveMLP` with fixed widths and PyTorch's default initialisation.

    >>> fixed_mlp(4, 3, [16])
    Sequential(
      (0): Linear(in_features=4, out_features=16, bias=True)
      (1): ReLU()
      (2): Linear(in_features=16, out_features=3, bias=True)
    )
    """
    for layer, units in enumerate(widths):
        check_units(f"widths[{layer}]", units)
    layers: list[nn.Module] = []
    for inside, outside in itertools.pairwise([in_features, *widths]):
        layers += [nn.Linear(inside, outside), *([nn.BatchNorm1d(outside)] if batch_norm else [])]
        layers += [copy.deepcopy(make_activation(activation)), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear([in_features, *widths][-1], out_features))
