"""Shared code of the `adapt_` examples: the same training for a fixed and an adaptive model.

python examples/training.py results/adapt       prints a table of the examples' results
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import awn
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.training.data import Data
from awn_paper.data import load

console = Console()
Loss = Callable[[nn.Module, Data], Tensor]


def options_of(text: str | None, steps: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--rows", type=int, help="train and test on this many rows at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="write the row of the table to this file")
    torch.set_num_threads(1)
    return parser.parse_args()


def images(name: str) -> tuple[Data, Data]:
    """The training and test images of a data set, with pixels from 0 to 1."""
    known = load(name)
    assert known.test is not None
    train_data, test_data = (Data(part.x / 255, part.y) for part in (known.train, known.test))
    return train_data, test_data


def some(data: Data, rows: int | None) -> Data:
    """At most `rows` rows, drawn at random, since the data may be sorted by class."""
    return data.rows(torch.randperm(len(data.y), generator=torch.Generator().manual_seed(0))[:rows])


def classification(model: nn.Module, batch: Data) -> Tensor:
    return F.cross_entropy(model(batch.x), batch.y)


def train(
    model: nn.Module,
    data: Data,
    *,
    steps: int,
    seed: int,
    loss_of: Loss = classification,
    batch_size: int = 128,
    lr: float = 1e-3,
    width_lr: float | None = None,
    budget: awn.Budget | None = None,
    title: str = "training",
) -> None:
    """An ordinary training loop; the numbered lines differ for an adaptive model."""
    adaptive = bool(awn.advanced.find_groups(model))
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=lr, width_lr=width_lr))  # 1
    shuffling = torch.Generator().manual_seed(seed)
    model.train()
    for _ in track(range(steps), title, console=console):
        rows = torch.randint(len(data.y), (batch_size,), generator=shuffling)
        loss = loss_of(model, data.rows(rows))
        if adaptive:
            loss = awn.objective(loss, model, n_samples=len(data.y), budget=budget)  # 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if adaptive:
            awn.resize_(model, optimizer)  # 3
    model.eval()


@torch.no_grad()
def mean_loss(model: nn.Module, data: Data, loss_of: Loss = classification, batch_size: int = 512) -> float:
    parts = torch.arange(len(data.y)).split(batch_size)
    return sum(loss_of(model, data.rows(rows)).item() * len(rows) for rows in parts) / len(data.y)


@torch.no_grad()
def accuracy(model: nn.Module, data: Data, batch_size: int = 512) -> float:
    right = [
        (model(x).argmax(1) == y).sum() for x, y in zip(data.x.split(batch_size), data.y.split(batch_size), strict=True)
    ]
    return int(torch.stack(right).sum()) / len(data.y)


def compare(
    name: str,
    make: Callable[[], nn.Module],
    data: tuple[Data, Data],
    options: argparse.Namespace,
    *,
    score: Callable[[nn.Module, Data], float] = accuracy,
    metric: str = "accuracy",
    include: Sequence[str] | None = None,
    **training: Any,
) -> nn.Module:
    """Train a fixed and an adaptive model from the same weights; returns the adaptive one."""
    train_data, test_data = (some(part, options.rows) for part in data)
    torch.manual_seed(options.seed)
    adaptive = make()
    if awn.advanced.find_groups(adaptive):
        fixed = awn.finalize(adaptive)
    else:
        fixed = copy.deepcopy(adaptive)
        report = awn.adapt_(adaptive, example_input=train_data.x[:8], include=include)
        console.print(str(report), highlight=False)
    before = awn.widths(adaptive)
    for model, title in ((fixed, "fixed"), (adaptive, "adaptive")):
        train(model, train_data, steps=options.steps, seed=options.seed, title=f"{name}, {title}", **training)
    row = {
        "model": name,
        "steps": options.steps,
        "metric": metric,
        "fixed": score(fixed, test_data),
        "adaptive": score(adaptive, test_data),
        "before": before,
        "after": awn.widths(adaptive),
        "parameters_fixed": sum(parameter.numel() for parameter in fixed.parameters()),
        "parameters_adaptive": awn.advanced.count_parameters(adaptive),
    }
    write(row, options)
    return adaptive


def write(row: dict[str, Any], options: argparse.Namespace) -> None:
    """Show a row, and write it to a file if requested."""
    console.print(table([row]))
    if options.results:
        made_by = provenance(seed=options.seed, steps=options.steps, rows=options.rows)
        write_files({options.results: json_file({"from": made_by, "row": row})})
        console.print(f"Written: {options.results}", highlight=False)


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table("model", "layers", "units before → after", "parameters", "score, fixed", "score, adaptive")
    for row in rows:
        shown.add_row(*cells(row))
    return shown


def cells(row: dict[str, Any]) -> list[str]:
    units = [sum(row[when].values()) for when in ("before", "after")]
    parameters = [f"{row[f'parameters_{kind}']:,}" for kind in ("fixed", "adaptive")]
    scores = [f"{row[kind]:.4f}" for kind in ("fixed", "adaptive")]
    return [
        f"{row['model']}, {row['steps']} steps ({row['metric']})",
        str(len(row["after"])),
        f"{units[0]} → {units[1]}",
        " → ".join(parameters),
        *scores,
    ]


if __name__ == "__main__":
    print("| model | layers | units before → after | parameters | score, fixed | score, adaptive |")
    print("|---|---|---|---|---|---|")
    for path in sorted(Path(sys.argv[1]).glob("adapt_*.json")):
        print(f"| {' | '.join(cells(json.loads(path.read_text())['row']))} |")
