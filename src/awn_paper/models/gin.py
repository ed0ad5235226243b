"""GIN, the graph isomorphism network, with a perceptron first and one in each convolution.

It computes the nodes of a graph that it cannot tell apart once (`data/alike.py`). The results are those of all nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from awn.errors import ArgumentError
from awn_paper.data.alike import LevelBatch, distinct_nodes
from awn_paper.data.dataset import Dataset
from awn_paper.data.graphstore import Graphs
from awn_paper.models.counted_norm import CountedBatchNorm, counted
from awn_paper.models.perceptron import Perceptron, Widths, hidden_sizes

Pooling = Literal["sum", "mean"]


@dataclass(frozen=True)
class GIN:
    """So many convolutions of nodes' embeddings."""

    convolutions: int = 4
    pooling: Pooling = "sum"
    embedding: int = 64
    activation: str = "relu"

    def build(self, data: Dataset, widths: Widths) -> nn.Module:
        """The plain network, which takes numbers of graphs."""
        if data.graphs is None:
            raise ArgumentError(f"GIN needs a data set of graphs, which {data.name} is not.")
        return GraphNetwork(self, data.graphs, data.inputs, data.outputs, hidden_sizes(1, widths))


class GraphNetwork(nn.Module):
    """Embeds nodes, convolves, and sums what is read from every layer's pooled embeddings."""

    def __init__(self, options: GIN, graphs: Graphs, inputs: int, outputs: int, hidden: list[int]) -> None:
        super().__init__()
        self.graphs, self.pooling = graphs, options.pooling
        size, activation = options.embedding, options.activation
        # Without a batch norm: over nodes that are all alike, as in REDDIT-B, it has no variance to divide by.
        self.first = nn.Sequential(Perceptron(inputs, hidden, size, activation), nn.ReLU())
        self.layers = nn.ModuleList(
            nn.Sequential(
                Perceptron(size, hidden, size, activation, batch_norm=True), CountedBatchNorm(size), nn.ReLU()
            )
            for _ in range(options.convolutions)
        )
        self.epsilon = nn.Parameter(torch.zeros(options.convolutions))
        self.readouts = nn.ModuleList(nn.Linear(options.embedding, outputs) for _ in range(options.convolutions + 1))

    def forward(self, numbers: Tensor) -> Tensor:
        """Numbers of graphs [graphs] to logits [graphs, classes]."""
        features, levels = distinct_nodes(self.graphs, len(self.layers)).batch(numbers)
        x = self.first(features)
        logits: Tensor = self.readouts[0](self._pool(x, levels[0], len(numbers)))
        for layer, readout, epsilon, level in zip(
            self.layers, self.readouts[1:], self.epsilon, levels[1:], strict=True
        ):
            around = F.embedding_bag(level.neighbours, x, level.first, mode="sum", per_sample_weights=level.times)
            norms = [part for part in layer.modules() if isinstance(part, CountedBatchNorm)]
            with counted(norms, level.counts):
                x = layer((1 + epsilon) * x[level.own] + around)
            logits = logits + readout(self._pool(x, level, len(numbers)))
        return logits

    def _pool(self, x: Tensor, level: LevelBatch, graphs: int) -> Tensor:
        total = x.new_zeros(graphs, x.shape[1]).index_add(0, level.graph, x * level.counts[:, None])
        if self.pooling == "sum":
            return total
        return total / level.graph.bincount(level.counts, graphs).to(x.dtype)[:, None]
