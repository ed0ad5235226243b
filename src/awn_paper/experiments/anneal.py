"""Compression while training: a prior on the width that tightens."""

from __future__ import annotations

from awn.loss.prior import Anneal
from awn_paper.experiments.table1 import LEARNED
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training
from awn_paper.show import Plot, Results, Shown, Table, over_epochs, scores, width_and_score, width_curve, widths

_FREE = Settings("SpiralHard", MLP(layers=4, activation="relu6"), LEARNED, Training(3000)).change(weight_scale=None)


# The paper's deviation in the end, and one that weighs more than the data of this size.
ENDS = {"annealed": 0.1, "tighter": 0.005}


def _cases(free: Settings, begin: int, finish: int) -> tuple[Case, ...]:
    priors = {label: Anneal(1.0, end, begin, finish) for label, end in ENDS.items()}
    return (
        *(Case(label, (free.change(width_mean=0.05, width_scale=prior),)) for label, prior in priors.items()),
        Case("free", (free,)),
    )


def show(results: Results) -> list[Shown]:
    """The width before the prior and after it, and what became of the accuracy."""
    rows = []
    names = {"free": "none", **{label: f"σ from 1 to {end:g}" for label, end in ENDS.items()}}
    groups = {name: results.final("SpiralHard", label) for label, name in names.items()}
    for label, runs in groups.items():
        peak = f"{sum(max(width_curve(run)) for run in runs) / len(runs):.0f}" if runs else "–"
        rows.append((label, peak, widths(runs), scores(runs), str(len(runs))))
    shown: list[Shown] = [Table(("prior on λ", "largest width", "width in the end", "accuracy", "runs"), tuple(rows))]
    shown += width_and_score("anneal", "a prior on the width that tightens", groups)
    terms = tuple(
        over_epochs(name, runs, lambda run: [-value for value in run["history"]["width"]])
        for name, runs in groups.items()
        if runs and name != names["free"]
    )
    if terms:
        shown.append(Plot("anneal-term", "The prior's term of the objective", "epoch", "log p(ν) / N", terms))
    return shown


ANNEAL = Experiment(
    name="anneal",
    title="Compression while training",
    says="SpiralHard, ReLU6, no prior on the weights; from some epoch on a prior N(0.05, σ) on λ, with σ annealed "
    "from 1 to 0.1. The paper: from about 800 units to about 300, with no loss of accuracy. Ours also without the "
    "prior, and with a tighter one.",
    paper=Protocol(_cases(_FREE, 1000, 2500), seeds=10, says="Annealed from epoch 1000 to 2500 of 3000; ten runs."),
    small=Protocol(
        _cases(_FREE.change(epochs=600), 200, 500),
        seeds=2,
        says="Annealed from epoch 200 to 500 of 600, a fifth of the paper's; two runs.",
    ),
)
