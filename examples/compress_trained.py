"""Compress a trained network: convert it without changing its outputs, then fine-tune it with a budget.

    AWN_DATA=folder python examples/compress_trained.py [--steps 1000] [--results results/adapt/compress_trained.json]

The comparison is the same network, pruned to the same number of units by the magnitude of its weights, before and after
as many steps of fine-tuning.
"""

from __future__ import annotations

import copy

import torch
from rich.table import Table
from torch import nn

import awn
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from training import accuracy, console, images, options_of, some, train

UNITS, KEPT = 512, 64


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


def main() -> None:
    options = options_of(__doc__, steps=1000)
    learn, test = (some(part, options.rows) for part in images("MNIST"))
    torch.manual_seed(options.seed)
    trained = network()
    train(trained, learn, steps=options.steps, seed=options.seed, title="a fixed network")

    adaptive = copy.deepcopy(trained)
    awn.adapt_(adaptive, preserve=True)
    rows = [("trained, fixed", UNITS, accuracy(trained, test)), ("converted", UNITS, accuracy(adaptive, test))]
    budget = awn.Budget(max_units=KEPT)
    # Ten times the learning rate for ν, so that the network shrinks early and has time to train at its final size.
    train(adaptive, learn, steps=options.steps, seed=1, width_lr=1e-2, budget=budget, title="fine-tuned to a budget")
    units = sum(awn.widths(adaptive).values())
    rows.append(("fine-tuned to a budget", units, accuracy(awn.finalize(adaptive), test)))
    half = awn.truncate(adaptive, keep=0.5)
    rows.append(("and cut in half at its tail", sum(awn.widths(half).values()), accuracy(half, test)))

    cut = cut_by_magnitude(trained, units)
    rows.append(("cut by magnitude", units, accuracy(cut, test)))
    train(cut, learn, steps=options.steps, seed=1, title="fine-tuned after the cut")
    rows.append(("cut by magnitude, then fine-tuned", units, accuracy(cut, test)))

    table = Table("784 → units → 10 on MNIST", "units", "test accuracy")
    for name, size, score in rows:
        table.add_row(name, str(size), f"{score:.4f}")
    console.print(table)
    if options.results:
        made_by = provenance(seed=options.seed, steps=options.steps, rows=options.rows)
        found = [{"network": name, "units": size, "accuracy": score} for name, size, score in rows]
        write_files({options.results: json_file({"from": made_by, "networks": found})})


if __name__ == "__main__":
    main()
