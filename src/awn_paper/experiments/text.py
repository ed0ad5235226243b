"""Translation: the loss by the parameters of the feed-forward networks, at several fixed widths and learned ones."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from awn_paper.experiments.table1 import ANCHORED, PAST_THE_PAPER, TEXT
from awn_paper.models import Fixed
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.run import Record
from awn_paper.settings import Settings
from awn_paper.show import Plot, Results, Series, Shown, Table, mean_std, score, scores, width_and_score, widths

DATASET = "Multi30k (short)"
WIDTHS = (4, 16, 64, 256, 1024)
#: The paper's start and prior, and what goes past it.
LEARNED = {"AWN": TEXT.widths, PAST_THE_PAPER: ANCHORED}
#: The paper's loss, 1.51, is this much above that of its fixed network.
PAPER_DISTANCE = 0.08
_LONG = TEXT.change(dataset=DATASET, depth=1, embedding=64, heads=4, lr=0.003, epochs=15, patience=None, plateau=None)


def fixed_label(units: int) -> str:
    """The name of a case of a fixed width."""
    return f"Fixed {units}"


def _cases(base: Settings, fixed: Sequence[int] = WIDTHS) -> tuple[Case, ...]:
    return (
        *(Case(fixed_label(units), (base.change(widths=Fixed(units)),)) for units in fixed),
        *(Case(label, (base.change(widths=learned),)) for label, learned in LEARNED.items()),
    )


def feed_forward_parameters(record: Record) -> int:
    """The weights and biases of all feed-forward networks, each with one hidden layer."""
    size = int(record["settings"]["network"]["embedding"])
    return sum(units * (2 * size + 1) + size for units in record["widths"].values())


def mean_parameters(runs: Sequence[Record]) -> float:
    """The mean over runs."""
    return statistics.fmean(map(feed_forward_parameters, runs))


def best_fixed(results: Results) -> tuple[int, list[Record]] | None:
    """The fixed width with the lowest validation loss, and its runs."""
    found = {units: results.final(DATASET, fixed_label(units)) for units in WIDTHS}
    losses = {
        units: statistics.fmean(score(run, "validation") for run in runs) for units, runs in found.items() if runs
    }
    best = min(losses, key=lambda units: losses[units], default=None)
    return None if best is None else (best, found[best])


def show(results: Results) -> list[Shown]:
    """The loss and the feed-forward parameters of every case, and one by the other."""
    best = best_fixed(results)
    rows: list[tuple[str, ...]] = []
    fixed_points: list[tuple[str, float, float]] = []
    learned_points: list[tuple[str, float, float]] = []
    for label in (*map(fixed_label, WIDTHS), *LEARNED):
        runs = results.final(DATASET, label)
        if not runs:
            rows.append((label, *[mean_std([])] * 5, "0"))
            continue
        parameters = mean_parameters(runs)
        factor = f"{mean_parameters(best[1]) / parameters:.1f}" if best else "–"
        losses = scores(runs), scores(runs, "validation")
        rows.append((label, widths(runs), f"{parameters:,.0f}", factor, *losses, str(len(runs))))
        points = fixed_points if label.startswith("Fixed") else learned_points
        points.append((label, parameters, statistics.fmean(map(score, runs))))
    head = (
        "",
        "units of all FFNs",
        "FFN parameters",
        "times fewer than the best fixed",
        "test loss",
        "validation loss",
    )
    shown: list[Shown] = [Table((*head, "runs"), tuple(rows))]
    if fixed_points:
        _, x, y = zip(*fixed_points, strict=True)
        lines = (Series("Fixed", x, y), *(Series(name, (place,), (loss,)) for name, place, loss in learned_points))
        shown.append(Plot("text-loss", "Test loss by FFN parameters", "FFN parameters", "test loss", lines))
    return [*shown, *width_and_score("text", "translation", {name: results.final(DATASET, name) for name in LEARNED})]


TEXT_STUDY = Experiment(
    name="text",
    title="Translation: loss by the size of the feed-forward networks",
    says="A Transformer on Multi30k, English to German, at several fixed widths of its feed-forward networks (FFNs) "
    "and with learned ones. The paper: 123 units in all in place of 24,576, 200 times fewer FFN parameters, at a loss "
    "of 1.51 against 1.43.",
    paper=Protocol(
        _cases(TEXT.change(dataset="Multi30k", activation="leaky_relu"), (128, 256, 512, 1024, 2048)),
        seeds=10,
        says="The paper's Transformer and 500 epochs.",
    ),
    small=Protocol(
        _cases(_LONG.change(epochs=5), (16, 256)), seeds=1, says="The long profile with 5 epochs and two fixed widths."
    ),
    long=Protocol(
        _cases(_LONG),
        seeds=3,
        says="Shortened: pairs of sentences of at most 24 tokens (10,135 of 29,000 for training, 390 of 1,000 for the "
        "test), with the 2,000 most frequent tokens and one for all others. One layer on each side in place of six, "
        "embeddings of 64 numbers in place of 512, four heads, ReLU, Adam at 0.003, 15 epochs in place of 500. The "
        "losses compare with each other, not with the paper's. AWN has the paper's start (rate 0.004) and prior "
        "(σ_θ = 1). AWN, anchored, goes past the paper, with awn's scale, 64 units at the start and σ_θ = 0.6.",
    ),
)
