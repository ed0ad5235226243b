"""Members: several networks for one table, whose outputs are averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from awn.core.summary import widths

_ROOM = 1.25


class Members(nn.Module):
    """The mean of the outputs of several networks. For classes, these are logits.

    >>> import awn
    >>> Members([awn.AdaptiveMLP(2, 3), awn.AdaptiveMLP(2, 3)])(torch.zeros(5, 2)).shape
    torch.Size([5, 3])
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        """Map [rows, in_features] to [rows, out_features]."""
        return torch.stack([network(x) for network in self.networks]).mean(0)


def networks_of(model: nn.Module) -> list[nn.Module]:
    """The networks of `Members`, or the network itself."""
    return list(model.networks) if isinstance(model, Members) else [model]


def total_widths(found: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The units of every layer, over all networks.

    >>> total_widths([{"hidden.0": 20, "hidden.1": 8}, {"hidden.0": 24, "hidden.1": 6}])
    {'hidden.0': 44, 'hidden.1': 14}
    """
    return {layer: sum(each[layer] for each in found) for layer in found[0]}


def roomy(model: nn.Module) -> list[int]:
    """The units per layer for another network like a trained one that was cut.

    A network needs more units while it trains than after it, so these are a quarter more.

    >>> import awn
    >>> roomy(awn.AdaptiveMLP(2, 3, importance=awn.Exponential.for_units(21)))
    [27]
    """
    return [math.ceil(_ROOM * units) for units in widths(model).values()]


def describe_members(members: int) -> str:
    """How many networks predict together.

    >>> describe_members(5)
    'the mean of 5 networks, each with other rows held out; numbers of units are those of all networks'
    >>> describe_members(1)
    'one network'
    """
    if members == 1:
        return "one network"
    return f"the mean of {members} networks, each with other rows held out; numbers of units are those of all networks"


def layer_widths(model: nn.Module) -> dict[str, int]:
    """The units of every layer of a network, or of all `Members` together."""
    return total_widths([widths(network) for network in networks_of(model)])


def merge(networks: Sequence[nn.Module]) -> nn.Module:
    """One plain network that computes the mean of several, each a sequence of the same kinds of layers.

    A layer has the units of all networks side by side. Weights between units of different networks are 0.

    >>> merge([nn.Sequential(nn.Linear(2, n), nn.ReLU(), nn.Linear(n, 1)) for n in (3, 4)])
    Sequential(
      (0): Linear(in_features=2, out_features=7, bias=True)
      (1): ReLU()
      (2): Linear(in_features=7, out_features=1, bias=True)
    )
    """
    if len(networks) == 1:
        return networks[0]
    rows: list[Any] = [list(network.children()) for network in networks]
    layers: list[nn.Module] = []
    for place, alike in enumerate(zip(*rows, strict=True)):
        if isinstance(alike[0], nn.Linear):
            layers.append(_side_by_side(alike, first=place == 0, last=place == len(rows[0]) - 1))
        else:
            layers.append(_joined_norm(alike) if isinstance(alike[0], nn.BatchNorm1d) else alike[0])
    return nn.Sequential(*layers).train(networks[0].training)


def _side_by_side(alike: Sequence[nn.Linear], *, first: bool, last: bool) -> nn.Linear:
    with torch.no_grad():
        weights, biases = [one.weight.data for one in alike], [one.bias.data for one in alike]
        if last:
            weight, bias = torch.cat(weights, 1) / len(alike), torch.stack(biases).mean(0)
        else:
            weight, bias = torch.cat(weights) if first else torch.block_diag(*weights), torch.cat(biases)
        # Without initial weights: drawing them would change the global random state.
        outputs, inputs = weight.shape
        joined: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs, device=weight.device, dtype=weight.dtype)
        joined.weight.copy_(weight)
        joined.bias.copy_(bias)
    return joined


def _joined_norm(alike: Sequence[nn.BatchNorm1d]) -> nn.BatchNorm1d:
    states = [one.state_dict() for one in alike]
    joined = nn.BatchNorm1d(sum(one.num_features for one in alike), dtype=alike[0].weight.dtype)
    parts = {name: [state[name] for state in states] for name in states[0]}
    joined.load_state_dict({name: torch.cat(each) if each[0].dim() else each[0] for name, each in parts.items()})
    return joined
