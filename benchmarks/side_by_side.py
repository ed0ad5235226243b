"""Prune the same trained networks with awn and with Torch-Pruning, and fine-tune both in the same way.

    pip install -c constraints.txt torch-pruning
    python benchmarks/side_by_side.py               writes results/side_by_side.json
    python benchmarks/side_by_side.py --show        prints its table

Two small networks on the digits of scikit-learn, three seeds. Every method keeps the same number of units per layer.
Torch-Pruning selects units by the norm of their weights, or by a Taylor expansion of the loss on the training rows; awn
by `awn.advanced.prune`, which also refits the layers that read the units.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import awn
from awn.basics.text_table import markdown_table
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files

RESULTS = Path(__file__).parents[1] / "results/side_by_side.json"
SEEDS, KEEPS, EPOCHS, TUNING = (0, 1, 2), (0.5, 0.25, 0.1), 20, 3
METHODS = ("awn, prune", "Torch-Pruning, norm", "Torch-Pruning, Taylor")


def perceptron() -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def convolutions() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 4, 10)),
    )


NETWORKS = {"perceptron, 128 and 128 units": perceptron, "convolutions, 32 and 64 channels": convolutions}
Rows = tuple[Tensor, Tensor]


def digits(seed: int) -> tuple[Rows, Rows]:
    """Images with their labels: two thirds to train and fine-tune on, a third to test on."""
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    return (x[order[:1200]], y[order[:1200]]), (x[order[1200:]], y[order[1200:]])


def train_(model: nn.Module, rows: Rows, epochs: int, seed: int) -> nn.Module:
    shuffling = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(rows[1]), generator=shuffling).split(50):
            optimizer.zero_grad()
            F.cross_entropy(model(rows[0][batch]), rows[1][batch]).backward()
            optimizer.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, rows: Rows) -> float:
    return float((model(rows[0]).argmax(1) == rows[1]).double().mean())


def by_awn(trained: nn.Module, rows: Rows, keep: float) -> nn.Module:
    model = copy.deepcopy(trained)
    awn.adapt_(model, preserve=True, data=rows[0])
    units = {name: int(keep * number) for name, number in awn.widths(model).items()}
    return awn.finalize(awn.advanced.prune(model, rows[0], units=units))


def by_torch_pruning(trained: nn.Module, rows: Rows, keep: float, importance: str) -> nn.Module:
    import torch_pruning as tp

    model = copy.deepcopy(trained)
    by = {"norm": tp.importance.GroupMagnitudeImportance, "Taylor": tp.importance.GroupTaylorImportance}
    pruner = tp.pruner.BasePruner(
        model,
        rows[0][:1],
        importance=by[importance](),
        pruning_ratio=1 - keep,
        ignored_layers=[list(model.children())[-1]],
    )
    F.cross_entropy(model(rows[0]), rows[1]).backward()
    pruner.step()
    model.zero_grad(set_to_none=True)
    return model


def cut(method: str, trained: nn.Module, rows: Rows, keep: float) -> nn.Module:
    name, _, how = method.partition(", ")
    return by_awn(trained, rows, keep) if name == "awn" else by_torch_pruning(trained, rows, keep, how)


def measure() -> list[dict[str, Any]]:
    found = []
    for name, make in NETWORKS.items():
        for seed in SEEDS:
            rows, test = digits(seed)
            torch.manual_seed(seed)
            trained = train_(make(), rows, EPOCHS, seed)
            found.append({"network": name, "seed": seed, "method": "whole", "cut": accuracy(trained, test)})
            for keep in KEEPS:
                for method in METHODS:
                    small = cut(method, trained, rows, keep)
                    row = {"network": name, "seed": seed, "keep": keep, "method": method, "cut": accuracy(small, test)}
                    row["parameters"] = sum(one.numel() for one in small.parameters())
                    row["tuned"] = accuracy(train_(small, rows, TUNING, seed + 1), test)
                    found.append(row)
                    print(row, flush=True)
    return found


def shown(rows: list[dict[str, Any]]) -> str:
    """The table of the results: means over the seeds, with the lowest and the highest."""
    table: list[tuple[str, ...]] = []
    for name in NETWORKS:
        whole = [row["cut"] for row in rows if row["network"] == name and row["method"] == "whole"]
        table.append((name, "100 %", "whole", f"{statistics.mean(whole):.4f}", ""))
        for keep in KEEPS:
            for method in METHODS:
                own = [row for row in rows if (row["network"], row.get("keep"), row["method"]) == (name, keep, method)]
                cells = [f"{statistics.mean(row[key] for row in own):.4f}" for key in ("cut", "tuned")]
                table.append((name, f"{keep:.0%}".replace("%", " %"), method, *cells))
    return markdown_table(("network", "units kept", "method", "after the cut", "after fine-tuning"), table)


def main() -> None:
    torch.set_num_threads(1)
    if "--show" not in sys.argv:
        import torch_pruning

        made_by = provenance(seeds=SEEDS, epochs=EPOCHS, tuning=TUNING, torch_pruning=torch_pruning.__version__)
        write_files({RESULTS: json_file({"from": made_by, "rows": measure()})})
    print(shown(json.loads(RESULTS.read_text())["rows"]))


if __name__ == "__main__":
    main()
