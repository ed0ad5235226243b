"""Attention with any number of heads: torch's nn.MultiheadAttention requires that heads × head size is its width.

A layer whose heads become adaptive changes its class, and keeps its Parameters and their names. It returns to torch's
class when it is plain again and has as many heads as torch requires.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class AnyHeadsAttention(nn.MultiheadAttention):
    """An nn.MultiheadAttention whose number of heads is free; the size of a head stays what it is.

    >>> attention, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8)
    >>> before = attention(x, x, x)[0]
    >>> free_heads_(attention)
    >>> torch.allclose(attention(x, x, x)[0], before, atol=1e-6)
    True
    """

    # torch's fused encoder layer asks for this. It cannot be used here.
    _qkv_same_embed_dim = property(lambda _: False)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute what torch's class computes; `is_causal` only says of the mask that it is causal."""
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal says of attn_mask that it is causal, so attn_mask is needed.")
        if query.is_nested:  # what torch.nn.TransformerEncoder makes of padded sequences
            padded, padding = _padded(query)
            mixed, _ = self.forward(padded, padded, padded, padding, need_weights=False)
            return torch._nested_tensor_from_mask(mixed, ~padding), None
        batched = query.dim() == 3
        first = 0 if self.batch_first or not batched else 1
        masks = self._masks(key_padding_mask, attn_mask, query, batched)
        if not batched:
            query, key, value = (one[None] for one in (query, key, value))
        q, k, v = (self._split(one, first) for one in self._projected(query, key, value))
        k, v, masks = self._with_extras(k, v, masks)
        weights = None
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
            weights = F.dropout(torch.softmax(scores if masks is None else scores + masks, -1), dropout)
            mixed = weights @ v
            if average_attn_weights:  # a sum: what it gives matters only if the weights are used
                weights = weights.sum(1) / self.num_heads
            weights = weights if batched else weights[0]
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, masks, dropout)
        out: Tensor = self.out_proj(mixed.transpose(1, 2).movedim(0, first).flatten(-2))
        return (out if batched else out[0]), weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values of all heads."""
        fused = self.in_proj_weight
        if fused is not None and query is key and key is value:
            return F.linear(query, fused, self.in_proj_bias).chunk(3, -1)
        parts = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight) if fused is None else fused.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        inputs = (query, key, value)
        return tuple(F.linear(x, w, b) for x, w, b in zip(inputs, parts, biases, strict=True))

    def _split(self, entries: Tensor, first: int) -> Tensor:
        """[samples, heads, positions, head size]."""
        by_head: Tensor = entries.unflatten(-1, (self.num_heads, self.head_dim))
        return by_head.movedim(first, 0).transpose(1, 2)

    def _masks(self, padding: Tensor | None, mask: Tensor | None, query: Tensor, batched: bool) -> Tensor | None:
        """Both masks as one that is added to the scores."""
        one, two = (_added(given, query.dtype) for given in (padding, mask))
        if one is not None:
            one = one[:, None, None] if batched else one[None, None, None]
        if two is not None:
            two = two.unflatten(0, (-1, self.num_heads)) if two.dim() == 3 else two[None, None]
        return two if one is None else one if two is None else one + two

    def _with_extras(self, k: Tensor, v: Tensor, masks: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values with those that bias_k, bias_v and add_zero_attn add; no mask hides these."""
        extras = []
        if self.bias_k is not None and self.bias_v is not None:
            extras.append([self._split(bias, 1).expand(k.shape[0], -1, -1, -1) for bias in (self.bias_k, self.bias_v)])
        if self.add_zero_attn:
            extras.append([torch.zeros_like(k[:, :, :1]), torch.zeros_like(v[:, :, :1])])
        for more_k, more_v in extras:
            k, v = torch.cat([k, more_k], 2), torch.cat([v, more_v], 2)
        return k, v, None if masks is None else F.pad(masks, (0, len(extras)))


def _added(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A mask as numbers that are added to scores; True hides an entry."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


def _padded(nested: Tensor) -> tuple[Tensor, Tensor]:
    """Sequences of several lengths in one tensor, and which of its positions are padding."""
    padded = nested.to_padded_tensor(0.0)
    lengths = torch.tensor([len(one) for one in nested.unbind()], device=padded.device)
    return padded, torch.arange(padded.shape[1], device=padded.device) >= lengths[:, None]


def free_heads_(layer: nn.Module) -> None:
    """Let a layer of torch's class have any number of heads; other layers stay as they are."""
    if type(layer) is nn.MultiheadAttention:
        layer.__class__ = AnyHeadsAttention


def bind_heads_(layer: nn.Module) -> None:
    """Undo `free_heads_` in a layer without gates, if it has as many heads as torch requires.

    >>> attention = nn.MultiheadAttention(8, 2)
    >>> free_heads_(attention)
    >>> bind_heads_(attention)
    >>> type(attention) is nn.MultiheadAttention
    True
    """
    if type(layer) is AnyHeadsAttention:  # a layer with gates has a class of its own
        read = layer.q_proj_weight if layer.in_proj_weight is None else layer.in_proj_weight
        if read.shape[1] == layer.num_heads * layer.head_dim:
            layer.__class__ = nn.MultiheadAttention  # type: ignore[assignment]
