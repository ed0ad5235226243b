"""Which scale, which start of biases and of new units train best on SpiralHard and Spiral.

Biases start from U(±1/√inputs), torch's own way, or from zero.

Run: python benchmarks/initial_weights.py            (about half an hour on one core)
Writes results/initial_weights.json, a row a run; docs/decisions.md reads it.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import awn
from awn.files import json_file, write_files
from awn.paper.synthetic import Split, spiral, spiral_hard, split
from awn.provenance import provenance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/initial_weights.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    made_by, rows = provenance(epochs=options.epochs, seeds=options.seeds), []
    cases = itertools.product(
        ("Spiral", "SpiralHard"),
        ("mass", "unit"),
        ("zero", "uniform"),
        ("rescaled", "normal", "zero"),
        range(options.seeds),
    )
    for data, scale, bias, new_units, seed in cases:
        setting = {"data": data, "scale": scale, "bias": bias, "new_units": new_units, "seed": seed}
        rows.append({**setting, **train(data, scale, bias, new_units, seed, options.epochs)})
        print(rows[-1], flush=True)
        write_files({options.out: json_file({"from": made_by, "runs": rows})})


def train(data: str, scale: Any, bias: str, new_units: Any, seed: int, epochs: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    parts: Split = split(spiral_hard(seed) if data == "SpiralHard" else spiral(seed), seed)
    model = awn.AdaptiveMLP(
        2,
        2,
        hidden_layers=4 if data == "SpiralHard" else 1,
        activation="relu6",
        importance=awn.Exponential(rate=0.01, scale=scale),
        new_units=new_units,
    )
    if bias == "zero":
        for layer in model.hidden:
            assert isinstance(layer, nn.Linear)
            nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    samples, reached = len(parts.train.y), None
    started = time.perf_counter()
    for epoch in range(epochs):
        for rows in torch.randperm(samples).split(128):
            nll = awn.likelihood.categorical(model(parts.train.x[rows]), parts.train.y[rows])
            loss = awn.objective(nll, model, samples)
            optimizer.zero_grad()
            loss.total.backward()
            optimizer.step()
            awn.resize_(model, optimizer)
        if reached is None and accuracy(model, parts.validation) >= 0.995:
            reached = epoch + 1
    return {
        "test_accuracy": accuracy(model, parts.test),
        "total_width": sum(awn.widths(model).values()),
        "epochs_to_99.5%_validation": reached,
        "seconds": round(time.perf_counter() - started, 1),
    }


def accuracy(model: nn.Module, samples: Any) -> float:
    with torch.no_grad():
        return float((model(samples.x).argmax(1) == samples.y).double().mean())


if __name__ == "__main__":
    main()
