"""Images: the learned heads of Table 1 beside ones with another scale and even steps of SGD."""

from __future__ import annotations

import dataclasses

from awn_paper.experiments.table1 import ANCHORED, TABLE1, one_cycle
from awn_paper.models import LearnedEvenly
from awn_paper.protocol import AnyCase, Case, Experiment, Profile, Protocol
from awn_paper.show import Results, Shown, Table, scores, width_and_score, widths

DATASETS = ("CIFAR10", "CIFAR100")
EVENLY = "AWN, anchored, even steps"
LABELS = ("Fixed", "AWN", EVENLY)
_ANCHORED = LearnedEvenly(**{field.name: getattr(ANCHORED, field.name) for field in dataclasses.fields(ANCHORED)})


def _cases(profile: Profile, epochs: int) -> tuple[AnyCase, ...]:
    """The runs of Table 1, and what goes past the paper, trained alike."""
    table1 = [case for case in TABLE1.protocol(profile).cases if case.label in LABELS]
    for name in DATASETS:
        past = one_cycle(name, epochs).change(widths=_ANCHORED)
        table1.append(Case(EVENLY, (past,), seeds=1))
    return tuple(case for case in table1 if case.settings.dataset in DATASETS)


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
    title="CIFAR: heads that SGD trains evenly",
    says="The heads of Table 1 on CIFAR-10 and CIFAR-100, and one that goes past the paper: awn's scale, 64 units at "
    "the start, σ_θ = 0.6, and even steps of SGD (`awn.advanced.even_steps_`). The rest of the network, ResNet-20, and "
    "the training are the same.",
    paper=Protocol(_cases("paper", 200), seeds=10, says="The paper's epochs, ten final runs."),
    small=Protocol(_cases("small", 6), seeds=1, says="One run of 6 epochs."),
    long=Protocol(_cases("long", 30), seeds=1, says="One run of 30 epochs in place of 200, as in Table 1."),
    folder="table1",
)
