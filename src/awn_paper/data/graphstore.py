"""Graphs: many graphs in a few tensors, from which batches are gathered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


class GraphBatch(NamedTuple):
    """Some graphs as one that is not connected: features of nodes, edges [2, edges], and the graph of every node."""

    x: Tensor
    edges: Tensor
    graph: Tensor
    size: int


@dataclass(frozen=True, eq=False)
class Graphs:
    """All graphs of a data set. Nodes and edges lie graph after graph; edges count nodes from their graph's first.

    >>> two = Graphs(torch.eye(3), torch.tensor([0, 2, 3]), torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 2, 2]))
    >>> batch = two.batch(torch.tensor([1, 0]))
    >>> batch.graph, batch.edges
    (tensor([0, 1, 1]), tensor([[1, 2], [2, 1]]))
    """

    features: Tensor
    node_starts: Tensor
    edges: Tensor
    edge_starts: Tensor

    def __len__(self) -> int:
        return len(self.node_starts) - 1

    def __deepcopy__(self, memo: Any) -> Graphs:
        """The data itself: copies of a network read the same graphs."""
        return self

    def batch(self, numbers: Tensor) -> GraphBatch:
        """The graphs of these numbers, in this order."""
        nodes, graph, first = gather(self.node_starts, numbers)
        edges, edge_graph, _ = gather(self.edge_starts, numbers)
        return GraphBatch(self.features[nodes], self.edges[:, edges] + first[edge_graph], graph, len(numbers))


def gather(starts: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the entries of some graphs lie, which graph of the batch each belongs to, and where each begins there.

    >>> gather(torch.tensor([0, 2, 3]), torch.tensor([1, 0]))
    (tensor([2, 0, 1]), tensor([0, 1, 1]), tensor([0, 1]))
    """
    counts = (starts[1:] - starts[:-1])[numbers]
    first = counts.cumsum(0) - counts
    owner = torch.arange(len(numbers)).repeat_interleave(counts)
    places = torch.arange(int(counts.sum())) - first[owner] + starts[numbers][owner]
    return places, owner, first
