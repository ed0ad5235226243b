"""The Transformer, encoder and decoder, whose feed-forward networks are perceptrons."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from awn.errors import ArgumentError
from awn_paper.data.dataset import Dataset
from awn_paper.models.perceptron import Perceptron, Widths, hidden_sizes


@dataclass(frozen=True)
class Transformer:
    """The base size by default: six layers on each side, embeddings of 512 numbers, eight heads."""

    depth: int = 6
    embedding: int = 512
    heads: int = 8
    dropout: float = 0.1
    activation: str = "relu"
    layers: int = 1

    def build(self, data: Dataset, widths: Widths) -> nn.Module:
        """The plain network, which takes source and target tokens side by side."""
        if data.padding is None:
            raise ArgumentError(f"a Transformer needs a data set of sentences, which {data.name} is not.")
        return Translator(self, data.inputs, data.outputs, data.padding, hidden_sizes(self.layers, widths))


class Translator(nn.Module):
    """Source and target tokens [sentences, source + target] to logits of the next token after each of the target's.

    The logits are those of real tokens alone, one sentence after the other: most places are padding, and logits dear.
    """

    places: Tensor

    def __init__(self, options: Transformer, source: int, tokens: int, padding: int, hidden: list[int]) -> None:
        super().__init__()
        self.source, self.padding, self.scale = source, padding, math.sqrt(options.embedding)
        self.embed = nn.Embedding(tokens, options.embedding, padding_idx=padding)
        nn.init.normal_(self.embed.weight, std=1 / self.scale)  # it is the output layer, too
        self.register_buffer("places", _places(2 * source + 256, options.embedding), persistent=False)
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = nn.ModuleList(Layer(options, hidden, reads_source=False) for _ in range(options.depth))
        self.decoder = nn.ModuleList(Layer(options, hidden, reads_source=True) for _ in range(options.depth))
        self.norms = nn.ModuleList(nn.LayerNorm(options.embedding) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """[sentences, source + target] to [real tokens of the targets, tokens]."""
        source, target = (_trimmed(part, self.padding) for part in (x[:, : self.source], x[:, self.source :]))
        absent = source == self.padding
        memory = self._embedded(source)
        for layer in self.encoder:
            memory = layer(memory, None, absent)
        memory = self.norms[0](memory)
        said = self._embedded(target)
        for layer in self.decoder:
            said = layer(said, memory, absent)
        logits: Tensor = self.norms[1](said)[target != self.padding] @ self.embed.weight.T
        return logits

    def _embedded(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.embed(tokens) * self.scale + self.places[: tokens.shape[1]])
        return embedded


class Layer(nn.Module):
    """Attention to itself, in a decoder to what came before and then to the source, and a perceptron."""

    def __init__(self, options: Transformer, hidden: list[int], *, reads_source: bool) -> None:
        super().__init__()
        size = options.embedding
        self.own = _attention(options)
        self.source = _attention(options) if reads_source else None
        self.feed_forward = Perceptron(size, hidden, size, options.activation)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3 if reads_source else 2))
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, x: Tensor, memory: Tensor | None, absent: Tensor) -> Tensor:
        """Normed before each part, so that deep stacks train without a warm-up."""
        y = self.norms[0](x)
        if self.source is None:
            x = x + self.dropout(self.own(y, y, y, key_padding_mask=absent, need_weights=False)[0])
        else:
            later = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool, device=y.device).triu(1)
            x = x + self.dropout(self.own(y, y, y, attn_mask=later, need_weights=False)[0])
            y = self.norms[1](x)
            x = x + self.dropout(self.source(y, memory, memory, key_padding_mask=absent, need_weights=False)[0])
        fed: Tensor = self.dropout(self.feed_forward(self.norms[-1](x)))
        return x + fed


def _attention(options: Transformer) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(options.embedding, options.heads, dropout=options.dropout, batch_first=True)


def _trimmed(tokens: Tensor, padding: int) -> Tensor:
    used = (tokens != padding).any(0).sum()
    return tokens[:, : int(used)]


def _places(length: int, size: int) -> Tensor:
    """Sines and cosines of the place, of wavelengths from 2π to 20000π."""
    place = torch.arange(length)[:, None]
    rate = torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size))
    return torch.stack([torch.sin(place * rate), torch.cos(place * rate)], dim=2).flatten(1)
