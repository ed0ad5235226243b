"""Truncation: a trained network cut at its tail, against random units and units of small activations."""

from __future__ import annotations

from awn_paper.experiments.table1 import LEARNED
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training
from awn_paper.show import Plot, Results, Series, Shown, Table, mean_std, scores, widths

RULES = {"importance": "the least important", "random": "random ones", "magnitude": "of the smallest activations"}
CUT = Settings(
    "Spiral",
    MLP(layers=1, activation="relu6"),
    LEARNED,
    Training(1000),
    measure=("truncation", "activations", "removal"),
)


def show(results: Results) -> list[Shown]:
    """The accuracy by the share of units kept, and the activations of the units."""
    runs = results.final("Spiral", "AWN")
    if not runs:
        return [Table(("removed", "accuracy"), (("30 % of the units", mean_std([])),))]
    rows = [("none", scores(runs))]
    curves = []
    for rule, words in RULES.items():
        kept = runs[0]["measured"]["truncation"]["keep"]
        by_run = [[100 * value for value in run["measured"]["truncation"][rule]] for run in runs]
        for share in (0.7, 0.5):
            rows.append(
                (f"{1 - share:.0%} of the units, {words}", mean_std([run[kept.index(share)] for run in by_run]))
            )
        means = tuple(sum(values) / len(runs) for values in zip(*by_run, strict=True))
        lows, highs = (tuple(map(end, zip(*by_run, strict=True))) for end in (min, max))
        removed = tuple(100 * (1 - keep) for keep in kept)
        curves.append(Series(words, removed, means, lows if len(runs) > 1 else None, highs if len(runs) > 1 else None))
    bands = next(iter(runs[0]["measured"]["activations"].values()))
    units = tuple(float(unit) for unit in range(len(bands["mean"])))
    band = Series("mean and range", units, tuple(bands["mean"]), tuple(bands["low"]), tuple(bands["high"]))
    return [
        Table(("removed", f"accuracy of {widths(runs)} units, {len(runs)} runs"), tuple(rows)),
        Plot("truncate", "Accuracy after removing units", "units removed, %", "test accuracy, %", tuple(curves)),
        Plot("truncate-activations", "Activations by unit, scaled by importance", "unit", "activation", (band,)),
    ]


TRUNCATE = Experiment(
    name="truncate",
    title="Truncation after training",
    says="Spiral, one hidden layer of ReLU6. The paper: of 83 units 30 % can go at no loss, then the accuracy falls "
    "smoothly; random units, or those of small activations, do worse.",
    paper=Protocol((Case("AWN", (CUT,)),), seeds=10, says="The paper's 1000 epochs; the paper shows one network."),
    small=Protocol((Case("AWN", (CUT,)),), seeds=5, says="The paper's 1000 epochs; the paper shows one network."),
)
