"""Width and difficulty: adaptive networks on tasks of growing difficulty, over the epochs."""

from __future__ import annotations

from awn_paper.experiments.table1 import TABLE1
from awn_paper.protocol import AnyCase, Experiment, Protocol
from awn_paper.show import Results, Shown, Table, width_and_score, widths
from awn_paper.show import scores as shown_scores

PAPER = {
    "synthetic": {"DoubleMoon": "8.1 (2.8)", "Spiral": "65.9 (8.7)", "SpiralHard": "227.4 (32.4)"},
    "image": {"MNIST": "19.4 (4.8)", "CIFAR10": "80.1 (12.4)", "CIFAR100": "161.9 (57.8)"},
}

LABELS = ("AWN", "Fixed")


def _cases(table1: Protocol) -> tuple[AnyCase, ...]:
    names = [name for family in PAPER.values() for name in family]
    return tuple(case for case in table1.cases if case.settings.dataset in names and case.label in LABELS)


def show(results: Results) -> list[Shown]:
    """The widths in the order of difficulty, and how they and the accuracy went."""
    rows, shown = [], []
    for kind, family in PAPER.items():
        for name, paper in family.items():
            runs = results.final(name, "AWN")
            rows.append((name, widths(runs), paper, shown_scores(runs), str(len(runs))))
        groups = {f"{name}, {label}": results.final(name, label) for name in family for label in LABELS}
        shown += width_and_score(f"difficulty-{kind}", f"{kind} tasks", groups)
    return [Table(("data set", "total width", "paper", "accuracy", "runs"), tuple(rows)), *shown]


DIFFICULTY = Experiment(
    name="difficulty",
    title="The width grows with the difficulty",
    says="The final runs of Table 1: DoubleMoon < Spiral < SpiralHard, and MNIST < CIFAR10 < CIFAR100.",
    paper=Protocol(_cases(TABLE1.paper), seeds=10, says="The paper's grids and epochs, ten final runs."),
    small=Protocol(_cases(TABLE1.small), seeds=10, says="The runs of Table 1's small profile."),
    long=Protocol(_cases(TABLE1.protocol("long")), seeds=10, says="The runs of Table 1's long profile."),
    folder="table1",
)
