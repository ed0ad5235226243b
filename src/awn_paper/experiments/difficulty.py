"""Width and difficulty: adaptive networks on tasks of growing difficulty, over the epochs."""

from __future__ import annotations

from awn_paper.experiments.table1 import IMAGES, TABLE1, one_cycle
from awn_paper.protocol import AnyCase, Case, Experiment, Protocol
from awn_paper.show import Results, Shown, Table, width_and_score, widths
from awn_paper.show import scores as shown_scores

PAPER = {
    "synthetic": {"DoubleMoon": "8.1 (2.8)", "Spiral": "65.9 (8.7)", "SpiralHard": "227.4 (32.4)"},
    "images": {"MNIST": "19.4 (4.8)", "CIFAR10": "80.1 (12.4)", "CIFAR100": "161.9 (57.8)"},
}

LABELS = ("AWN", "Fixed")
#: Runs in which all sets of images share epochs, learning rate and weight decay, unlike in Table 1.
ALIKE = "AWN, trained alike"


def _cases(table1: Protocol) -> tuple[AnyCase, ...]:
    names = [name for family in PAPER.values() for name in family]
    return tuple(case for case in table1.cases if case.settings.dataset in names and case.label in LABELS)


def _trained_alike(epochs: int) -> tuple[AnyCase, ...]:
    """The learned heads of all images, with the paper's learning rate and weight decay and as many epochs."""
    papers = {"lr": IMAGES.training.lr, "weight_decay": IMAGES.training.weight_decay}
    return tuple(Case(ALIKE, (one_cycle(name, epochs).change(**papers),), seeds=1) for name in PAPER["images"])


def show(results: Results) -> list[Shown]:
    """The widths in the order of difficulty, and how they and the accuracy went."""
    rows, shown = [], []
    for kind, family in PAPER.items():
        for name, paper in family.items():
            runs = results.final(name, "AWN")
            rows.append((name, widths(runs), paper, shown_scores(runs), str(len(runs))))
        alike = {f"{name}, trained alike": results.final(name, ALIKE) for name in family}
        rows += [
            (name, widths(runs), paper, shown_scores(runs), str(len(runs)))
            for (name, runs), paper in zip(alike.items(), family.values(), strict=True)
            if runs
        ]
        shown += width_and_score(f"difficulty-{kind}-alike", f"{kind} tasks, trained alike", alike)
        groups = {f"{name}, {label}": results.final(name, label) for name in family for label in LABELS}
        shown += width_and_score(f"difficulty-{kind}", f"{kind} tasks", groups)
    return [Table(("data set", "total width", "paper", "accuracy", "runs"), tuple(rows)), *shown]


DIFFICULTY = Experiment(
    name="difficulty",
    title="The width grows with the difficulty",
    says="The final runs of Table 1: DoubleMoon < Spiral < SpiralHard, and MNIST < CIFAR10 < CIFAR100.",
    paper=Protocol(_cases(TABLE1.paper), seeds=10, says="The paper's grids and epochs, ten final runs."),
    small=Protocol(_cases(TABLE1.small), seeds=10, says="The runs of Table 1's small profile."),
    long=Protocol(
        (*_cases(TABLE1.protocol("long")), *_trained_alike(30)),
        seeds=10,
        says="The runs of Table 1's long profile, where the sets of images differ in epochs, learning rate and weight "
        "decay. In addition, each set of images has one run under the same training: 30 epochs, with the paper's "
        "learning rate and weight decay.",
    ),
    folder="table1",
)
