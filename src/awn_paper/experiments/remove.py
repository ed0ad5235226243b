"""Removing the most important units first, in groups and one by one."""

from __future__ import annotations

from collections.abc import Sequence

from awn_paper.experiments.truncate import QUANTILES, TRUNCATE, label
from awn_paper.protocol import Experiment, Protocol
from awn_paper.run import Record
from awn_paper.show import Plot, Results, Series, Shown, Table, at_end, mean_std, score

COUNTS = (1, 5, 10, 20, 40)
FIRST = 25  # of which most matter in the paper


def without_first(runs: Sequence[Record], count: int) -> list[float]:
    """The accuracy in per cent without the most important units, of the runs that have more units than that."""
    groups = [run["measured"]["removal"]["first"] for run in runs]
    return [100 * group[count] for group in groups if count < len(group)]


def costly(run: Record) -> tuple[int, int]:
    """How many units cost more than a point if removed alone: of the first ones, and of the later ones."""
    costs = [score(run) - 100 * value for value in run["measured"]["removal"]["each"]]
    return sum(cost > 1 for cost in costs[:FIRST]), sum(cost > 1 for cost in costs[FIRST:])


def later(run: Record) -> int:
    """The number of units after the first ones."""
    return max(0, len(run["measured"]["removal"]["each"]) - FIRST)


def show(results: Results) -> list[Shown]:
    """The accuracy without the first units, and without each one alone."""
    kinds: dict[str, list[Record]] = {}
    for name in map(label, QUANTILES):
        runs = results.final("Spiral", name)
        kinds |= {f"{name}, last epoch": [at_end(run) for run in runs], f"{name}, kept epoch": runs}
    together, alone = [], []
    for name, runs in kinds.items():
        groups = [mean_std(without_first(runs, count)) for count in COUNTS]
        together.append((name, mean_std([score(run) for run in runs]), *groups))
        found = [costly(run) for run in runs]
        first, after = (mean_std([float(pair[place]) for pair in found]) for place in (0, 1))
        worst = [score(run) - 100 * min(each) for run in runs if (each := run["measured"]["removal"]["each"][FIRST:])]
        alone.append((name, first, after, mean_std([float(later(run)) for run in runs]), mean_std(worst)))
    head = ("accuracy without the first units", "0", *map(str, COUNTS))
    costs = ("units that cost more than a point alone", f"of the first {FIRST}", "of the later ones")
    shown: list[Shown] = [
        Table(head, tuple(together)),
        Table((*costs, "later ones", "the costliest of them, points"), tuple(alone)),
    ]
    runs = kinds[f"{label(0.9)}, last epoch"]
    if runs:
        curves = [[100 * value for value in run["measured"]["removal"]["first"]] for run in runs]
        each = [100 * value for value in runs[0]["measured"]["removal"]["each"]]
        by_run = tuple(Series(f"run {number}", _numbers(curve), tuple(curve)) for number, curve in enumerate(curves))
        axis = "test accuracy, %"
        shown += [
            Plot("remove-first", "k = 0.9: without the most important units", "units removed", axis, by_run),
            Plot(
                "remove-each",
                "k = 0.9: without one unit",
                "unit removed",
                axis,
                (Series("run 0", _numbers(each), tuple(each)),),
            ),
        ]
    return shown


def _numbers(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(number) for number in range(len(values)))


def _as_in_the_paper(truncation: Protocol) -> Protocol:
    """The networks that are not trained in order."""
    cases = tuple(case for case in truncation.cases if case.label in map(label, QUANTILES))
    return Protocol(
        cases, truncation.seeds, "The paper's 1,000 epochs and k = 0.9, and higher k; the paper shows one network."
    )


REMOVE = Experiment(
    name="remove",
    title="Removing the most important units",
    says="The networks of the truncation study. The paper: without the first 40 of 83 units, the accuracy is at the "
    "level of chance. Removed one at a time, most of the first 25 units matter, and later ones hardly do.",
    paper=_as_in_the_paper(TRUNCATE.paper),
    small=_as_in_the_paper(TRUNCATE.small),
    folder="truncate",
)
