"""Which scale, which start of biases and of new units train best on SpiralHard and Spiral.

Biases of the first units start from U(±1/√inputs), torch's own way, or from zero; those of new units from the former.

Run: python benchmarks/initial_weights.py            (about half an hour on one core)
Writes results/initial_weights.json, a row a run; docs/decisions.md reads it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import awn
from awn.datasets import Split, spiral, spiral_hard, split
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/initial_weights.json"))
    parser.add_argument("--show", action="store_true", help="print the table of a finished file")
    options = parser.parse_args()
    if options.show:
        show(json.loads(options.out.read_text())["runs"])
        return
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
            loss.backward()
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


def show(runs: list[dict[str, Any]]) -> None:
    """A Markdown table: accuracies with the worst seed, runs that reached 99.5 %, and the width."""
    print("| scale | biases | new units | SpiralHard (worst) | reached | total width | Spiral (worst) |")
    print("|---|---|---|---|---|---|---|")
    for case in dict.fromkeys((run["scale"], run["bias"], run["new_units"]) for run in runs):
        hard, easy = (
            [run for run in runs if (run["scale"], run["bias"], run["new_units"], run["data"]) == (*case, data)]
            for data in ("SpiralHard", "Spiral")
        )
        reached = sum(run["epochs_to_99.5%_validation"] is not None for run in hard)
        width = statistics.mean(run["total_width"] for run in hard)
        print(f"| {' | '.join(case)} | {_accuracies(hard)} | {reached} | {width:.0f} | {_accuracies(easy)} |")


def _accuracies(runs: list[dict[str, Any]]) -> str:
    tested = [run["test_accuracy"] for run in runs]
    return f"{statistics.mean(tested):.1%} ({min(tested):.1%})"


def accuracy(model: nn.Module, samples: Any) -> float:
    with torch.no_grad():
        return float((model(samples.x).argmax(1) == samples.y).double().mean())


if __name__ == "__main__":
    main()
