"""Attention with any number of heads computes what torch's does, for every option that torch has."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import awn
from awn.core.attention import AnyHeadsAttention, bind_heads_, free_heads_

HEADS, SAMPLES, QUERIES, KEYS = 2, 3, 4, 5


@pytest.fixture(autouse=True)
def double() -> None:
    torch.set_default_dtype(torch.float64)


def attention(**options: Any) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, HEADS, **options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


def masks(kind: str, batched: bool) -> dict[str, Tensor | None]:
    hidden = torch.zeros(SAMPLES, KEYS, dtype=torch.bool)
    hidden[1, 3:] = True
    hidden = hidden if batched else hidden[1]
    causal = torch.ones(QUERIES, KEYS).triu(1).bool()
    each = torch.randn(HEADS * (SAMPLES if batched else 1), QUERIES, KEYS)
    return {
        "none": {},
        "padding": {"key_padding_mask": hidden},
        "both": {"key_padding_mask": hidden, "attn_mask": causal},
        "numbers": {"key_padding_mask": hidden * -3.0, "attn_mask": torch.randn(QUERIES, KEYS)},
        "one for each head": {"attn_mask": each},
    }[kind]


OPTIONS = {
    "plain": {},
    "without bias": {"bias": False},
    "further keys": {"add_bias_kv": True, "add_zero_attn": True},
    "keys of another size": {"kdim": 6, "vdim": 7},
}


@pytest.mark.parametrize("mask", ["none", "padding", "both", "numbers", "one for each head"])
@pytest.mark.parametrize("options", OPTIONS)
def test_it_computes_what_torchs_attention_computes(options: str, mask: str) -> None:
    for batched, batch_first, need_weights, average in itertools.product((True, False), repeat=4):
        layer = attention(batch_first=batch_first, **OPTIONS[options])
        sizes = ((QUERIES, 8), (KEYS, layer.kdim), (KEYS, layer.vdim))
        inputs = [torch.randn(SAMPLES, *size) if batched else torch.randn(*size) for size in sizes]
        if batched and not batch_first:
            inputs = [one.transpose(0, 1) for one in inputs]
        call: dict[str, Any] = {"need_weights": need_weights, "average_attn_weights": average, **masks(mask, batched)}
        expected = layer(*inputs, **call)
        free_heads_(layer)
        assert type(layer) is AnyHeadsAttention
        torch.testing.assert_close(layer(*inputs, **call), expected)


def test_it_computes_the_same_for_itself_and_in_training() -> None:
    layer, x = attention(batch_first=True, dropout=0.5), torch.randn(3, 5, 8)
    expected = layer.eval()(x, x, x)
    free_heads_(layer)
    torch.testing.assert_close(layer(x, x, x), expected)
    dropped = layer.train()(x, x, x)[0]
    assert not torch.allclose(dropped, expected[0])


def test_a_hint_without_a_mask_is_refused() -> None:
    layer, x = attention(), torch.randn(3, 5, 8)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="attn_mask"):
            layer(x, x, x, is_causal=True, need_weights=False)
        free_heads_(layer)


class Attends(nn.Module):
    def __init__(self, returns_weights: bool = False) -> None:
        super().__init__()
        self.norm, self.attention, self.head = nn.LayerNorm(8), attention(batch_first=True), nn.Linear(8, 3)
        self.returns_weights = returns_weights

    def forward(self, x: Tensor) -> Any:
        x = self.norm(x)
        mixed, weights = self.attention(x, x, x)
        return (self.head(x + mixed), weights) if self.returns_weights else self.head(x + mixed)


def test_a_finalized_model_has_torchs_class_where_its_heads_allow_it() -> None:
    model, x = Attends(), torch.randn(3, 5, 8)
    awn.adapt_(model)
    assert awn.widths(model) == {"attention": HEADS}
    assert type(awn.finalize(model).attention) is nn.MultiheadAttention
    expected = model(x)
    awn.advanced.set_units_(model, {"attention": 3})
    wider = awn.finalize(model)
    assert type(wider.attention) is AnyHeadsAttention
    assert (wider.attention.num_heads, wider.attention.out_proj.in_features) == (3, 12)
    torch.testing.assert_close(wider(x), model(x))
    awn.advanced.set_units_(model, {"attention": HEADS})
    torch.testing.assert_close(model(x), expected)
    assert type(awn.finalize(model).attention) is nn.MultiheadAttention


def test_heads_whose_mean_weights_are_an_output_stay() -> None:
    with pytest.raises(awn.AwnError, match=r"attention: .*the outputs change"):
        awn.adapt_(Attends(returns_weights=True))


def test_a_subclass_keeps_its_forward_and_its_heads() -> None:
    class Own(nn.MultiheadAttention):
        pass

    model = Attends()
    model.attention.__class__ = Own
    free_heads_(model.attention)
    assert type(model.attention) is Own
    bind_heads_(model.attention)
    assert type(model.attention) is Own
    with pytest.raises(awn.AwnError, match="attention"):
        awn.adapt_(model)
