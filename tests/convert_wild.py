"""Models as people write them: indices, scalar gates, products with a matrix, statistics by hand, odd signatures."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class OwnStart(nn.Conv1d):
    """A layer with another start, and nothing else."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.3)
        nn.init.zeros_(self.bias)  # type: ignore[arg-type]


class Chomp(nn.Module):
    """Takes the padding off the end."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, :-1]


class Temporal(nn.Module):
    """A layer by two names, indices past and beside the units, and an activation by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(3, 8, 2, padding=1), OwnStart(8, 6, 2)
        self.net = nn.Sequential(self.first, Chomp(), nn.ReLU(), self.second)
        self.shift, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.net(x)
        h = torch.where(h > 0, h, 0.1 * h)
        h = h + self.shift(h[..., 0])[:, :, None]
        return self.head(h[:, :, -1])


class Upsampled(nn.Module):
    """Images made larger, and the largest entry of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2, 7, 3), nn.Upsample(scale_factor=2), nn.ReLU(), nn.Conv2d(7, 5, 3))
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.max(self.net(x).flatten(2), 2)[0])


class Experts(nn.Module):
    """Experts side by side, mixed by one gate and scaled by another."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6)) for _ in range(2))
        self.mix, self.scale, self.head = nn.Linear(5, 2), nn.Linear(5, 1), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        stacked = torch.stack([expert(x) for expert in self.experts], dim=1)
        mixed = (stacked * self.mix(x).softmax(-1).unsqueeze(-1)).sum(1)
        return self.head(torch.sigmoid(self.scale(x)) * mixed)


class Routed(nn.Module):
    """Experts that are called or not by the data, so that the forward cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        result = torch.zeros_like(x[:, :3])
        for number, expert in enumerate(self.experts):
            chosen = (x[:, 0] > 0).long() == number
            if chosen.any():
                result[chosen] = expert(x[chosen])
        return result


class Graph(nn.Module):
    """Neighbours summed up by a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 9), nn.Linear(9, 2)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return self.second(adjacency @ torch.relu(adjacency @ self.first(x)))


class Standardised(nn.Module):
    """Statistics over time by hand, each with a small number where it would not be finite."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Conv1d(3, 8, 2), nn.Conv1d(8, 6, 1), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = (h - h.mean(2, keepdim=True)) / (h.var(2, keepdim=True) + 1e-3).sqrt()
        h = torch.relu(self.second(h))
        h = torch.log(h + 1) / (h.amax(2, keepdim=True) + 0.1) ** 0.5
        return self.head(h.mean(2))


class OddCall(nn.Module):
    """A forward that checks shapes, and takes more than it needs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 9), nn.Linear(9, 3)

    def forward(self, x: Tensor, *more: Any, sizes: tuple[int, ...] = (1, 2), **others: Any) -> Tensor:
        assert x.shape[-1] == 5
        if x.dim() == 1:
            x = x.unsqueeze(0)
        return self.second(F.gelu(self.first(x))) * sizes[0]


class Words(nn.Module):
    """A recurrent layer of torch over embedded words, whose last outputs are read."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.table, self.words = nn.Embedding(20, 4), kind(4, 6, batch_first=True, **options)
        self.head = nn.Linear(6 * (2 if self.words.bidirectional else 1), 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.words(self.table(x))
        return self.head(outputs[:, -1] + outputs[:, 0])


class Packed(nn.Module):
    """Sequences of several lengths; the units before the recurrent layer are packed, those after it unpacked."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.words, self.head = nn.Linear(5, 7), nn.LSTM(7, 6, 2, batch_first=True), nn.Linear(6, 3)
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(torch.relu(self.up(x)), lengths, batch_first=True, enforce_sorted=False)
        outputs, (hidden, _) = self.words(packed)
        return self.head(pad_packed_sequence(outputs, batch_first=True)[0].sum(1)) + self.last(hidden[1])


class Attending(nn.Module):
    """Attention of torch, called with its weights, which nobody uses; its queries come from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.query = nn.LayerNorm(8), nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 4, kdim=8, vdim=5, add_bias_kv=True, batch_first=True)
        self.values, self.head = nn.Linear(8, 5), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        mixed, _ = self.attention(self.query(self.norm(x)), x, torch.relu(self.values(x)))
        return self.head(mixed + x)
