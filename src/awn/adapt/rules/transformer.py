"""torch's own Transformer layers: the width of the feed-forward part."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from awn.adapt.hidden import Hidden, Refusal
from awn.adapt.operations import acts_unit_wise


def transformer_layer(module: nn.Module) -> Sequence[Hidden | Refusal] | None:
    """The feed-forward units of an encoder's or a decoder's layer.

    >>> layer = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=64)
    >>> [hidden.units for hidden in transformer_layer(layer)]
    [64]
    """
    for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer):
        if isinstance(module, kind):
            break
    else:
        return None
    if type(module).forward is not kind.forward or type(module)._ff_block is not kind._ff_block:
        return None  # a subclass that computes something else
    if not acts_unit_wise(module.activation):
        return [Refusal(module.linear1, f"its activation, {module.activation}, is not known to act on each unit alone")]
    return [Hidden((module.linear1,), (module.linear2,))]
