"""Train a network on SpiralHard that learns the width of its four hidden layers.

    python examples/spiral_hard.py                     one run, files under runs/spiral_hard
    python examples/spiral_hard.py --seeds 0 1 2 --results results/spiral_hard

The settings are the paper's: ReLU6, Adam with learning rate 0.01, batches of 128, σ_θ = 10, from 231 units per layer.
The epoch with the best validation accuracy is kept. Training stops after `--patience` epochs without improvement.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import nn

import awn
from awn.datasets import Samples, spiral_hard, split
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files

console = Console()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=300, help="at most this many")
    parser.add_argument("--patience", type=int, default=60, help="epochs without a better validation accuracy")
    parser.add_argument("--out", type=Path, default=Path("runs/spiral_hard"))
    parser.add_argument("--results", type=Path, help="also write a summary and the histories to this folder")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a second thread does not speed up layers this small
    runs = [train(seed, options.epochs, options.patience, options.out / f"seed-{seed}") for seed in options.seeds]
    show(runs)
    if options.results:
        summary = json_file({"from": provenance(seeds=options.seeds), "runs": runs})
        histories = {f"seed-{seed}.jsonl": (options.out / f"seed-{seed}/history.jsonl") for seed in options.seeds}
        files = {options.results / name: path.read_bytes() for name, path in histories.items()}
        write_files({options.results / "summary.json": summary, **files})
    console.print(f"Models and histories: {options.out}", highlight=False)


def train(seed: int, epochs: int, patience: int, folder: Path) -> dict[str, Any]:
    torch.manual_seed(seed)
    data = split(spiral_hard(seed), seed)
    samples = len(data.train.y)

    importance = awn.Exponential(rate=0.01, scale="mass")  # as in the paper
    model = awn.AdaptiveMLP(2, 2, hidden_layers=4, activation="relu6", importance=importance)
    prior = awn.Prior(weight_scale=10.0)
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.01, width_lr=0.01), fused=True)

    started, history = time.perf_counter(), []
    best, best_accuracy, best_epoch = copy.deepcopy(model.state_dict()), 0.0, 0
    with Display(seed, epochs) as display:
        for epoch in range(1, epochs + 1):
            for rows in torch.randperm(samples).split(128):
                nll = awn.likelihood.categorical(model(data.train.x[rows]), data.train.y[rows])
                loss = awn.objective(nll, model, samples, prior=prior)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                awn.resize_(model, optimizer)
            row: dict[str, Any] = {
                "epoch": epoch,
                "validation_accuracy": accuracy(model, data.validation),
                "widths": awn.widths(model),
            }
            history.append({**row, "loss": loss.item()})
            display.show(history[-1])
            # Ties go to the later epoch, whose widths have had longer to converge.
            if row["validation_accuracy"] >= best_accuracy:
                if row["validation_accuracy"] > best_accuracy:
                    best_epoch = epoch
                best, best_accuracy = copy.deepcopy(model.state_dict()), row["validation_accuracy"]
            if epoch - best_epoch >= patience:
                break

    model.load_state_dict(best)  # also restores the widths
    awn.save(model, folder / "model")
    write_files({folder / "history.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in history)})
    return {
        "seed": seed,
        "epochs": len(history),
        "validation_accuracy": best_accuracy,
        "test_accuracy": accuracy(model, data.test),
        "widths": awn.widths(model),
        "total_width": sum(awn.widths(model).values()),
        "parameters": awn.advanced.count_parameters(model),
        "seconds": round(time.perf_counter() - started, 1),
    }


def accuracy(model: nn.Module, samples: Samples) -> float:
    with torch.no_grad():
        return float((model(samples.x).argmax(1) == samples.y).double().mean())


class Display:
    """A progress bar with the accuracy and the widths; plain lines without a terminal."""

    def __init__(self, seed: int, epochs: int) -> None:
        columns = (TextColumn("seed {task.fields[seed]}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=console)
        self.task = self.progress.add_task("epochs", total=epochs, seed=seed)
        self.live = Live(self.progress, console=console, refresh_per_second=8) if console.is_terminal else None

    def __enter__(self) -> Display:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def show(self, row: dict[str, Any]) -> None:
        if self.live:
            self.progress.advance(self.task)
            table = Table("accuracy", "loss", *row["widths"], "total", title="SpiralHard: units in each layer")
            units = row["widths"].values()
            numbers = (f"{row['validation_accuracy']:.1%}", f"{row['loss']:.3f}", *units, sum(units))
            table.add_row(*map(str, numbers))
            self.live.update(Group(table, self.progress))
        elif row["epoch"] % 10 == 0:
            units = " ".join(map(str, row["widths"].values()))
            print(f"epoch {row['epoch']:4d}  accuracy {row['validation_accuracy']:.1%}  widths {units}", flush=True)


def show(runs: list[dict[str, Any]]) -> None:
    table = Table("seed", "epochs", "test accuracy", "widths", "total width", "parameters", "seconds", title="Learned")
    for run in runs:
        widths = " ".join(map(str, run["widths"].values()))
        numbers = (run["epochs"], f"{run['test_accuracy']:.2%}", widths, run["total_width"], f"{run['parameters']:,}")
        table.add_row(*map(str, (run["seed"], *numbers, run["seconds"])))
    console.print(table)


if __name__ == "__main__":
    main()
