"""How the cost of learned widths grows: with width, layers, samples a step, and processes.

All times are ratios of medians, measured in turns in one run: an adaptive network over a plain one of the same width,
with the same optimizer; and the parts of a step of several processes over that step. Memory is the peak of a step, of
all tensors that are alive, and that of a change beyond the capacity, in a process.

Run: python benchmarks/scale.py            (about three minutes on two cores)
Writes results/scale.json; docs/scale.md reads it, and `--show` prints its tables.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import awn
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.parallel.collectives import check_in_step
from awn.parallel.ddp import rewrap_
from awn_paper.bench.memory import peak_of

FEATURES = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("results/scale.json"))
    parser.add_argument("--show", action="store_true", help="print the tables of a finished file")
    options = parser.parse_args()
    if options.show:
        show(json.loads(options.out.read_text()))
        return
    torch.set_num_threads(1)
    base: dict[str, Any] = {"width": 1024, "layers": 1, "samples": 256}
    swept: dict[str, Sequence[int]] = {
        "width": (64, 256, 1024, 4096),
        "layers": (1, 2, 4, 8),
        "samples": (16, 64, 256, 1024),
    }
    steps = []
    for varied, values in swept.items():
        for value in values:
            case = {**base, **({"width": 256} if varied == "layers" else {}), varied: value}
            steps.append({"varied": varied, **case, **step_cost(**case, repeats=options.repeats)})
            print(steps[-1], flush=True)
    ranks = []
    for number in (2, 3):
        for width in (256, 1024, 4096):
            ranks.append({"ranks": number, "width": width, **in_ranks(number, width, options.repeats)})
            print(ranks[-1], flush=True)
    content = {"from": provenance(seed=0, repeats=options.repeats), "steps": steps, "ranks": ranks}
    write_files({options.out: json_file(content)})


def make(width: int, layers: int) -> tuple[awn.AdaptiveMLP, nn.Module]:
    """An adaptive network, and a plain one of its width."""
    torch.manual_seed(0)
    importance = awn.Exponential.for_units(width, scale="unit")
    adaptive = awn.AdaptiveMLP(FEATURES, FEATURES, hidden_layers=layers, importance=importance)
    sizes = [FEATURES, *[width] * layers]
    hidden = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return adaptive, nn.Sequential(*hidden, nn.Linear(sizes[-1], FEATURES))


def step_cost(width: int, layers: int, samples: int, repeats: int) -> dict[str, float]:
    """A step with the prior and the check for a resize, over a step of the plain network."""
    adaptive, plain = make(width, layers)
    optimizers = still(adaptive), torch.optim.Adam(plain.parameters(), 1e-4, fused=True)
    steps = adaptive_step(adaptive, optimizers[0], samples), plain_step(plain, optimizers[1], samples)
    times = in_turns(steps, repeats)
    peaks = []
    for model, optimizer, step in zip((adaptive, plain), optimizers, steps, strict=True):
        optimizer.zero_grad()
        peaks.append(peak_of(step, model, optimizer))
    change = change_peak(adaptive, optimizers[0]) / peaks[1]
    return {"time": times[0] / times[1], "memory": peaks[0] / peaks[1], "change": change}


def change_peak(model: awn.AdaptiveMLP, optimizer: torch.optim.Optimizer) -> int:
    """The peak of all layers growing beyond their capacity at once."""
    beyond = {group.name: group.width.capacity + 1 for group in awn.advanced.find_groups(model)}
    optimizer.zero_grad()
    return peak_of(lambda: awn.advanced.set_units_(model, beyond, optimizer), model, optimizer)


def still(model: nn.Module) -> torch.optim.Optimizer:
    """Adam under which ν stands still, so that what is timed does not change while it is timed."""
    return torch.optim.Adam(awn.param_groups(model, 1e-4, width_lr=0.0), fused=True)


def adaptive_step(model: nn.Module, optimizer: torch.optim.Optimizer, samples: int) -> Callable[[], None]:
    x = torch.randn(samples, FEATURES)

    def step() -> None:
        loss = awn.objective(F.mse_loss(model(x), x), model, n_samples=10_000)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        awn.resize_(model, optimizer)

    return step


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer, samples: int) -> Callable[[], None]:
    x = torch.randn(samples, FEATURES)

    def step() -> None:
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def in_turns(calls: Sequence[Callable[[], None]], repeats: int) -> list[float]:
    """The median time of each, called in turns so that all meet the same machine."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(repeats + 3):
        for call, taken in zip(calls, times, strict=True):
            started = time.perf_counter()
            call()
            if number >= 3:  # the first ones allocate
                taken.append(time.perf_counter() - started)
    return [statistics.median(taken) for taken in times]


def in_ranks(number: int, width: int, repeats: int) -> dict[str, float]:
    """What rank 0 of several processes measures."""
    context = multiprocessing.get_context("spawn")
    answers: Any = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        args = (f"file://{folder}/store", number, width, repeats, answers)
        processes = [context.Process(target=rank_cost, args=(rank, *args)) for rank in range(number)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    measured: dict[str, float] = answers.get()
    return measured


def rank_cost(rank: int, store: str, number: int, width: int, repeats: int, answers: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=number)
    bare, other = make(width, layers=1)
    model, plain = DistributedDataParallel(bare), DistributedDataParallel(other)
    optimizer = still(bare)
    learned = awn.advanced.find_groups(bare)[0].width

    def there_and_back(units: int, *, capacities: bool) -> Callable[[], None]:
        def call() -> None:
            for wanted in (units, width):
                room = {"hidden.0": learned.capacity_for(wanted)} if capacities else None
                awn.advanced.set_units_(model, {"hidden.0": wanted}, optimizer, capacities=room)

        return call

    names = ("plain step", "step", "agreement", "a unit less and more", "a block more and less", "rewrap")
    calls = (
        plain_step(plain, torch.optim.Adam(plain.parameters(), 1e-4, fused=True), samples=256),
        adaptive_step(model, optimizer, samples=256),
        lambda: check_in_step(model, {"hidden.0": (width, width, width)}),
        there_and_back(width - 1, capacities=False),
        there_and_back(width + 1, capacities=True),
        lambda: rewrap_(model),
    )
    # Steps are timed by themselves: with the changes between them every one would be the first after a change.
    steps = in_turns(calls[:2], repeats)
    times = dict(zip(names, [*steps, *in_turns(calls[2:], repeats)], strict=True))
    if rank == 0:
        answers.put({name: took / times["plain step"] for name, took in times.items() if name != "plain step"})
    dist.barrier()
    dist.destroy_process_group()


def show(content: dict[str, Any]) -> None:
    """Markdown tables."""
    print("| hidden layers | units each | samples a step | time, adaptive / plain | memory | memory of a change |")
    print("|---|---|---|---|---|---|")
    for row in content["steps"]:
        found = " | ".join(f"{row[name]:.2f}" for name in ("time", "memory", "change"))
        print(f"| {row['layers']} | {row['width']} | {row['samples']} | {found} |")
    print()
    names = [name for name in content["ranks"][0] if name not in ("ranks", "width")]
    print("| ranks | units | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 2) + "|")
    for row in content["ranks"]:
        print(f"| {row['ranks']} | {row['width']} | " + " | ".join(f"{row[name]:.2f}" for name in names) + " |")


if __name__ == "__main__":
    main()
