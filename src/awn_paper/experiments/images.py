"""Images: the learned heads of Table 1 beside ones with another scale and even steps of SGD."""

from __future__ import annotations

import dataclasses

from awn_paper.experiments.table1 import ANCHORED, TABLE1
from awn_paper.models import LearnedEvenly
from awn_paper.protocol import Case, Experiment, Profile, Protocol
from awn_paper.show import Results, Shown, Table, scores, width_and_score, widths

DATASETS = ("MNIST", "CIFAR10", "CIFAR100")
EVENLY = "AWN, anchored, even steps"
LABELS = ("Fixed", "AWN", EVENLY)
_ANCHORED = LearnedEvenly(**{field.name: getattr(ANCHORED, field.name) for field in dataclasses.fields(ANCHORED)})


def _protocol(profile: Profile) -> Protocol:
    """The runs of Table 1, and what goes past the paper, trained alike."""
    table1 = TABLE1.protocol(profile)
    cases = [case for case in table1.cases if isinstance(case, Case) and case.settings.dataset in DATASETS]
    evenly = [
        dataclasses.replace(case, label=EVENLY, grid=(case.settings.change(widths=_ANCHORED),))
        for case in cases
        if case.label == "AWN"
    ]
    return Protocol(
        (*cases, *evenly),
        seeds=table1.seeds,
        says=f"The training of Table 1's {profile} profile, and as many runs.",
        details={name: table1.details[name] for name in DATASETS if name in table1.details},
    )


def show(results: Results) -> list[Shown]:
    """Accuracy and width of each head, and how they went."""
    rows = []
    for name in DATASETS:
        for label in LABELS:
            runs = results.final(name, label)
            accuracies = scores(runs), scores(runs, "validation")
            rows.append((f"{name}, {label}", *accuracies, widths(runs), str(len(runs))))
    shown: list[Shown] = [Table(("", "test accuracy", "validation accuracy", "units", "runs"), tuple(rows))]
    for name in DATASETS:
        groups = {label: results.final(name, label) for label in LABELS}
        shown += width_and_score(f"images-{name.lower()}", name, groups)
    return shown


IMAGES_STUDY = Experiment(
    name="images",
    title="Images: learned heads with even steps",
    says="The heads of Table 1 on images, and one that goes beyond the paper: awn's scale, 64 units at the start, "
    "σ_θ = 0.6, new units of zero weight, and even steps of SGD (`awn.advanced.even_steps_`). The rest of the network, "
    "ResNet-20, and the training are the same.",
    paper=_protocol("paper"),
    small=_protocol("small"),
    long=_protocol("long"),
    folder="table1",
)
