"""A small language model on the English half of Multi30k that learns the width of its feed-forward layers.

    AWN_DATA=folder python examples/adapt_transformer.py [--steps 400] [--results results/adapt/adapt_transformer.json]

The tokens are bytes. The score is the validation loss in nats per byte; lower is better.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from awn.training.data import Data
from awn_paper.data.source import Source
from training import compare, mean_loss, options_of

LENGTH, STATE = 64, 64


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, STATE), nn.Embedding(LENGTH, STATE)
        layer = nn.TransformerEncoderLayer(STATE, nhead=4, dim_feedforward=256, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(STATE, 256)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        earlier = nn.Transformer.generate_square_subsequent_mask(length)
        state = self.bytes(x) + self.places(torch.arange(length))
        logits: Tensor = self.head(self.layers(state, mask=earlier, is_causal=True))
        return logits


def next_byte(model: nn.Module, batch: Data) -> Tensor:
    return F.cross_entropy(model(batch.x).flatten(0, 1), batch.y.flatten())


def windows(part: str) -> Data:
    """The text in windows of equal length; the target of each is the window one byte later."""
    text = Source(f"multi30k/{part}.en.gz", "https://github.com/multi30k/dataset (data/task1/raw)").read()
    whole = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    pieces = (len(whole) - 1) // LENGTH
    x, y = (part[: pieces * LENGTH].view(pieces, LENGTH) for part in (whole, whole[1:]))
    return Data(x, y)


def score(model: nn.Module, data: Data) -> float:
    return mean_loss(model, data, next_byte)


def main() -> None:
    options = options_of(__doc__, steps=400)
    compare(
        "language model on Multi30k",
        LanguageModel,
        (windows("train"), windows("val")),
        options,
        score=score,
        metric="loss",
        loss_of=next_byte,
        batch_size=32,
        lr=2e-3,
    )


if __name__ == "__main__":
    main()
