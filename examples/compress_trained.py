"""Compress a trained network: convert it without changing its outputs, prune it, repair it and fine-tune it.

    AWN_DATA=folder python examples/compress_trained.py [--steps 1000] [--results results/adapt/compress_trained.json]

The comparison is the same network, pruned to the same number of units by the magnitude of its weights, before and after
as many steps of fine-tuning. Three networks, from three seeds.
"""

from __future__ import annotations

import copy
import statistics
from collections import defaultdict

import torch
from rich.table import Table
from torch import nn

import awn
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.training.data import Data
from training import accuracy, console, images, options_of, some, train

UNITS, KEEPS, SEEDS = 512, (0.25, 0.1), 3


def network(units: int = UNITS) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, units), nn.ReLU(), nn.Linear(units, 10))


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]


def cut_by_magnitude(trained: nn.Module, units: int) -> nn.Module:
    """Keep the units of a plain network whose incoming and outgoing weights are largest."""
    first, last = linear_layers(trained)
    best = (first.weight.norm(dim=1) * last.weight.norm(dim=0)).argsort(descending=True)[:units]
    small = network(units)
    small_first, small_last = linear_layers(small)
    with torch.no_grad():
        small_first.weight.copy_(first.weight[best])
        small_first.bias.copy_(first.bias[best])
        small_last.weight.copy_(last.weight[:, best])
        small_last.bias.copy_(last.bias)
    return small


def cut_by_awn(trained: nn.Module, units: int, inputs: torch.Tensor) -> nn.Module:
    """Remove the units that the others make up for best, refit the output layer, and return a plain network."""
    adaptive = copy.deepcopy(trained)
    awn.adapt_(adaptive, preserve=True, data=inputs)
    return awn.finalize(awn.advanced.prune(adaptive, inputs, units=units))


def compare(learn: Data, test: Data, seed: int, steps: int) -> dict[tuple[str, int], float]:
    """The test accuracy of every network, by its name and its units."""
    torch.manual_seed(seed)
    trained = network()
    train(trained, learn, steps=steps, seed=seed, title=f"seed {seed}: a fixed network")
    found = {("trained", UNITS): accuracy(trained, test)}
    for keep in KEEPS:
        units = round(keep * UNITS)
        cuts = {"pruned": cut_by_awn(trained, units, learn.x), "cut by magnitude": cut_by_magnitude(trained, units)}
        for name, cut in cuts.items():
            found[name, units] = accuracy(cut, test)
            train(cut, learn, steps=steps, seed=seed + 1, title=f"seed {seed}: {name}, {units} units")
            found[f"{name}, then fine-tuned", units] = accuracy(cut, test)
    return found


def main() -> None:
    options = options_of(__doc__, steps=1000)
    learn, test = (some(part, options.rows) for part in images("MNIST"))
    seeds = list(range(options.seed, options.seed + SEEDS))
    scores: dict[tuple[str, int], list[float]] = defaultdict(list)
    for seed in seeds:
        for key, score in compare(learn, test, seed, options.steps).items():
            scores[key].append(score)
    table = Table("784 → units → 10 on MNIST", "units", "test accuracy", "of each seed")
    for (name, units), values in scores.items():
        table.add_row(name, str(units), f"{statistics.mean(values):.4f}", ", ".join(f"{one:.4f}" for one in values))
    console.print(table)
    if options.results:
        made_by = provenance(seeds=seeds, steps=options.steps, rows=options.rows)
        found = [
            {"network": name, "units": units, "accuracy": statistics.mean(values), "of each seed": values}
            for (name, units), values in scores.items()
        ]
        write_files({options.results: json_file({"from": made_by, "networks": found})})


if __name__ == "__main__":
    main()
