"""Compress a trained network: convert it without changing what it computes, then fine-tune it to a budget.

    AWN_DATA=folder python examples/compress_trained.py [--steps 1000] [--results results/adapt/compress_trained.json]

Compared with the same network cut to the same number of units by the size of its weights, at once, and after as
many steps of fine-tuning.
"""

from __future__ import annotations

import copy

import torch
from awn.paper.data import load
from rich.table import Table
from torch import nn

import awn
from awn.files import json_file, write_files
from awn.provenance import provenance
from training import accuracy, console, options_of, train

UNITS, KEPT = 512, 64


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, UNITS), nn.ReLU(), nn.Linear(UNITS, 10))


def cut_by_magnitude(trained: nn.Sequential, units: int) -> nn.Module:
    """The units with the largest weights, in and out, of a plain network."""
    first, last = trained[1].weight, trained[3].weight
    best = (first.norm(dim=1) * last.norm(dim=0)).argsort(descending=True)[:units]
    small = nn.Sequential(nn.Flatten(), nn.Linear(784, units), nn.ReLU(), nn.Linear(units, 10))
    with torch.no_grad():
        small[1].weight.copy_(first[best])
        small[1].bias.copy_(trained[1].bias[best])
        small[3].weight.copy_(last[:, best])
        small[3].bias.copy_(trained[3].bias)
    return small


def main() -> None:
    options = options_of(__doc__, steps=1000)
    images = load("MNIST")
    assert images.test is not None
    learn, test = (part.rows(torch.arange(len(part.y))[: options.rows]) for part in (images.train, images.test))
    torch.manual_seed(options.seed)
    trained = network()
    train(trained, learn, steps=options.steps, seed=options.seed, title="a fixed network")

    adaptive = copy.deepcopy(trained)
    awn.adapt_(adaptive, preserve=True)
    rows = [("trained, fixed", UNITS, accuracy(trained, test)), ("converted", UNITS, accuracy(adaptive, test))]
    budget = awn.Budget(units=KEPT)
    train(adaptive, learn, steps=options.steps, seed=1, budget=budget, title="fine-tuned to a budget")
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
