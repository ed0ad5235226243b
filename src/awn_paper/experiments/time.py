"""Time: a run and a whole model selection, adaptive over fixed."""

from __future__ import annotations

import statistics
from dataclasses import replace

from awn_paper.experiments.table1 import TABLE1, rows_for
from awn_paper.protocol import Experiment
from awn_paper.show import NOT_RUN, Results, Shown, Table

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
    for name, (single, whole) in rows_for(PAPER, results).items():
        fixed, awn = (_Spent(results, name, label) for label in ("Fixed", "AWN"))
        if not fixed.one or not awn.one:
            rows.append((name, NOT_RUN, NOT_RUN, "–", f"{single:g}", "–", f"{whole:g}"))
            continue
        one, selecting = awn.one / fixed.one, awn.selecting / fixed.selecting
        selected = f"{selecting:.2f}" if fixed.selects or awn.selects else "–"
        rows.append(
            (name, f"{fixed.one:.0f}", f"{awn.one:.0f}", f"{one:.2f}", f"{single:g}", selected, f"{whole:g}"),
        )
    return [Table(head, tuple(rows))]


class _Spent:
    """The seconds of a configuration of the model selection, and of all of it.

    Where there is but one configuration, its final runs stand for it, as in the paper.
    """

    def __init__(self, results: Results, dataset: str, label: str) -> None:
        selection = results.selection(dataset, label)
        runs = selection or results.final(dataset, label)
        self.selects = bool(selection)
        self.one = statistics.fmean(run["seconds"] for run in runs) if runs else 0.0
        self.selecting = sum(run["seconds"] for run in selection) if selection else self.one


TIME = Experiment(
    name="time",
    title="Time, adaptive over fixed",
    says="From the runs of Table 1: the mean time of one configuration in model selection, and the time of the whole "
    "selection.",
    paper=replace(TABLE1.paper, says="The runs of Table 1's paper profile.", details={}),
    small=replace(TABLE1.small, says="The runs of Table 1's small profile.", details={}),
    long=replace(TABLE1.protocol("long"), says="The runs of Table 1's long profile.", details={}),
    folder="table1",
)
