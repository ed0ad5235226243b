"""Kaiming+ against Kaiming: the variance of activations by layer, and convergence on SpiralHard."""

from __future__ import annotations

from awn_paper.experiments.table1 import LEARNED
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training
from awn_paper.show import Plot, Results, Series, Shown, Table, mean_std, scores, width_and_score, widths

STARTS = ("kaiming+", "kaiming")
DEPTHS = (2, 4, 8)
_PAPER = Settings("SpiralHard", MLP(layers=4, activation="relu"), LEARNED, Training(1000), measure=("variance",))
_SMALL = _PAPER.change(epochs=150)


def _label(start: str, layers: int) -> str:
    return f"{start}, {layers} layers"


def _cases(base: Settings) -> tuple[Case, ...]:
    return tuple(
        Case(_label(start, layers), (base.change(start=start, layers=layers),)) for start in STARTS for layers in DEPTHS
    )


def show(results: Results) -> list[Shown]:
    """The variance by layer at the start, and how training went."""
    rows, curves = [], []
    for start in STARTS:
        for layers in DEPTHS:
            runs = results.final("SpiralHard", _label(start, layers))
            by_layer = [list(run["measured"]["variance"].values()) for run in runs]
            first, last = ([values[place] for values in by_layer] for place in (0, -1))
            variances = mean_std(first, 4), mean_std(last, 4)
            rows.append((_label(start, layers), *variances, scores(runs), widths(runs), str(len(runs))))
            if runs and layers == max(DEPTHS):
                means = tuple(sum(values) / len(runs) for values in zip(*by_layer, strict=True))
                curves.append(Series(start, tuple(float(layer) for layer in range(1, layers + 1)), means))
    head = ("start", "variance, first layer", "variance, last layer", "accuracy", "total width", "runs")
    shown: list[Shown] = [Table(head, tuple(rows))]
    if curves:
        title = "Variance of activations at the start"
        shown.append(Plot("initialisation-variance", title, "layer", "variance", tuple(curves), log=True))
    groups = {
        _label(start, layers): results.final("SpiralHard", _label(start, layers)) for start in STARTS for layers in (4,)
    }
    return [*shown, *width_and_score("initialisation", "four layers, by start", groups)]


INITIALISATION = Experiment(
    name="initialisation",
    title="Kaiming+ against Kaiming",
    says="SpiralHard, ReLU. The paper: with Kaiming initialisation, activations die out from layer to layer and "
    "networks of four layers hardly converge; Kaiming+ keeps the variance.",
    paper=Protocol(_cases(_PAPER), seeds=5, says="1,000 epochs and five runs; the paper states neither number."),
    small=Protocol(_cases(_SMALL), seeds=2, says="150 epochs, two runs."),
)
