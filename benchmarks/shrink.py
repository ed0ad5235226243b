"""Compression while training: `awn.training.Shrink`, and units removed by three methods, on five networks.

Run: AWN_DATA=folder python benchmarks/shrink.py            (about ten minutes on one core)
     AWN_DATA=folder python benchmarks/shrink.py --tasks "text, converted" --epochs 2 --out results/shrink_text.json
Writes results/shrink.json, and for the language model, in another five minutes, results/shrink_text.json. `--show`
prints the tables, which docs/shrink.md has.

Every network is trained first, with a learning rate that falls to a tenth. All that follows has 0.3 of the first rate.
`Shrink` cuts the network as long as the validation score holds; for SpiralHard and pol, the same is done by a budget
that tightens. Then the trained network is brought to 50, 25 and 10 % of its units in several ways, with the same number
of steps of fine-tuning: by `awn.advanced.prune`, at once or in three rounds over the first half of the steps; by the
paper's prior on the width, annealed over the first half of the steps; and by structured magnitude pruning, at once or
in the same rounds. Scores are on test rows: accuracy, or minus the loss in nats per byte for the language model.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import awn
from awn.core.groups import WidthGroup
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.smaller.remove import prune_
from awn.training import Data, Shrink
from awn.training.evaluate import accuracy
from awn_paper.data import load

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from adapt_transformer import LanguageModel, next_byte, score, windows
from training import some

KEEPS = (0.5, 0.25, 0.1)
ROUNDS = 3
# The learning rate of ν where it has to make a network smaller: fast enough to have time to train at the new size.
FAST = 0.01


@dataclass(frozen=True)
class Task:
    """A data set, a network, and how it is trained. An epoch is `steps` steps."""

    make: Callable[[], nn.Module]
    parts: Callable[[], tuple[Data, Data, Data]]
    trained: int
    steps: int
    max_drop: float
    lr: float
    batch_size: int = 128
    most: int = 50  # epochs of Shrink
    convert: bool = False
    loss: Callable[[nn.Module, Data], Tensor] = lambda model, batch: F.cross_entropy(model(batch.x), batch.y)
    score: Callable[[nn.Module, Data], float] = accuracy


def network(inputs: int, outputs: int, layers: int, units: int, activation: str = "relu") -> nn.Module:
    family = awn.Exponential.for_units(units, scale="unit")
    return awn.AdaptiveMLP(inputs, outputs, hidden_layers=layers, activation=activation, importance=family)


def parts_of(name: str, rows: int | None = None, scale: float = 1.0) -> tuple[Data, Data, Data]:
    known = load(name)
    assert known.validation is not None
    assert known.test is not None
    parts = (known.train, known.validation, known.test)
    train, validation, test = (Data(part.x.flatten(1).float() * scale, part.y) for part in parts)
    return some(train, rows), some(validation, 3000), test


def text() -> tuple[Data, Data, Data]:
    held = windows("val")
    return windows("train"), held.rows(torch.arange(0, 400)), held.rows(torch.arange(400, 800))


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))


TASKS = {
    "SpiralHard": Task(lambda: network(2, 2, 4, 128, "relu6"), lambda: parts_of("SpiralHard"), 40, 57, 0.005, 5e-3),
    "pol": Task(lambda: network(48, 2, 2, 128), lambda: parts_of("pol"), 10, 85, 0.005, 5e-3),
    "MNIST": Task(lambda: network(784, 10, 2, 256), lambda: parts_of("MNIST", 20_000, 1 / 255), 20, 100, 0.005, 1e-3),
    "MNIST, converted": Task(plain, lambda: parts_of("MNIST", 20_000, 1 / 255), 20, 100, 0.005, 1e-3, convert=True),
    "text, converted": Task(
        LanguageModel,
        text,
        20,
        40,
        0.02,
        2e-3,
        batch_size=32,
        most=20,
        convert=True,
        loss=next_byte,
        score=lambda model, data: -score(model, data),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", default=[name for name in TASKS if not name.startswith("text")])
    parser.add_argument("--epochs", type=int, default=4, help="of fine-tuning after a cut to a given size")
    parser.add_argument("--out", type=Path, default=Path("results/shrink.json"))
    parser.add_argument("--show", action="store_true", help="print the tables of a finished file")
    options = parser.parse_args()
    if not options.show:
        torch.set_num_threads(1)
        made_by, rows = provenance(seeds=options.seeds, epochs=options.epochs), []
        for name in options.tasks:
            for seed in options.seeds:
                for row in run(TASKS[name], seed, options.epochs, by_budget=name in ("SpiralHard", "pol")):
                    rows.append({"task": name, "seed": seed, **row})
                    print(rows[-1], flush=True)
                write_files({options.out: json_file({"from": made_by, "runs": rows})})
    show(json.loads(options.out.read_text())["runs"])


def run(task: Task, seed: int, epochs: int, *, by_budget: bool) -> list[dict[str, Any]]:
    """All rows of a task and a seed."""
    trainer = Trainer(task, seed)
    trained = trainer.train()
    rows = [trainer.row("trained", trained, 0.0)]
    for name, shrink in {"shrink": trainer.shrink, **({"budget": trainer.tighten} if by_budget else {})}.items():
        started = time.perf_counter()
        model, about = shrink(copy.deepcopy(trained))
        rows.append({**trainer.row(name, model, time.perf_counter() - started), **about})
    rows.append(trainer.row("trained on", trainer.train_on(copy.deepcopy(trained), rows[1]["epochs"]), 0.0))
    for keep in KEEPS:
        for name, method in METHODS.items():
            started = time.perf_counter()
            model = method(trainer, copy.deepcopy(trained), keep, epochs * task.steps)
            rows.append({**trainer.row(name, model, time.perf_counter() - started), "keep": keep})
    return rows


class Trainer:
    """The training of a task with one seed."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task = task
        self.data, self.validation, self.test = task.parts()
        self.seed = seed
        # Windows of text have 64 positions each, and 8,192 positions are used at most.
        self.inputs: Any = list(self.data.x[:320].split(32)) if self.data.y.dim() > 1 else self.data.x

    def optimizer(
        self, model: nn.Module, relative_rate: float = 0.3, width_lr: float | None = None
    ) -> torch.optim.Optimizer:
        return torch.optim.Adam(awn.param_groups(model, lr=self.task.lr * relative_rate, width_lr=width_lr))

    def learn(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        steps: int,
        *,
        prior: awn.Prior | None = None,
        budget: awn.Budget | None = None,
        begin: int = 0,
    ) -> None:
        """Train for some steps; `begin` is the number of those before."""
        task, adaptive = self.task, bool(awn.advanced.find_groups(model))
        shuffling = torch.Generator().manual_seed(1000 * self.seed + begin)
        model.train()
        for step in range(begin, begin + steps):
            rows = torch.randint(len(self.data.y), (task.batch_size,), generator=shuffling)
            loss = task.loss(model, self.data.rows(rows))
            if adaptive:
                loss = awn.objective(
                    loss, model, len(self.data.y), prior=prior or awn.Prior(), budget=budget, time=step
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if adaptive:
                awn.resize_(model, optimizer)
        model.eval()

    def train(self) -> nn.Module:
        """The trained network, adaptive."""
        torch.manual_seed(self.seed)
        model = self.task.make()
        optimizer = self.optimizer(model, 1.0)
        for epoch in range(self.task.trained):
            for group in optimizer.param_groups:  # down to a tenth
                group["lr"] = self.task.lr * (1 - 0.9 * epoch / self.task.trained)
            self.learn(model, optimizer, self.task.steps, begin=epoch * self.task.steps)
        if self.task.convert:
            awn.adapt_(model, preserve=True, data=self.inputs)
        return model

    def held_out(self, model: nn.Module) -> float:
        return self.task.score(model, self.validation)

    def shrink(self, model: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
        """Shrink a trained network, in rounds of an epoch."""
        shrink, optimizer = Shrink(self.task.max_drop, start=1, repair=self.inputs), self.optimizer(model)
        epochs = 0
        while epochs < self.task.most and not shrink.step_(model, optimizer, self.held_out(model)):
            self.learn(model, optimizer, self.task.steps, begin=epochs * self.task.steps)
            epochs += 1
        shrink.restore_(model, optimizer)
        return model, {"epochs": epochs, "best": shrink.best_score, "kept": shrink.kept_score}

    def train_on(self, model: nn.Module, epochs: int) -> nn.Module:
        """The uncut network, trained for as many epochs as `Shrink` took; the best on the validation rows."""
        optimizer, best = self.optimizer(model), (self.held_out(model), copy.deepcopy(model))
        for epoch in range(epochs):
            self.learn(model, optimizer, self.task.steps, begin=epoch * self.task.steps)
            best = max(best, (self.held_out(model), copy.deepcopy(model)), key=itemgetter(0))
        return best[1]

    def tighten(self, model: nn.Module, fraction: float = 0.25) -> tuple[nn.Module, dict[str, Any]]:
        """The rule of `Shrink` with a budget in place of cuts: ν makes the network smaller, and nothing is refitted."""
        best, optimizer = self.held_out(model), self.optimizer(model, width_lr=FAST)
        kept, waited, epochs, score = copy.deepcopy(model), 0, 0, best
        while epochs < self.task.most:
            goal = round((1 - fraction) * units_of(kept))
            budget = awn.Budget(max_units=max(goal, len(awn.widths(model))), strength=1.0)
            self.learn(model, optimizer, self.task.steps, budget=budget, begin=epochs * self.task.steps)
            epochs, waited, score = epochs + 1, waited + 1, self.held_out(model)
            if score >= best - self.task.max_drop and units_of(model) <= goal:
                kept, waited = copy.deepcopy(model), 0
            elif waited >= 5:
                model, waited, fraction = copy.deepcopy(kept), 0, fraction / 2
                optimizer = self.optimizer(model, width_lr=FAST)
                if fraction * units_of(kept) < len(awn.widths(kept)):
                    break
        return kept, {"epochs": epochs, "best": best, "kept": self.held_out(kept)}

    def row(self, method: str, model: nn.Module, seconds: float) -> dict[str, Any]:
        return {
            "method": method,
            "units": units_of(model),
            "score": self.task.score(model.eval(), self.test),
            "parameters": awn.advanced.count_parameters(model),
            "seconds": round(seconds, 1),
        }


def units_of(model: nn.Module) -> int:
    return sum(awn.widths(model).values())


def in_rounds(before: int, layers: int, keep: float, steps: int, rounds: int) -> list[tuple[int, int, int]]:
    """For each round: the units to cut to, the steps before it, and its own. The last has half of the steps or more."""
    part = steps // (2 * rounds) if rounds > 1 else 0
    goals = [max(layers, round(before * keep ** ((number + 1) / rounds))) for number in range(rounds)]
    return [
        (goal, number * part, steps - (rounds - 1) * part if number == rounds - 1 else part)
        for number, goal in enumerate(goals)
    ]


def by_prune(trainer: Trainer, model: nn.Module, keep: float, steps: int, rounds: int = 1) -> nn.Module:
    """Remove the units that the others make up for best, repair the rest, and train on with the same optimizer."""
    optimizer = trainer.optimizer(model)
    for goal, begin, own in in_rounds(units_of(model), len(awn.widths(model)), keep, steps, rounds):
        pin_(model, fewest=1)
        prune_(model, trainer.inputs, optimizer, remove=units_of(model) - goal)
        pin_(model)
        trainer.learn(model, optimizer, own, begin=begin)
    return model


def by_prior(trainer: Trainer, model: nn.Module, keep: float, steps: int) -> nn.Module:
    """Pull ν to the value of the wanted width by a prior that tightens; what is too much in the end is cut."""
    widths = [group.width for group in awn.advanced.find_groups(model)]
    goal = max(len(widths), round(units_of(model) * keep))
    mean = widths[0].family.value_inside(max(1, goal // len(widths)), widths[0].quantile)
    prior = awn.Prior(width_mean=mean, width_scale=awn.Anneal(1.0, 1e-4, 0, max(1, steps // 2), shape="geometric"))
    trainer.learn(model, trainer.optimizer(model, width_lr=FAST), steps, prior=prior)
    return model if units_of(model) <= goal else awn.truncate(model, units=goal, scope="global")


def by_magnitude(trainer: Trainer, model: nn.Module, keep: float, steps: int, rounds: int = 1) -> nn.Module:
    """Remove the units of the smallest norms, the same fraction of every layer, and train on."""
    before = units_of(model)
    for goal, begin, own in in_rounds(before, len(awn.widths(model)), keep, steps, rounds):
        pin_(model, fewest=1)
        share, removed = goal / units_of(model), {}
        for group in awn.advanced.find_groups(model):
            units = group.width.units
            removed[group.name] = norms(group)[:units].argsort()[: units - max(1, round(share * units))]
        model = awn.advanced.remove_units(model, removed)
        pin_(model)
        trainer.learn(model, trainer.optimizer(model), own, begin=begin)
    return model


@torch.no_grad()
def norms(group: WidthGroup) -> Tensor:
    """The norm of the weights that make a unit times that of those that read it, with the importance."""

    def squares(role: str) -> Tensor:
        axes = [axis for axis in group.axes if axis.role == role and axis.tensor.dim() > 1]
        weights = [getattr(axis.module, axis.name).movedim(axis.dim, 0).flatten(1) for axis in axes]
        return torch.stack([weight.square().sum(1) for weight in weights]).sum(0)

    return (squares("producer") * squares("consumer")).sqrt()


def pin_(model: nn.Module, fewest: int | None = None) -> None:
    """Keep the layers from growing, and from shrinking below a number of units, by default their present one."""
    for group in awn.advanced.find_groups(model):
        group.width.max_units = group.width.units
        group.width.min_units = fewest or group.width.units


METHODS: dict[str, Callable[[Trainer, nn.Module, float, int], nn.Module]] = {
    "prune": by_prune,
    "prune in rounds": partial(by_prune, rounds=ROUNDS),
    "prior": by_prior,
    "magnitude": by_magnitude,
    "magnitude in rounds": partial(by_magnitude, rounds=ROUNDS),
}


def show(rows: list[dict[str, Any]]) -> None:
    """Means over the seeds, with the standard deviation of the score."""
    print("| network | method | units before | units after | score before | uncut, trained on | score after | epochs |")
    print("|---|---|---|---|---|---|---|---|")
    for task in dict.fromkeys(row["task"] for row in rows):
        for method in ("shrink", "budget"):
            found = [row for row in rows if (row["task"], row["method"]) == (task, method)]
            before, uncut = (
                [row for row in rows if (row["task"], row["method"]) == (task, other)]
                for other in ("trained", "trained on")
            )
            if found:
                cells = [f"{mean(one, 'units'):.0f}" for one in (before, found)]
                cells += [f"{mean(one, 'score'):.4f}" for one in (before, uncut, found)]
                print("|", " | ".join([task, method, *cells, f"{mean(found, 'epochs'):.0f}"]), "|")
    print()
    print("| network | kept |", " | ".join(METHODS), "|")
    print("|---|---|" + "---|" * len(METHODS))
    for task in dict.fromkeys(row["task"] for row in rows):
        for keep in KEEPS:
            cells = []
            for method in METHODS:
                found = [row for row in rows if (row["task"], row["method"], row.get("keep")) == (task, method, keep)]
                spread = statistics.stdev(row["score"] for row in found) if len(found) > 1 else 0.0
                cells.append(f"{mean(found, 'score'):.4f} ± {spread:.4f} ({mean(found, 'units'):.0f})")
            print("|", " | ".join([task, f"{keep:.0%}", *cells]), "|")


def mean(rows: list[dict[str, Any]], column: str) -> float:
    return float(statistics.mean(row[column] for row in rows))


if __name__ == "__main__":
    main()
