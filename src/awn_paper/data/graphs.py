"""Graphs: NCI1 and REDDIT-BINARY in the TU text format, in the ten folds of the fair comparison of graph networks."""

from __future__ import annotations

import io
import json

import numpy as np
import torch
from numpy.typing import NDArray

from awn.errors import ArgumentError, DataError
from awn.training.data import Data
from awn_paper.data.dataset import Dataset
from awn_paper.data.graphstore import Graphs
from awn_paper.data.source import Source

_HOME = "https://chrsmrrs.github.io/datasets/"
_SPLITS_HOME = "https://github.com/diningphil/gnn-comparison (data_splits)"
_ARCHIVES = "https://www.chrsmrrs.com/graphkerneldatasets/"
_SPLIT_FILES = "https://raw.githubusercontent.com/diningphil/gnn-comparison/master/data_splits/"

SHA256 = {
    "NCI1_A": "b2d5f854a3954f675348f27f938275bacf02a9c8a20d84c45e1ef56b87199f3d",
    "NCI1_graph_indicator": "d7f2f70ddbe7d9ac9318b14849e32be850d02d6be013743a7838cd2c4fd2d1ac",
    "NCI1_graph_labels": "a0b254f8582278b7347eaa65a8cd9eb4fd61d174ab5b6d625b2b2c4cf50c5ce7",
    "NCI1_node_labels": "55d28db7d9b6fcc54c131eab108395f7e9de0bf155212d0f3a1f72b8c8d237e1",
    "NCI1_splits": "1c961b85422fb557edade036f614869bb996323efd21dbfa4b40ff1b80304924",
    "REDDIT-BINARY_A": "b228731d53869d651d352e70307a7ac25f398dbf1760443ba17634d5b1b08526",
    "REDDIT-BINARY_graph_indicator": "fad8bb968f18c038d3dcd429c0387dc153d2b4e5880b2f55422444acd939deeb",
    "REDDIT-BINARY_graph_labels": "06c3b8209797dacc2aacb74f9ac4e5d81083f998dab96f38ff19279874059813",
    "REDDIT-BINARY_splits": "d7d1f34723d9c8ca54976619c63c4c31d656db114837afb28599647503efa293",
}


def load_nci1(fold: int) -> Dataset:
    """NCI1: molecules, whose nodes have one of 37 labels."""
    labels = _numbers("NCI1", "node_labels")[:, 0]
    features = torch.nn.functional.one_hot(torch.from_numpy(labels - labels.min())).float()
    return _dataset("NCI1", "NCI1", features, fold)


def load_reddit(fold: int) -> Dataset:
    """REDDIT-BINARY: discussions, whose nodes say nothing."""
    nodes = len(_numbers("REDDIT-BINARY", "graph_indicator"))
    return _dataset("REDDIT-B", "REDDIT-BINARY", torch.ones(nodes, 1), fold)


def _dataset(name: str, folder: str, features: torch.Tensor, fold: int) -> Dataset:
    owner = torch.from_numpy(_numbers(folder, "graph_indicator")[:, 0]) - 1
    targets = _numbers(folder, "graph_labels")[:, 0]
    y = torch.from_numpy(np.unique(targets, return_inverse=True)[1].astype(np.int64))
    graphs = pack(features, owner, torch.from_numpy(_numbers(folder, "A").T) - 1)
    if len(graphs) != len(y):
        raise DataError(f"{folder} has {len(graphs)} graphs but {len(y)} labels.")
    train, validation, test = (Data(rows, y[rows]) for rows in _fold(folder, fold))
    return Dataset(name, train, validation, test, inputs=features.shape[1], outputs=int(y.max()) + 1, graphs=graphs)


def pack(features: torch.Tensor, owner: torch.Tensor, edges: torch.Tensor) -> Graphs:
    """Graphs from the graph of every node, graph after graph, and edges [2, edges] between nodes of the whole."""
    of_edge = owner[edges[0]]
    order = of_edge.argsort(stable=True)
    counts, edge_counts = owner.bincount(), of_edge.bincount(minlength=int(owner.max()) + 1)
    starts, edge_starts = (torch.cat([torch.zeros(1, dtype=torch.long), c.cumsum(0)]) for c in (counts, edge_counts))
    local = edges[:, order] - starts[of_edge[order]]
    return Graphs(features, starts, local, edge_starts)


def _fold(folder: str, fold: int) -> list[torch.Tensor]:
    name = f"{folder}_splits.json"
    kind = "CHEMICAL" if folder == "NCI1" else "COLLABORATIVE_1"
    source = Source(f"tu/splits/{name}", _SPLITS_HOME, SHA256[f"{folder}_splits"], f"{_SPLIT_FILES}{kind}/{name}")
    folds = json.loads(source.read())
    if not 0 <= fold < len(folds):
        raise ArgumentError(f"{folder} has folds 0 to {len(folds) - 1}, not {fold}.")
    inner = folds[fold]["model_selection"][0]
    return [torch.tensor(rows) for rows in (inner["train"], inner["validation"], folds[fold]["test"])]


def _numbers(folder: str, part: str) -> NDArray[np.int64]:
    name = f"{folder}_{part}.txt"
    source = Source(
        f"tu/{folder}/raw/{name}",
        _HOME,
        SHA256[f"{folder}_{part}"],
        url=f"{_ARCHIVES}{folder}.zip",
        member=f"{folder}/{name}",
    )
    return np.loadtxt(io.BytesIO(source.read()), delimiter=",", dtype=np.int64, ndmin=2)
