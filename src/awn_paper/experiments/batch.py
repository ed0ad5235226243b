"""Batch sizes: whether the width ends the same whatever the size of the batches."""

from __future__ import annotations

from awn_paper.experiments.table1 import ACTIVATIONS, LEARNED
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training
from awn_paper.show import Results, Shown, Table, scores, width_and_score, widths

SIZES = (32, 64, 128, 256)
_PAPER = Settings("SpiralHard", MLP(layers=2), LEARNED, Training(5000))
_SMALL = _PAPER.change(epochs=300)


def _label(activation: str, size: int) -> str:
    return f"{activation}, batch {size}"


def _cases(base: Settings, activations: tuple[str, ...] = ACTIVATIONS) -> tuple[Case, ...]:
    return tuple(
        Case(_label(activation, size), (base.change(activation=activation, batch_size=size),))
        for activation in activations
        for size in reversed(SIZES)  # a short epoch first
    )


def show(results: Results) -> list[Shown]:
    """The widths, and a figure for each activation."""
    rows, shown = [], []
    for activation in ACTIVATIONS:
        groups = {f"batch {size}": results.final("SpiralHard", _label(activation, size)) for size in SIZES}
        rows += [(f"{activation}, {name}", widths(runs), scores(runs)) for name, runs in groups.items()]
        shown += width_and_score(f"batch-{activation}", f"{activation}, by batch size", groups)
    return [Table(("", "total width", "accuracy"), tuple(rows)), *shown]


BATCH = Experiment(
    name="batch",
    title="The same width for different batch sizes",
    says="SpiralHard, two hidden layers. The paper: small batches make the width less steady, but it ends the same.",
    paper=Protocol(
        _cases(_PAPER, ("relu6",)),
        seeds=5,
        says="The paper's 5000 epochs, ReLU6 alone, five runs. The paper averages over its model selection.",
    ),
    small=Protocol(_cases(_SMALL), seeds=1, says="300 epochs in place of 5000, one run each."),
)
