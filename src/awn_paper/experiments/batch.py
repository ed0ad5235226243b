"""Batch sizes: whether the width ends the same whatever the size of the batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from awn_paper.experiments.table1 import ACTIVATIONS, LEARNED
from awn_paper.models import MLP
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.run import Record
from awn_paper.settings import Settings, Training
from awn_paper.show import Results, Shown, Table, mean_std, scores, width_after, width_and_score, widths

SIZES = (32, 64, 128, 256)
_PAPER = Settings("SpiralHard", MLP(layers=2), LEARNED, Training(5000))
_SMALL = _PAPER.change(epochs=300)


def _label(activation: str, size: int) -> str:
    return f"{activation}, batch {size}"


def _cases(base: Settings) -> tuple[Case, ...]:
    return tuple(
        Case(_label(activation, size), (base.change(activation=activation, batch_size=size),))
        for activation in ACTIVATIONS
        for size in reversed(SIZES)  # a short epoch first
    )


def equal_steps(groups: Mapping[int, Sequence[Record]]) -> dict[int, int]:
    """For every batch size, the epoch by which it has made as many steps as the largest batches make in all."""
    steps = {size: math.ceil(runs[0]["data"]["train"] / size) for size, runs in groups.items() if runs}
    fewest = min((runs[0]["epochs"] * steps[size] for size, runs in groups.items() if runs), default=0)
    return {size: max(1, fewest // number) for size, number in steps.items()}


def show(results: Results) -> list[Shown]:
    """The widths after equal epochs, the last, and after equal steps, and a figure for each activation."""
    rows, shown = [], []
    for activation in ("relu6", "relu", "leaky_relu"):
        groups = {size: results.final("SpiralHard", _label(activation, size)) for size in SIZES}
        if activation == "relu6" or any(groups.values()):
            rows += _rows(activation, groups)
        named = {f"batch {size}": runs for size, runs in groups.items()}
        shown += width_and_score(f"batch-{activation}", f"{activation}, by batch size", named)
    ends = ("equal epochs: the last", "width", "equal steps: epoch", "width")
    return [Table(("total width", "runs", *ends, "at the kept epoch", "accuracy"), tuple(rows)), *shown]


def _rows(activation: str, groups: Mapping[int, Sequence[Record]]) -> list[tuple[str, ...]]:
    rows = []
    steps = equal_steps(groups)
    for size, runs in groups.items():
        cells: list[str] = []
        for mark in (runs[0]["epochs"], steps[size]) if runs else (0, 0):
            cells += [f"{mark:,}" if runs else "–", mean_std([width_after(run, mark) for run in runs])]
        rows.append((_label(activation, size), str(len(runs)), *cells, widths(runs), scores(runs)))
    return rows


BATCH = Experiment(
    name="batch",
    title="The same width for different batch sizes",
    says="SpiralHard, two hidden layers. The paper: the width ends the same for all sizes, and fluctuates more with "
    "small batches.",
    paper=Protocol(
        _cases(_PAPER),
        seeds=5,
        says="The paper's 5,000 epochs, five runs. The paper averages over its model selection.",
    ),
    small=Protocol(_cases(_SMALL), seeds=1, says="300 epochs in place of 5,000, one run each."),
    folder="start",  # batches of 128 are a case of that study
)
