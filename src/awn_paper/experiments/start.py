"""Starting rates: whether the width ends the same wherever it starts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from awn.core.families import Exponential
from awn_paper.experiments.table1 import LEARNED
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training
from awn_paper.show import Results, Shown, Table, mean_std, scores, width_after, width_and_score, width_curve, widths

RATES = (0.005, 0.01, 0.02, 0.05)
MARKS = (1, 100, 500, 1000, 2000, 3000)  # epochs
_PAPER = Settings("SpiralHard", MLP(layers=2), LEARNED, Training(5000))


def _label(activation: str, rate: float) -> str:
    return f"{activation}, rate {rate:g}"


def _cases(base: Settings, seeds: dict[str, int]) -> tuple[Case, ...]:
    return tuple(
        Case(
            _label(activation, rate),
            (base.change(activation=activation, importance=Exponential(rate=rate, scale="mass")),),
            number,
        )
        for activation, number in seeds.items()
        for rate in RATES
    )


def variance_ratio(groups: Sequence[Sequence[float]]) -> float:
    """F of a one-way analysis of variance: the spread of the groups' means over that of single values in a group.

    >>> round(variance_ratio([(1, 2, 3), (2, 3, 4), (6, 7, 8)]), 6)
    21.0
    """
    values = [value for group in groups for value in group]
    middle = statistics.fmean(values)
    between = sum(len(group) * (statistics.fmean(group) - middle) ** 2 for group in groups) / (len(groups) - 1)
    within = sum((value - statistics.fmean(group)) ** 2 for group in groups for value in group)
    return between / (within / (len(values) - len(groups)))


def show(results: Results) -> list[Shown]:
    """The widths along the way and in the end, and a figure for each activation."""
    rows, shown = [], []
    for activation in ("relu6", "relu", "leaky_relu"):
        groups = {f"rate {rate:g}": results.final("SpiralHard", _label(activation, rate)) for rate in RATES}
        for name, runs in groups.items():
            on_the_way = [
                f"{statistics.fmean(width_after(run, epoch) for run in runs):.0f}" if runs else "–" for epoch in MARKS
            ]
            in_the_end = mean_std([width_curve(run)[-1] for run in runs])
            rows.append((f"{activation}, {name}", str(len(runs)), *on_the_way, in_the_end, widths(runs), scores(runs)))
        shown += width_and_score(f"start-{activation}", f"{activation}, by starting rate", groups)
    head = ("total width after", "runs", *(f"{mark:,}" for mark in MARKS), "the last epoch", "the kept one", "accuracy")
    return [Table(head, tuple(rows)), *shown]


START = Experiment(
    name="start",
    title="The same width from different starts",
    says="SpiralHard, two hidden layers, from different starting rates of the exponential (0.01 means 231 units a "
    "layer). The paper: the width ends "
    "the same with ReLU6, and slowly approaches the same with ReLU and LeakyReLU.",
    paper=Protocol(
        _cases(_PAPER, {"relu6": 10, "relu": 5, "leaky_relu": 5}),
        seeds=10,
        says="The paper's 5,000 epochs; ten runs with ReLU6, five with the others. The paper averages over its model "
        "selection.",
    ),
    small=Protocol(_cases(_PAPER, {"relu6": 2}), seeds=2, says="ReLU6, the paper's 5,000 epochs, two runs each."),
)
