"""Searches of the width at a budget of five runs, against one adaptive run."""

from __future__ import annotations

from awn_paper.experiments.table1 import LEARNED, PATIENCE, images
from awn_paper.models import MLP, Fixed
from awn_paper.protocol import AnyCase, Case, Experiment, Protocol, Searched
from awn_paper.search import Proposer
from awn_paper.settings import Settings, Training
from awn_paper.show import Results, Shown, Table, scores, widths

SEARCHES: dict[Proposer, str] = {
    "grid": "Grid search",
    "random": "Random search",
    "local": "Local search",
    "bayes": "Bayesian optimisation",
}
PAPER = {
    "MNIST": ("99.6 (0.1)", "99.6 (0.0)", "99.5", "99.4", "99.7 (0.0)"),
    "CIFAR10": ("91.4 (0.2)", "90.1 (0.5)", "90.6", "91.2", "91.4 (0.2)"),
    "CIFAR100": ("66.5 (0.4)", "64.9 (1.1)", "64.9", "65.9", "63.1 (4.0)"),
}
WIDTHS = {"points": (8, 16, 24, 128, 256), "images": (0, 32, 128, 256, 512)}


def searches(adaptive: Settings, fixed: Settings, widths_tried: tuple[int, ...]) -> tuple[AnyCase, ...]:
    """The four searches, and the adaptive network."""
    return (
        *(Searched(label, fixed, proposer, widths_tried) for proposer, label in SEARCHES.items()),
        Case("AWN", (adaptive,)),
    )


def show(results: Results) -> list[Shown]:
    """Accuracy, width and the time of the whole search."""
    labels = (*SEARCHES.values(), "AWN")
    rows = []
    for name in results.datasets:
        for label in labels:
            runs = results.final(name, label)
            spent = sum(run["seconds"] for run in results.selection(name, label)) + sum(r["seconds"] for r in runs[:1])
            time = f"{spent:.0f}" if runs else "–"
            rows.append((f"{name}, {label}", scores(runs), widths(runs), time, str(len(runs))))
    ours = Table(("", "accuracy", "total width", "search and one training, s", "runs"), tuple(rows))
    theirs = Table(("the paper, ResNet-20", *labels), tuple((name, *row) for name, row in PAPER.items()))
    return [ours, theirs] if rows else [theirs]


def _on(name: str, layers: int, activation: str, training: Training) -> tuple[AnyCase, ...]:
    """The searches on points or a table, with networks of the same depth and activation."""
    adaptive = Settings(name, MLP(layers=layers, activation=activation), LEARNED, training)
    return searches(adaptive, adaptive.change(widths=Fixed(8)), WIDTHS["points"])


SEARCH = Experiment(
    name="search",
    title="Searching for the width",
    says="Grid, random, local and Bayesian search (Optuna's grid, random and TPE samplers) over the width at a budget "
    "of five runs, and one adaptive run without a search.",
    paper=Protocol(
        tuple(
            case
            for name in PAPER
            for case in searches(images(name), images(name).change(widths=Fixed(0)), WIDTHS["images"])
        ),
        seeds=10,
        says="ResNet-20 on the images, widths from 0 to 512; ten final runs.",
    ),
    small=Protocol(
        _on("SpiralHard", 4, "relu6", Training(300)),
        seeds=3,
        says="SpiralHard in place of images; four layers of ReLU6, widths from 8 to 256, 300 epochs, three final runs.",
    ),
    long=Protocol(
        (
            *_on("SpiralHard", 4, "relu6", Training(5000, patience=PATIENCE)),
            *_on("pol", 2, "relu6", Training(5000, patience=PATIENCE)),
            *_on("credit card", 2, "relu6", Training(5000, patience=PATIENCE)),
            *_on("MNIST pixels", 1, "relu6", Training(10)),
        ),
        seeds=5,
        says="Perceptrons with ReLU6 in place of ResNet-20 on images; widths from 8 to 256; the epochs and early "
        "stopping of Table 1's long profile; five final runs.",
        details={
            "SpiralHard": "Four layers.",
            **dict.fromkeys(("pol", "credit card"), "Two layers."),
            "MNIST pixels": "One layer, 10 epochs.",
        },
    ),
    folder="table1",  # which has the adaptive networks and some of the fixed ones
)
