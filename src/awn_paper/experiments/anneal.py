"""Compression while training: a prior on the width that tightens."""

from __future__ import annotations

from awn.core.importance import Exponential
from awn.loss.prior import Anneal
from awn_paper.experiments.table1 import LEARNED
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training
from awn_paper.show import Plot, Results, Shown, Table, over_epochs, scores, width_and_score, width_curve, widths

_FREE = Settings("SpiralHard", MLP(layers=4, activation="relu6"), LEARNED, Training(3000)).change(weight_scale=None)


#: The final deviations of the small profile: the paper's, and one that weighs more than the data of this size.
ENDS = {"annealed": 0.1, "tighter": 0.005}
RATES = (0.01, 0.0037)  # at the second there are about 800 units when the prior sets in, as in the paper
SAMPLES = 7200  # of SpiralHard's training part
#: The paper's prior: its term divided by the number of samples as all of the objective is, and not divided.
PRIORS = {
    "no prior": None,
    "divided by N": Anneal(1.0, 0.1, 1000, 2500),
    "not divided": Anneal(1 / SAMPLES**0.5, 0.1 / SAMPLES**0.5, 1000, 2500),
}
#: Compression by the prior that is not divided: its means and the deviations that it ends with.
MEANS = (0.05, 0.1, 0.2)
DEVIATIONS = (1.0, 0.3, 0.1)


def label(prior: str, rate: float) -> str:
    """The name of a case of the paper's protocol."""
    return f"{prior}, rate {rate:g}"


def compressed(mean: float, end: float) -> str:
    """The name of a case of the compression by the prior."""
    return f"mean {mean:g}, deviation {end:g}"


def _paper_cases() -> tuple[Case, ...]:
    cases = []
    for rate in RATES:
        free = _FREE.change(importance=Exponential(rate=rate, scale="mass"))
        for name, prior in PRIORS.items():
            cases.append(Case(label(name, rate), (_with(free, 0.05, prior) if prior else free,)))
    for mean in MEANS:
        for end in DEVIATIONS:
            prior = Anneal(1 / SAMPLES**0.5, end / SAMPLES**0.5, 1000, 2500)
            cases.append(Case(compressed(mean, end), (_with(_FREE, mean, prior),), seeds=2))
    return tuple(cases)


def _with(free: Settings, mean: float, prior: Anneal) -> Settings:
    return free.change(width_mean=mean, width_scale=prior)


def _small_cases(free: Settings, begin: int, finish: int) -> tuple[Case, ...]:
    priors = {label: Anneal(1.0, end, begin, finish) for label, end in ENDS.items()}
    return (*(Case(name, (_with(free, 0.05, prior),)) for name, prior in priors.items()), Case("free", (free,)))


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
    paper=Protocol(
        _paper_cases(),
        seeds=5,
        says="Annealed from epoch 1000 to 2500 of 3000; five runs, two for other means and deviations.",
    ),
    small=Protocol(
        _small_cases(_FREE.change(epochs=600), 200, 500),
        seeds=2,
        says="Annealed from epoch 200 to 500 of 600, a fifth of the paper's; two runs.",
    ),
)
