"""Importance families on SpiralHard, averaged over configurations."""

from __future__ import annotations

from awn.core.families import Exponential, PowerLaw, Sigmoid
from awn.core.importance import Importance
from awn_paper.experiments.table1 import ACTIVATIONS, LEARNED, PATIENCE
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training
from awn_paper.show import Results, Shown, Table, mean_std, score, widths

PAPER = {
    "Exponential": ("80.27 (19.9)", "100.00", "954.4 (1083.9)"),
    "PowerLaw": ("81.82 (16.6)", "100.00", "2952.4 (3371.6)"),
    "Sigmoid": ("76.85 (18.3)", "100.00", "426.8 (268.4)"),
}
FAMILIES: dict[str, tuple[Importance, ...]] = {
    "Exponential": tuple(Exponential(rate=rate, scale="mass") for rate in (0.01, 0.02, 0.05)),
    "PowerLaw": tuple(
        PowerLaw(exponent=start, saturation=flat, scale="mass") for start in (2.0, 3.0) for flat in (0.0, 2.0)
    ),
    "Sigmoid": tuple(Sigmoid(midpoint=start, scale="mass") for start in (128.0, 256.0)),
}
_PAPER = Settings("SpiralHard", MLP(), LEARNED, Training(5000)).change(max_units=5000)
_LONG = _PAPER.change(layers=2, max_units=1000, patience=PATIENCE)
_SMALL = _PAPER.change(epochs=150, max_units=2000)


def show(results: Results) -> list[Shown]:
    """Ours beside the paper's."""
    head = ("family", "mean accuracy", "paper", "best", "paper", "mean total width", "paper", "runs")
    rows = []
    for family, (mean, best, width) in PAPER.items():
        runs = results.selection("SpiralHard", family)
        found = [score(run, "validation") for run in runs]
        top = mean_std([max(found)], 2) if found else mean_std([])
        rows.append((family, mean_std(found, 2), mean, top, best, widths(runs), width, str(len(runs))))
    return [Table(head, tuple(rows))]


IMPORTANCE = Experiment(
    name="importance",
    title="Importance families",
    says="SpiralHard. Validation accuracy and total width, as the mean (standard deviation) over all runs of a family.",
    paper=Protocol(
        tuple(
            Case(
                name,
                _PAPER.vary(
                    layers=(1, 2, 4), activation=ACTIVATIONS, weight_scale=(1.0, 10.0, 100.0), importance=families
                ),
            )
            for name, families in FAMILIES.items()
        ),
        seeds=0,
        says="Three depths, three activations, σ_θ of 1, 10 and 100, and several starts of each family, which the "
        "paper does not all name. Layers of at most 5,000 units.",
    ),
    small=Protocol(
        tuple(
            Case(name, _SMALL.vary(layers=(2, 4), activation=("leaky_relu", "relu6"), importance=families[:2]))
            for name, families in FAMILIES.items()
        ),
        seeds=0,
        says="Two depths, two activations, σ_θ = 10 and two starts of each family, 150 epochs. Layers of at most 2,000 "
        "units.",
    ),
    long=Protocol(
        tuple(
            Case(name, _LONG.vary(activation=("leaky_relu", "relu6"), importance=families[:2]), repeats=5)
            for name, families in FAMILIES.items()
        ),
        seeds=0,
        says="Two layers of at most 1,000 units, two activations, σ_θ = 10 and two starts of each family, with five "
        f"runs each. Up to the paper's 5,000 epochs; training stops after {PATIENCE} epochs without a better "
        "validation score.",
    ),
)
