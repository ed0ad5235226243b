"""Hugging Face's models: the width of the feed-forward part, by the names that their layers have there."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from awn.adapt.hidden import Hidden, Refusal
from awn.adapt.layers import units_made_by
from awn.core.axes import layout_of

# What makes the units (two layers where one gates the other), and what reads them.
_NAMES: list[tuple[tuple[str, ...], str]] = [
    (("gate_proj", "up_proj"), "down_proj"),  # Llama, Mistral, Qwen, Gemma
    (("wi_0", "wi_1"), "wo"),  # T5, gated
    (("wi",), "wo"),  # T5
    (("c_fc",), "c_proj"),  # GPT-2
    (("intermediate.dense",), "output.dense"),  # BERT, RoBERTa, ELECTRA
    (("fc1",), "fc2"),  # ViT, CLIP, OPT, BART
    (("lin1",), "lin2"),  # DistilBERT
    (("dense_h_to_4h",), "dense_4h_to_h"),  # GPT-NeoX, BLOOM, Falcon
    (("up_proj",), "down_proj"),  # Nemotron, and others without a gate
]
_FUSED = ("gate_up_proj", "down_proj")  # Phi-3, GLM


def feed_forward(module: nn.Module) -> Sequence[Hidden | Refusal] | None:
    """The feed-forward units of a module from Hugging Face's transformers."""
    if not type(module).__module__.startswith("transformers."):
        return None
    for producers, consumer in _NAMES:
        layers = [_layer(module, name) for name in (*producers, consumer)]
        if all(layer is not None and layout_of(layer) for layer in layers):
            makers, reader = tuple(layer for layer in layers[:-1] if layer), layers[-1]
            hidden = Hidden(makers, (reader,) if reader else ())
            norm = _norm_over(module, hidden.units)
            if norm is not None:
                return [Refusal(makers[0], f"{norm!r} may normalise over all units. Leave the width fixed")]
            return [hidden]
    fused, reader = (_layer(module, name) for name in _FUSED)
    if fused is not None and reader is not None and layout_of(fused):
        return [
            Refusal(
                fused,
                f"it makes the gate and the units in one weight of {units_made_by(fused)} rows, so that a unit's rows "
                "do not lie together. Split it into gate_proj and up_proj",
            )
        ]
    return None


def _norm_over(module: nn.Module, units: int) -> str | None:
    """A norm beside the layers that has an entry for each unit: some models have one between the two layers."""
    for name, child in module.named_children():
        weight = child._parameters.get("weight")
        if weight is not None and weight.shape == (units,):
            return name
    return None


def _layer(module: nn.Module, path: str) -> nn.Module | None:
    for name in path.split("."):
        child = module._modules.get(name)
        if child is None:
            return None
        module = child
    return module
