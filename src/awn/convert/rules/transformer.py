"""torch's own Transformer layers: the width of the feed-forward part."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from awn.convert.hidden import Hidden


def transformer_layer(module: nn.Module) -> Sequence[Hidden] | None:
    """The feed-forward units of an encoder's or a decoder's layer.

    >>> layer = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=64)
    >>> [hidden.units for hidden in transformer_layer(layer)]
    [64]
    """
    if not isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        return None
    return [Hidden((module.linear1,), (module.linear2,))]
