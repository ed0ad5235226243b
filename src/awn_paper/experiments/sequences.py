"""PMNIST: fixed widths by a search of rates, depths and widths, against learned ones on two scales."""

from __future__ import annotations

from awn_paper.experiments.table1 import ANCHORED, PAST_THE_PAPER, SEQUENCES, WIDTHS
from awn_paper.models import Fixed
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings
from awn_paper.show import Results, Shown, Table, mean_std, score, scores, width_and_score, widths

DATASET = "PMNIST (10,000 images)"
RATES = (0.01, 0.001)
DEPTHS = (1, 2)
LABELS = ("Fixed", "AWN", PAST_THE_PAPER)
_LONG = SEQUENCES.change(dataset=DATASET, epochs=12)


def _cases(base: Settings, selected_in: int, units: tuple[int, ...] = WIDTHS) -> tuple[Case, ...]:
    fixed = base.change(widths=Fixed(units[0]))
    return (
        Case("Fixed", fixed.vary(layers=DEPTHS, lr=RATES, units=units), selected_in=selected_in),
        Case("AWN", (base,)),
        Case(PAST_THE_PAPER, base.change(widths=ANCHORED).vary(lr=RATES), selected_in=selected_in),
    )


def show(results: Results) -> list[Shown]:
    """The final runs, and what the search found."""
    rows = []
    for label in LABELS:
        runs = results.final(DATASET, label)
        chosen = _chosen(runs[0]["settings"]) if runs else "–"
        ends = ("–", "–")
        if runs:
            kept = sorted(int(run["best_epoch"]) for run in runs)
            ends = (", ".join(map(str, kept)), mean_std([100 * run["last"]["validation"]["score"] for run in runs]))
        rows.append((label, chosen, scores(runs), widths(runs), *ends, str(len(runs))))
    head = ("", "settings", "test accuracy", "total width", "kept epochs", "validation at the last epoch", "runs")
    shown: list[Shown] = [Table(head, tuple(rows))]
    tried = [
        (_chosen(run["settings"]), f"{score(run, 'validation'):.1f}", str(run["best_epoch"]))
        for label in LABELS
        for run in results.selection(DATASET, label)
    ]
    if tried:
        shown.append(Table(("tried in the search", "validation accuracy", "kept epoch"), tuple(tried)))
    named = {label: results.final(DATASET, label) for label in LABELS}
    return [*shown, *width_and_score("sequences", "PMNIST", named)]


def _chosen(settings: dict[str, dict[str, object]]) -> str:
    network, training, found = settings["network"], settings["training"], settings["widths"]
    units = f"{found['units']} units a layer" if "units" in found else "learned"
    return f"{units}, depth {network['layers']}, learning rate {training['lr']:g}"


SEQUENCES_STUDY = Experiment(
    name="sequences",
    title="PMNIST with a search for the fixed network",
    says="The recurrent network of Table 1. The fixed one is the best of two depths, two learning rates and five "
    "widths. The adaptive one has the paper's settings. A second adaptive one, which goes past the paper, has awn's "
    "scale, 64 units at the start, σ_θ = 0.6 and the better of the two learning rates. The paper: 91.1 (0.4) % fixed, "
    "95.7 (0.2) % adaptive with 806 units.",
    paper=Protocol(
        _cases(SEQUENCES.change(dataset=DATASET), 50),
        seeds=10,
        says="The paper's 50 epochs, ten final runs; a sixth of the images.",
    ),
    small=Protocol(
        _cases(_LONG.change(epochs=5), 2, (24, 128)), seeds=1, says="Two fixed widths, 5 epochs, 2 for the search."
    ),
    long=Protocol(
        _cases(_LONG, 3),
        seeds=5,
        says="Shortened: a sixth of the images (8,334 for training, 1,664 for validation, all 10,000 for the test), 12 "
        "epochs in place of 50, of which the search has 3; five final runs.",
    ),
)
