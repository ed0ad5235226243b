"""The width of each layer over training, on graphs."""

from __future__ import annotations

from awn_paper.experiments.table1 import TABLE1
from awn_paper.protocol import AnyCase, Experiment, Protocol
from awn_paper.run import Record
from awn_paper.show import Plot, Results, Series, Shown, Table, mean_std, over_epochs

DATASETS = ("NCI1", "REDDIT-B")


def _cases(table1: Protocol) -> tuple[AnyCase, ...]:
    return tuple(case for case in table1.cases if case.settings.dataset in DATASETS and case.label == "AWN")


def show(results: Results) -> list[Shown]:
    """The width of every layer in the end, and on the way there, for the networks of the most frequent depth."""
    rows: list[tuple[str, ...]] = []
    shown: list[Shown] = []
    for name in DATASETS:
        runs = results.final(name, "AWN")
        if not runs:
            rows.append((name, mean_std([]), "0"))
            continue
        depths = [len(run["widths"]) for run in runs]
        alike = [run for run in runs if len(run["widths"]) == max(set(depths), key=depths.count)]
        curves = []
        for layer in alike[0]["widths"]:
            rows.append((f"{name}, {_said(layer)}", mean_std([run["widths"][layer] for run in alike]), str(len(alike))))
            curves.append(_curve(layer, alike))
        shown.append(Plot(f"layers-{name.lower()}", f"Width of each layer: {name}", "epoch", "units", tuple(curves)))
    return [Table(("layer", "units", "runs"), tuple(rows)), *shown]


def _curve(layer: str, runs: list[Record]) -> Series:
    return over_epochs(_said(layer), runs, lambda run: [float(units) for units in run["history"]["widths"][layer]])


def _said(layer: str) -> str:
    """The words for a path such as `layers.0.0.hidden1`."""
    kind, number = layer.split(".")[:2]
    return "first perceptron" if kind == "first" else f"convolution {int(number) + 1}"


LAYERS = Experiment(
    name="layers",
    title="The width of each layer on graphs",
    says="The final runs of Table 1 on NCI1 and REDDIT-B, mean over runs and folds. The first perceptron reads the "
    "features of the nodes; the perceptron of each convolution reads the sums over neighbours. The paper shows curves.",
    paper=Protocol(_cases(TABLE1.paper), seeds=10, says="The paper's grids and epochs, ten final runs a fold."),
    small=Protocol(_cases(TABLE1.small), seeds=1, says="The runs of Table 1's small profile."),
    long=Protocol(_cases(TABLE1.protocol("long")), seeds=1, says="The runs of Table 1's long profile."),
    folder="table1",
)
