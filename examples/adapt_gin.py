"""A graph network (GIN, PyTorch Geometric) on NCI1 that learns the width of the perceptrons in its convolutions.

AWN_DATA=folder python examples/adapt_gin.py [--steps 500] [--results results/adapt/adapt_gin.json]
"""

from __future__ import annotations

from torch import Tensor, nn
from torch_geometric.nn import GINConv, global_add_pool

from awn_paper.data import load
from awn_paper.data.graphstore import Graphs
from training import compare, options_of


class GIN(nn.Module):
    """The input is the indices of the graphs in the batch."""

    def __init__(self, graphs: Graphs, features: int, classes: int, units: int = 64, state: int = 32) -> None:
        super().__init__()
        self.graphs = graphs
        sizes = [features, state, state]
        self.convolutions = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(inside, units), nn.BatchNorm1d(units), nn.ReLU(), nn.Linear(units, state)))
            for inside in sizes
        )
        self.head = nn.Sequential(nn.Linear(state, units), nn.ReLU(), nn.Linear(units, classes))

    def forward(self, numbers: Tensor) -> Tensor:
        batch = self.graphs.batch(numbers)
        x = batch.x
        for convolution in self.convolutions:
            x = convolution(x, batch.edges).relu()
        logits: Tensor = self.head(global_add_pool(x, batch.graph, size=batch.size))
        return logits


def main() -> None:
    options = options_of(__doc__, steps=500)
    molecules = load("NCI1")
    assert molecules.test is not None
    assert molecules.graphs is not None
    graphs = molecules.graphs

    def network() -> nn.Module:
        return GIN(graphs, molecules.inputs, molecules.outputs)

    # Without include, the states of the nodes become adaptive as well.
    perceptrons = ["convolutions.*.nn.0", "head.0"]
    compare("GIN on NCI1", network, (molecules.train, molecules.test), options, include=perceptrons)


if __name__ == "__main__":
    main()
