"""The quantile k at which a layer is cut: from low to high, on SpiralHard."""

from __future__ import annotations

from awn_paper.experiments.table1 import ACTIVATIONS, LEARNED
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training
from awn_paper.show import (
    Results,
    Shown,
    Table,
    mean_std,
    score,
    score_curve,
    width_and_score,
    width_curve,
    widths,
)

QUANTILES = (0.5, 0.7, 0.9, 0.95, 0.99)
_PAPER = Settings("SpiralHard", MLP(layers=1), LEARNED, Training(5000))
_TWO = ("relu6", "leaky_relu")
_SPIRAL = _PAPER.change(dataset="Spiral", epochs=1000)


def _cases(base: Settings, activations: tuple[str, ...], repeats: int = 1) -> tuple[Case, ...]:
    return tuple(
        Case(f"k = {k:g}", base.change(quantile=k).vary(activation=activations), repeats=repeats) for k in QUANTILES
    )


def show(results: Results) -> list[Shown]:
    """Validation accuracy and width for each k, on SpiralHard and on Spiral."""
    rows, shown = [], []
    for dataset in ("SpiralHard", "Spiral"):
        groups = {f"k = {k:g}": results.selection(dataset, f"k = {k:g}") for k in QUANTILES}
        for name, runs in groups.items():
            kept = mean_std([score(run, "validation") for run in runs])
            last = [mean_std([curve(run)[-1] for run in runs]) for curve in (score_curve, width_curve)]
            rows.append((f"{dataset}, {name}", kept, widths(runs), *last, str(len(runs))))
        key = "quantile" if dataset == "SpiralHard" else "quantile-spiral"
        shown += width_and_score(key, f"{dataset}, by quantile", groups)
    head = ("quantile", "validation accuracy, kept epoch", "total width", "accuracy, last epoch", "total width")
    return [Table((*head, "runs"), tuple(rows)), *shown]


QUANTILE = Experiment(
    name="quantile",
    title="The quantile k",
    says="SpiralHard, one hidden layer, averaged over configurations. The paper: a higher k gives steadier accuracy, "
    "and the width adapts at any k.",
    paper=Protocol(
        (*_cases(_PAPER, ACTIVATIONS, 5), *_cases(_SPIRAL, ACTIVATIONS, 5)),
        seeds=0,
        says="One hidden layer and three activations with σ_θ = 10, which is half of the paper's grid; five runs each. "
        "SpiralHard has 5,000 epochs. Spiral, which the paper does not show, has 1,000.",
    ),
    long=Protocol(
        (*_cases(_PAPER, _TWO, 5), *_cases(_SPIRAL, _TWO, 5)),
        seeds=0,
        says="One hidden layer, ReLU6 and LeakyReLU, σ_θ = 10, five runs each. SpiralHard has the paper's 5,000 "
        "epochs. Spiral, which the paper does not show, has 1,000.",
    ),
    small=Protocol(
        (*_cases(_PAPER.change(epochs=300, layers=2), _TWO), *_cases(_SPIRAL, _TWO)),
        seeds=0,
        says="Two activations. SpiralHard has 300 epochs and two hidden layers, since one layer learns it too slowly. "
        "Spiral has 1,000 epochs and one layer.",
    ),
)
