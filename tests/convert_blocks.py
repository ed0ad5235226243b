"""Models whose units lie in blocks: heads, gates and units in one weight, experts, concatenations, groups of channels.

The widths are read off the code of the models here, not asked of the code under test.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Fused queries, keys and values, with grouped queries, and heads that a number and a configuration count."""

    def __init__(self, fused: bool = True) -> None:
        super().__init__()
        self.heads, self.shared, self.size = 4, 2, 3
        rows = (self.heads + 2 * self.shared) * self.size
        self.norm, self.fused = nn.LayerNorm(8), fused
        self.qkv, self.out = nn.Linear(8, rows), nn.Linear(self.heads * self.size, 8)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        sizes = [count * self.size for count in (self.heads, self.shared, self.shared)]
        q, k, v = self.qkv(self.norm(x)).split(sizes, -1)
        q = q.view(n, t, self.heads, self.size).transpose(1, 2)
        k, v = (part.view(n, t, self.shared, self.size).transpose(1, 2) for part in (k, v))
        k, v = (part.repeat_interleave(2, dim=1) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, scale=0.5)
        return x + self.out(y.transpose(1, 2).reshape(n, t, -1))


class Experts(nn.Module):
    """Stacked weights of gated experts, the gate and the units in one."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 3)
        self.gate_up, self.down = nn.Parameter(torch.randn(3, 8, 12) / 3), nn.Parameter(torch.randn(3, 6, 8) / 3)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        gate, up = torch.einsum("nti,eij->entj", x, self.gate_up).chunk(2, -1)
        y = torch.einsum("entj,ejo->ento", F.silu(gate) * up, self.down)
        return x + torch.einsum("ento,nte->nto", y, weights)


class UNet(nn.Module):
    """Two widths side by side in what the last layers read."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 5, 3, padding=1), nn.Conv2d(5, 7, 3, padding=1)
        self.up, self.c = nn.ConvTranspose2d(7, 6, 2, 2), nn.Conv2d(11, 4, 3, padding=1)
        self.d = nn.Linear(4 * 16 + 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        a = torch.relu(self.a(x))
        b = self.up(torch.relu(self.b(F.max_pool2d(a, 2))))
        c = torch.relu(self.c(torch.cat([b, a], 1)))
        return self.d(torch.cat([c.flatten(1), a.mean((2, 3))], 1))


class Dense(nn.Module):
    """Every layer reads what all layers before it made."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(5 + 4 * n, 4) for n in range(3))
        self.head = nn.Linear(17, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, torch.relu(layer(x))], -1)
        return self.head(x)


class Cell(nn.Module):
    """A cell of an LSTM, whose gates are four blocks, and whose states are made by a number."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(5, 7), nn.Linear(7, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        assert state is not None
        return self.head(state[0])


class Grouped(nn.Module):
    """Groups of channels, each with a mean of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 12, 3, padding=1), nn.GroupNorm(4, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def drawn(*shape: int) -> Tensor:
    """The same numbers in every process: with others, all units of a small layer may be silent."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def tokens(samples: int = 3, length: int = 4) -> Tensor:
    return drawn(samples, length, 8)


# (a model, an input, another of another shape, the widths that it must get)
MODELS: dict[str, tuple[Callable[[], nn.Module], Tensor, Tensor, dict[str, int]]] = {
    "attention": (lambda: nn.Sequential(Attention(), Attention()), tokens(), tokens(2, 5), {"0.qkv": 2, "1.qkv": 2}),
    "experts": (Experts, tokens(), tokens(2, 5), {"": 6}),
    "u-net": (UNet, drawn(3, 2, 4, 4), drawn(2, 2, 4, 4), {"a": 5, "b": 7, "up": 6, "c": 4}),
    "dense": (Dense, drawn(16, 5), drawn(9, 5), {f"layers.{n}": 4 for n in range(3)}),
    "glu": (
        lambda: nn.Sequential(nn.Linear(8, 12), nn.GLU(), nn.Linear(6, 10), nn.GLU(), nn.Linear(5, 2)),
        drawn(3, 8),
        drawn(4, 8),
        {"0": 6, "2": 5},
    ),
    "cell": (
        Cell,
        drawn(3, 4, 5),
        drawn(2, 6, 5),
        {"cell": 7},
    ),
    "groups": (Grouped, drawn(3, 2, 4, 4), drawn(2, 2, 4, 4), {"conv": 4}),
}
