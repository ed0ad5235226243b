"""Starting rates: whether the width ends the same wherever it starts."""

from __future__ import annotations

from awn.core.importance import Exponential
from awn_paper.experiments.table1 import ACTIVATIONS, LEARNED
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training
from awn_paper.show import Results, Shown, Table, scores, width_and_score, width_curve, widths

RATES = (0.005, 0.01, 0.02, 0.05)
_PAPER = Settings("SpiralHard", MLP(layers=2), LEARNED, Training(5000))
_SMALL = _PAPER.change(epochs=500)


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


def show(results: Results) -> list[Shown]:
    """The widths, and a figure for each activation."""
    rows, shown = [], []
    for activation in ACTIVATIONS:
        groups = {f"rate {rate:g}": results.final("SpiralHard", _label(activation, rate)) for rate in RATES}
        for name, runs in groups.items():
            started = f"{width_curve(runs[0])[0]:.0f}" if runs else "–"
            rows.append((f"{activation}, {name}", started, widths(runs), scores(runs)))
        shown += width_and_score(f"start-{activation}", f"{activation}, by starting rate", groups)
    return [Table(("", "units after one epoch", "total width", "accuracy"), tuple(rows)), *shown]


START = Experiment(
    name="start",
    title="The same width from different starts",
    says="SpiralHard, two hidden layers, from different starting rates of the exponential. The paper: the width ends "
    "the same under ReLU6, and approaches the same slowly under ReLU and LeakyReLU.",
    paper=Protocol(
        _cases(_PAPER, {"relu6": 10, "relu": 2, "leaky_relu": 2}),
        seeds=10,
        says="The paper's 5000 epochs; ten runs under ReLU6, two under the others. The paper averages over its model "
        "selection.",
    ),
    small=Protocol(
        _cases(_SMALL, dict.fromkeys(ACTIVATIONS, 1)), seeds=1, says="500 epochs in place of 5000, one run each."
    ),
)
