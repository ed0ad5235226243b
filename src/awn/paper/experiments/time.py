"""Time: a run and a whole model selection, adaptive over fixed."""

from __future__ import annotations

import statistics

from awn.paper.experiments.table1 import TABLE1
from awn.paper.protocol import Experiment
from awn.paper.run import Record
from awn.paper.show import NOT_RUN, Results, Shown, Table

PAPER = {
    "DoubleMoon": (3.1, 0.62),
    "Spiral": (1.1, 0.24),
    "SpiralHard": (3.9, 0.78),
    "pol": (0.87, 0.17),
    "MiniBooNE": (0.38, 0.07),
    "credit card": (0.90, 0.14),
    "PMNIST": (2.4, 0.48),
    "MNIST": (1.6, 0.33),
    "CIFAR10": (2.0, 0.40),
    "CIFAR100": (1.2, 0.24),
    "Multi30k": (0.42, 0.09),
}


def show(results: Results) -> list[Shown]:
    """Seconds of a configuration, and the two ratios, ours beside the paper's."""
    head = ("data set", "Fixed, s", "AWN, s", "one run, AWN / Fixed", "paper", "model selection, AWN / Fixed", "paper")
    rows = []
    for name, (single, whole) in PAPER.items():
        fixed, awn = (_configurations(results, name, label) for label in ("Fixed", "AWN"))
        if not fixed or not awn:
            rows.append((name, NOT_RUN, NOT_RUN, "–", f"{single:g}", "–", f"{whole:g}"))
            continue
        means = [statistics.fmean(run["seconds"] for run in runs) for runs in (fixed, awn)]
        sums = [sum(run["seconds"] for run in runs) for runs in (fixed, awn)]
        rows.append(
            (
                name,
                f"{means[0]:.0f}",
                f"{means[1]:.0f}",
                f"{means[1] / means[0]:.2f}",
                f"{single:g}",
                f"{sums[1] / sums[0]:.2f}",
                f"{whole:g}",
            )
        )
    return [Table(head, tuple(rows))]


def _configurations(results: Results, dataset: str, label: str) -> list[Record]:
    """The runs of the model selection or, where there was none, the final ones, as the paper has it."""
    return results.selection(dataset, label) or results.final(dataset, label)[:1]


TIME = Experiment(
    name="time",
    title="Time, adaptive over fixed",
    says="From the runs of Table 1: the mean time of a configuration of the model selection, and of all of it.",
    paper=TABLE1.paper,
    small=TABLE1.small,
    folder="table1",
)
