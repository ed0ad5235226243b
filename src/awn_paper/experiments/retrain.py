"""Fixed+: fixed networks of the width that adaptive ones learned; and REDDIT-B at several total widths."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from awn_paper.experiments.table1 import FOLDS, GRAPHS, TABLE1
from awn_paper.models import Fixed
from awn_paper.protocol import AnyCase, Case, Experiment, OfTotal, Protocol, Retrained
from awn_paper.show import Results, Shown, Table, scores, widths

PAPER = {
    "Spiral": ("99.5 (0.5)", "99.8 (0.1)", "100.0 (0.1)"),
    "SpiralHard": ("98.0 (2.0)", "100.0 (0.0)", "83.2 (17.0)"),
    "REDDIT-B": ("87.0 (4.4)", "90.2 (1.3)", "90.7 (1.4)"),
}
#: Fixed+ of as many layers as the adaptive network has, where the best fixed one may have fewer.
SAME_DEPTH = "Fixed+, same depth"
PAPER_VALIDATION = {
    50: "89.28 (3.50)",
    250: "92.89 (1.45)",
    500: "92.67 (2.03)",
    793: "92.83 (3.55)",
    1000: "93.06 (1.60)",
    1250: "92.78 (2.33)",
    1500: "91.78 (2.41)",
}


def retrained(
    table1: Protocol, datasets: Iterable[str], *, seeds: int | None = None, totals_on: Collection[int] = FOLDS
) -> tuple[AnyCase, ...]:
    """Both cases of Table 1 for these data sets and Fixed+, fold by fold; on REDDIT-B also several total widths."""
    pairs: dict[tuple[str, int], dict[str, Case]] = {}
    for case in table1.cases:
        if case.settings.dataset in datasets and isinstance(case, Case):
            pairs.setdefault((case.settings.dataset, case.settings.fold), {})[case.label] = case
    cases: list[AnyCase] = []
    for (dataset, fold), pair in pairs.items():
        awn, fixed = pair["AWN"], pair["Fixed"]
        cases += [awn, fixed, Retrained("Fixed+", awn, fixed, seeds)]
        if dataset == "SpiralHard":
            cases.append(Retrained(SAME_DEPTH, awn, awn, seeds))
        if dataset == "REDDIT-B" and fold in totals_on:
            cases += [OfTotal(f"total {total}", awn, total, seeds) for total in PAPER_VALIDATION]
    return tuple(cases)


def _graphs() -> tuple[AnyCase, ...]:
    """REDDIT-B on its first fold, over few epochs, one run each."""
    base = GRAPHS.change(dataset="REDDIT-B", epochs=10, patience=None, pooling="mean")
    awn = Case("AWN", (base,), seeds=1)
    fixed = Case("Fixed", (base.change(widths=Fixed(32)),), seeds=1)
    totals = [OfTotal(f"total {total}", awn, total, seeds=1) for total in PAPER_VALIDATION]
    return (awn, fixed, Retrained("Fixed+", awn, fixed, seeds=1), *totals)


def show(results: Results) -> list[Shown]:
    """Ours beside the paper's."""
    rows = []
    for name, paper in PAPER.items():
        for label, theirs in zip(("Fixed", "AWN", "Fixed+"), paper, strict=True):
            runs = results.final(name, label)
            rows.append((f"{name}, {label}", scores(runs), theirs, widths(runs), str(len(runs))))
        if deep := results.final(name, SAME_DEPTH):
            rows.append((f"{name}, {SAME_DEPTH}", scores(deep), "–", widths(deep), str(len(deep))))
    shown: list[Shown] = [Table(("", "accuracy", "paper", "total width", "runs"), tuple(rows))]
    by_width = []
    for total, theirs in PAPER_VALIDATION.items():
        runs = results.final("REDDIT-B", f"total {total}")
        by_width.append((f"{total} units", scores(runs, "validation"), theirs, str(len(runs))))
    shown.append(Table(("REDDIT-B, fixed", "validation accuracy", "paper", "runs"), tuple(by_width)))
    return shown


RETRAIN = Experiment(
    name="retrain",
    title="Fixed+: retraining at the learned width",
    says="A fixed network with the other settings of the best fixed one and, in each layer, the mean width of the "
    "adaptive one's layers. On SpiralHard also one with the other settings of the best adaptive one, and so of the "
    "same depth. On REDDIT-B also fixed networks of several total widths, with the other settings of the best adaptive "
    "one.",
    paper=Protocol(retrained(TABLE1.paper, PAPER), seeds=10, says="The paper's grids and epochs, ten final runs."),
    small=Protocol(
        (*retrained(TABLE1.small, ("Spiral", "SpiralHard")), *_graphs()),
        seeds=10,
        says="Grids and epochs of Table 1's small profile.",
        details={"REDDIT-B": "The first of ten folds, 10 epochs in place of 1,000, mean pooling, one run each."},
    ),
    long=Protocol(
        (
            *retrained(TABLE1.protocol("long"), ("Spiral", "SpiralHard")),
            *retrained(TABLE1.protocol("long"), ("REDDIT-B",), seeds=1, totals_on=FOLDS[:1]),
        ),
        seeds=10,
        says="Grids, epochs and early stopping of Table 1's long profile, ten final runs.",
        details={"REDDIT-B": "One run on each of ten folds; for the total widths, on the first."},
    ),
    folder="table1",
)
