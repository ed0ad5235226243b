"""Gated recurrent layers: nn.RNN, nn.GRU and nn.LSTM pass a list of all their weights to one kernel.

torch keeps this list, `_flat_weights`, in step with the Parameters. In a gated layer it is a property instead, which
lists the products, so that what torch does to keep it must do nothing. Whoever removes the last gate restores the list.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


def hide_list_(layer: nn.Module) -> None:
    """Forget the list of weights of a layer that is being gated."""
    layer.__dict__.pop("_flat_weights", None)


def restore_list_(layer: nn.RNNBase) -> None:
    """Give a layer without gates the list of its Parameters again."""
    layer._init_flat_weights()


def _list_of_products(self: Any) -> list[Tensor]:
    return [getattr(self, name) for name in self._flat_weights_names]


def _do_nothing(self: Any) -> None:
    pass


def _set_state(self: Any, state: dict[str, Any]) -> None:
    """Set the state as the plain class does: the widths of a copy may not be complete before the copy is."""
    gated, self.__class__ = type(self), self._plain
    try:
        self.__setstate__({**state, "_flat_weights": []})
        hide_list_(self)
    finally:
        self.__class__ = gated


@torch.no_grad()
def _reset_parameters(self: Any) -> None:
    """Draw the layer's own Parameters as torch does; torch would draw ν, too."""
    bound = 1 / math.sqrt(self.hidden_size)
    for weight in self.parameters(recurse=False):
        nn.init.uniform_(weight, -bound, bound)


#: What a gated class of a recurrent layer has besides the properties of its weights.
CONTENT: dict[str, Any] = {
    "_flat_weights": property(_list_of_products),
    "_init_flat_weights": _do_nothing,
    "_update_flat_weights": _do_nothing,
    "flatten_parameters": _do_nothing,
    "reset_parameters": _reset_parameters,
    "__setattr__": nn.Module.__setattr__,
    "__setstate__": _set_state,
}
