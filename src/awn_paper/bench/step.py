"""Benchmark 1, a training step: learned widths over fixed ones, with the prior and the look at the widths in it."""

from __future__ import annotations

import os
import statistics
from typing import Any

import torch

from awn.basics.timing import Work, in_turns, middle_half, ratio, threads
from awn.training.denormals import flush_denormals
from awn_paper.bench.pairs import (
    BY_HAND_PAIRS,
    PAIRS,
    QUICK_BY_HAND_PAIRS,
    QUICK_PAIRS,
    adam,
    adaptive_mlp,
    adaptive_step,
    changing_steps,
    fit_steps,
    fixed_step,
    fixed_steps,
    mlp,
    product_steps,
    spiral_training,
)

TITLE = "A training step, adaptive / fixed"
THREADS = "as the rows say"


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """A row for each network and number of threads.

    `gate`: the importance and its gradient alone, without prior and without a look at the widths. `changing`: every
    width changes at every step, inside its capacity. `fixed again`: another network of fixed widths, which would be 1
    without noise. `middle half`: where the ratios of half of the turns lie.
    """
    rows = []
    for number in [1] if quick else sorted({1, _cores()}):
        with threads(number):
            for pair in QUICK_PAIRS if quick else PAIRS:
                x, y = pair.batch()
                fixed, again = pair.fixed(), pair.fixed()
                gated, steady, changing = pair.adaptive(), pair.adaptive(), pair.adaptive()
                works = {
                    "fixed": fixed_step(fixed, adam(fixed), x, y),
                    "fixed again": fixed_step(again, adam(again), x, y),
                    "gate": fixed_step(gated, adam(gated), x, y),
                    "steady": adaptive_step(steady, adam(steady), x, y),
                    "changing": adaptive_step(changing, adam(changing), x, y, changing=True),
                }
                seconds = in_turns(works, repetitions=2 if quick else 51, burst=0.001 if quick else 0.03)
                plain = seconds["fixed"]
                row = {"network": pair.name, "threads": number, "fixed, ms": round(1e3 * statistics.median(plain), 3)}
                row["fixed again"] = ratio(seconds["fixed again"], plain)
                for name in ("gate", "steady", "changing"):
                    row[name] = ratio(seconds[name], plain)
                    row[f"{name}, middle half"] = middle_half(seconds[name], plain)
                rows.append(row)
    return [*rows, *by_hand_rows(quick=quick), *training_rows(quick=quick)]


def by_hand_rows(*, quick: bool = False) -> list[dict[str, Any]]:
    """A row for each network that `fit` trains by hand, on one thread.

    `by hand`: a step through `fit`, its start and end included. `by autograd`: the same with `by_hand=False`.
    `by hand, changing`: every width changes at every step, inside its capacity. `products`: the matrix products of a
    step by hand alone, the least that a step can take.
    """
    rows = []
    for sizes, batch in QUICK_BY_HAND_PAIRS if quick else BY_HAND_PAIRS:
        with threads(1), flush_denormals():
            torch.manual_seed(0)
            x, y = torch.randn(batch, sizes[0]), torch.randint(sizes[-1], (batch,))
            fixed, again = mlp(sizes), mlp(sizes)
            hand, autograd, changing, bare = (adaptive_mlp(sizes) for _ in range(4))
            steps = 3 if quick else _steps_for(fixed_step(fixed, adam(fixed), x, y))
            works = {
                "fixed": fixed_steps(fixed, adam(fixed), x, y, steps=steps),
                "fixed again": fixed_steps(again, adam(again), x, y, steps=steps),
                "by hand": fit_steps(hand, x, y, steps=steps, by_hand=True),
                "by autograd": fit_steps(autograd, x, y, steps=steps, by_hand=False),
                "by hand, changing": changing_steps(changing, x, y, steps=steps),
                "products": product_steps(bare, x, y, steps=steps),
            }
            seconds = in_turns(works, repetitions=2 if quick else 11, burst=0.001)
        plain = seconds["fixed"]
        name = f"{'→'.join(map(str, sizes))}, batch {batch}, through fit"
        row = {"network": name, "threads": 1, "fixed, ms": round(1e3 * statistics.median(plain) / steps, 3)}
        row["fixed again"] = ratio(seconds["fixed again"], plain)
        for kind in ("products", "by hand", "by autograd", "by hand, changing"):
            row[kind] = ratio(seconds[kind], plain)
            row[f"{kind}, middle half"] = middle_half(seconds[kind], plain)
        rows.append(row)
    return rows


def training_rows(*, quick: bool = False) -> list[dict[str, Any]]:
    """SpiralHard with four hidden layers, on one thread: epochs through `fit`, with their evaluation.

    Both paths start from the same model in every turn. In the first epoch layers are wide and change at every step.
    """
    rows = []
    for epochs, repetitions in ((1, 2),) if quick else ((1, 15), (60, 5)):
        with threads(1):
            works = {
                name: spiral_training(epochs=epochs, by_hand=name == "by hand", quick=quick)
                for name in ("by hand", "by autograd")
            }
            seconds = in_turns(works, repetitions=repetitions, burst=0.001)
        hand, autograd = seconds["by hand"], seconds["by autograd"]
        which = "the first epoch" if epochs == 1 else f"the first {epochs} epochs"
        row = {
            "network": f"SpiralHard, 4 hidden layers, {which}, with evaluation",
            "threads": 1,
            "autograd, ms": round(1e3 * statistics.median(autograd) / epochs, 1),
            "by hand / by autograd": ratio(hand, autograd),
            "by hand / by autograd, middle half": middle_half(hand, autograd),
        }
        rows.append(row)
    return rows


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _steps_for(step: Work) -> int:
    """How many steps make an epoch that is long beside its start, and short beside the noise of the machine."""
    seconds = statistics.median(in_turns({"step": step}, repetitions=3, burst=0.01)["step"])
    return min(500, max(40, round(0.2 / seconds)))
