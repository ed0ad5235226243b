"""Nodes that a graph network cannot tell apart, as one: the same network on a fraction of the nodes.

After l convolutions, the embedding of a node depends on its neighbourhood of depth l alone: on its colour after l
rounds of the colour refinement by Weisfeiler and Leman. Nodes of a graph that have the same colour are computed once,
and counted where a network sums over nodes. REDDIT-BINARY has 0.86 million nodes. Of these, 2,000 differ before the
first convolution, and 0.34 million after the fourth.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from awn_paper.data.graphstore import Graphs, gather


class LevelBatch(NamedTuple):
    """The distinct nodes of some graphs after a number of convolutions.

    `counts` is how many nodes each stands for, `graph` which graph it belongs to, and `own` its place on the level
    before. The places of its neighbours there are `neighbours`, from `first` of each node on, `times` each.
    """

    counts: Tensor
    graph: Tensor
    own: Tensor
    neighbours: Tensor
    first: Tensor
    times: Tensor


@dataclass(frozen=True, eq=False)
class Level:
    """The distinct nodes of all graphs after a number of convolutions, graph after graph; see `LevelBatch`.

    Places on the level before are counted from the first of the graph.
    """

    starts: Tensor
    counts: Tensor
    own: Tensor
    neighbour_starts: Tensor
    neighbours: Tensor
    times: Tensor
    degrees: Tensor


@dataclass(frozen=True, eq=False)
class DistinctNodes:
    """All graphs of a data set by the nodes that differ on each level, from before the first convolution on."""

    features: Tensor
    levels: tuple[Level, ...]

    def batch(self, numbers: Tensor) -> tuple[Tensor, list[LevelBatch]]:
        """The features of the first level and all levels, of the graphs of these numbers."""
        batches: list[LevelBatch] = []
        below = torch.zeros(len(numbers), dtype=torch.long)  # where each graph begins on the level before
        for level in self.levels:
            nodes, graph, first = gather(level.starts, numbers)
            edges, of_graph, _ = gather(level.neighbour_starts, numbers)
            degrees = level.degrees[nodes]
            batches.append(
                LevelBatch(
                    level.counts[nodes],
                    graph,
                    level.own[nodes] + below[graph],
                    level.neighbours[edges] + below[of_graph],
                    degrees.cumsum(0) - degrees,
                    level.times[edges],
                )
            )
            below = first
        return self.features[gather(self.levels[0].starts, numbers)[0]], batches


@functools.lru_cache(maxsize=8)
def distinct_nodes(graphs: Graphs, convolutions: int) -> DistinctNodes:
    """The nodes of graphs that differ before the first of so many convolutions, and after each.

    The two ends of a path of three nodes are alike, whatever the number of convolutions:

    >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> path = Graphs(torch.ones(3, 1), torch.tensor([0, 3]), edges, torch.tensor([0, 4]))
    >>> [sorted(level.counts.tolist()) for level in distinct_nodes(path, 2).levels]
    [[3.0], [1.0, 2.0], [1.0, 2.0]]
    """
    sizes, edge_sizes = graphs.node_starts.diff(), graphs.edge_starts.diff()
    every = torch.arange(len(graphs))
    owner, edge_owner = every.repeat_interleave(sizes), every.repeat_interleave(edge_sizes)
    sources, targets = graphs.edges + graphs.node_starts[edge_owner]
    generator = torch.Generator().manual_seed(0)

    def merge(keys: Tensor) -> Tensor:
        """The number of each node's group: nodes of a graph with the same key. Groups lie graph after graph."""
        named = keys.unique(return_inverse=True)[1]
        groups: Tensor = (owner * (int(named.max()) + 1) + named).unique(return_inverse=True)[1]
        return groups

    group = merge(graphs.features.unique(dim=0, return_inverse=True)[1])
    features = graphs.features[_one_of_each(group)]
    levels = [_level(graphs, owner, group, group, sources[:0], targets[:0])]
    for _ in range(convolutions):
        # The sum of random numbers, one for the group of each neighbour, stands for the multiset of the groups. Two of
        # n multisets have the same sum with a probability of about n²/2⁶⁴, which is below 10⁻⁷ for a million nodes.
        number = torch.randint(-(2**62), 2**62, (int(group.max()) + 1,), generator=generator)
        seen = torch.zeros_like(group).index_add_(0, targets, number[group[sources]])
        refined = merge(group * len(group) + seen.unique(return_inverse=True)[1])
        levels.append(_level(graphs, owner, refined, group, sources, targets))
        group = refined
    return DistinctNodes(features, tuple(levels))


def _one_of_each(group: Tensor) -> Tensor:
    """The number of a node of every group."""
    node = torch.empty(int(group.max()) + 1, dtype=torch.long)
    node[group] = torch.arange(len(group))
    return node


def _level(graphs: Graphs, owner: Tensor, group: Tensor, below: Tensor, sources: Tensor, targets: Tensor) -> Level:
    """A level of these groups of nodes, whose nodes have the groups `below` on the level before."""
    nodes = _one_of_each(group)
    starts, starts_below = (_starts(owner[_one_of_each(of)], len(graphs)) for of in (group, below))
    # Of each group, the edges of one node tell those of all.
    told = nodes[group[targets]] == targets
    kinds = int(below.max()) + 1
    edges, times = (group[targets[told]] * kinds + below[sources[told]]).unique(return_counts=True)
    into, neighbours = edges.div(kinds, rounding_mode="floor"), edges % kinds
    return Level(
        starts,
        group.bincount().float(),
        below[nodes] - starts_below[owner[nodes]],
        _starts(owner[nodes][into], len(graphs)),
        neighbours - starts_below[owner[nodes][into]],
        times.float(),
        into.bincount(minlength=len(nodes)),
    )


def _starts(owner: Tensor, graphs: int) -> Tensor:
    """Where each graph begins in entries that lie graph after graph, and the end."""
    counts = owner.bincount(minlength=graphs)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
