"""torch's own recurrent layers, whose hidden width is refused."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from awn.adapt.hidden import Refusal


def recurrent_layer(module: nn.Module) -> Sequence[Refusal] | None:
    """Say why the width of an nn.RNN, GRU or LSTM, or of a cell of them, stays fixed.

    >>> recurrent_layer(nn.GRU(4, 8))[0].reason
    'nn.GRU keeps its weights stacked ...'
    """
    if not isinstance(module, nn.RNNBase | nn.RNNCellBase):
        return None
    kind = type(module).__name__
    return [
        Refusal(
            module,
            f"nn.{kind} keeps its weights stacked in tensors that it hands to a fused kernel, before which no gate of "
            "importance can stand. Use awn.nn.AdaptiveRNN",
        )
    ]
