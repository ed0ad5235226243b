"""Compression while training: a prior on the width that tightens."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from awn.core.families import Exponential
from awn.loss.prior import Anneal
from awn_paper.experiments.table1 import LEARNED
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.run import Record, total_width
from awn_paper.settings import Settings, Training
from awn_paper.show import (
    Plot,
    Results,
    Series,
    Shown,
    Table,
    at_end,
    mean_std,
    over_epochs,
    score,
    scores,
    width_after,
    width_and_score,
    widths,
)

_FREE = Settings("SpiralHard", MLP(layers=4, activation="relu6"), LEARNED, Training(3000)).change(weight_scale=None)

RATES = (0.01, 0.0037)  # at the second there are about 800 units when the prior sets in, as in the paper
MARKS = (1000, 1500, 2000, 2500)  # epochs
SAMPLES = 7200  # of SpiralHard's training part
#: The paper's prior: its term divided by the number of samples as all of the objective is, and not divided.
PRIORS = {
    "no prior": None,
    "divided by N": Anneal(1.0, 0.1, 1000, 2500),
    "not divided": Anneal(1 / SAMPLES**0.5, 0.1 / SAMPLES**0.5, 1000, 2500),
}
#: Compression by the prior that is not divided: its means and the standard deviations that it ends with.
MEANS = (0.05, 0.1, 0.2)
DEVIATIONS = (1.0, 0.3, 0.1)


def label(prior: str, rate: float) -> str:
    """The name of a case of the paper's protocol."""
    return f"{prior}, rate {rate:g}"


def compressed(mean: float, end: float) -> str:
    """The name of a case of the compression by the prior."""
    return f"mean {mean:g}, σ {end:g}"


def _paper_cases() -> tuple[Case, ...]:
    cases = []
    for rate in RATES:
        free = _FREE.change(importance=Exponential(rate=rate, scale="mass"))
        for name, prior in PRIORS.items():
            cases.append(Case(label(name, rate), (_with(free, 0.05, prior) if prior else free,)))
    for mean in MEANS:
        for end in DEVIATIONS:
            prior = Anneal(1 / SAMPLES**0.5, end / SAMPLES**0.5, 1000, 2500)
            cases.append(Case(compressed(mean, end), (_with(_FREE, mean, prior),)))
    return tuple(cases)


def _with(free: Settings, mean: float, prior: Anneal) -> Settings:
    return free.change(width_mean=mean, width_scale=prior)


def show(results: Results) -> list[Shown]:
    """The width before the prior and after it, what became of the accuracy, and other means and standard deviations."""
    labels = [label(name, rate) for rate in RATES for name in PRIORS]
    named = {name: results.final("SpiralHard", name) for name in labels}
    rows = []
    for name, runs in named.items():
        ends = [at_end(run) for run in runs]
        marks = [_width_at(mark, runs) for mark in MARKS]
        last = mean_std([float(total_width(end)) for end in ends], 0)
        rows.append((name, str(len(runs)), *marks, last, scores(ends), scores(runs)))
    head = ("total width after", "runs", *(f"{mark:,}" for mark in MARKS), "the last epoch", "accuracy there", "kept")
    shown: list[Shown] = [Table(head, tuple(rows)), _compression(results)]
    shown += width_and_score("anneal", "a prior on the width that tightens", named)
    terms = tuple(
        over_epochs(name, runs, lambda run: [-value for value in run["history"]["width"]])
        for name, runs in named.items()
        if runs and not name.startswith("no prior")
    )
    if terms:
        shown.append(Plot("anneal-term", "The prior's term of the objective", "epoch", "log p(λ) / N", terms))
    return shown + _saved(results)


def _compression(results: Results) -> Table:
    free = [at_end(run) for run in results.final("SpiralHard", label("no prior", RATES[0]))]
    rows = [("no prior", str(len(free)), widths(free), "–", scores(free))]
    for mean in MEANS:
        for end in DEVIATIONS:
            runs = [at_end(run) for run in results.final("SpiralHard", compressed(mean, end))]
            saved = f"{100 * (1 - _units(runs) / _units(free)):.0f} %" if runs and free else "–"
            rows.append((compressed(mean, end), str(len(runs)), widths(runs), saved, scores(runs)))
    head = ("not divided, rate 0.01", "runs", "units, last epoch", "saved", "accuracy, last epoch")
    return Table(head, tuple(rows))


def _saved(results: Results) -> list[Shown]:
    """The accuracy by the units saved, for every mean of the prior."""
    free = [at_end(run) for run in results.final("SpiralHard", label("no prior", RATES[0]))]
    curves = []
    for mean in MEANS:
        cases = [[at_end(run) for run in results.final("SpiralHard", compressed(mean, end))] for end in DEVIATIONS]
        found = [runs for runs in cases if runs and free]
        if found:
            x = tuple(100 * (1 - _units(runs) / _units(free)) for runs in found)
            y = tuple(statistics.fmean(map(score, runs)) for runs in found)
            curves.append(Series(f"mean {mean:g}", x, y))
    if not curves:
        return []
    axes = ("units saved, %", "test accuracy, %")
    return [Plot("anneal-saved", "Accuracy by the units that a prior saves", *axes, tuple(curves))]


def _width_at(epoch: int, runs: Sequence[Record]) -> str:
    return mean_std([width_after(run, epoch) for run in runs if epoch < run["epochs"]], 0) if runs else "–"


def _units(runs: Sequence[Record]) -> float:
    return statistics.fmean(map(total_width, runs))


ANNEAL = Experiment(
    name="anneal",
    title="Compression while training",
    says="SpiralHard, four layers, ReLU6, no prior on the weights. During training, a prior N(0.05, σ) on λ sets in, "
    "whose σ is annealed from 1 to 0.1. The paper: from about 800 units to about 300, with no loss of accuracy. We "
    "compare three objectives from two starting rates of the exponential: without the prior; with its term divided by "
    "the number N of samples, as the paper's text scales the objective; and with the term not divided. Other means and "
    "standard deviations of the prior show how many units it saves.",
    paper=Protocol(
        _paper_cases(),
        seeds=5,
        says="Annealed from epoch 1,000 to 2,500 of 3,000; five runs.",
    ),
    small=Protocol(
        _paper_cases()[: len(PRIORS)],
        seeds=1,
        says="Annealed from epoch 1,000 to 2,500 of 3,000, from one start; one run each.",
    ),
)
