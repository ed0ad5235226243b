"""Removing the most important units first, in groups and one by one."""

from __future__ import annotations

from awn_paper.experiments.truncate import TRUNCATE
from awn_paper.protocol import Experiment
from awn_paper.show import Plot, Results, Series, Shown, Table, mean_std, scores

COUNTS = (1, 5, 10, 20, 40)


def show(results: Results) -> list[Shown]:
    """The accuracy without the first units, and without each one alone."""
    runs = results.final("Spiral", "AWN")
    if not runs:
        return [Table(("removed", "accuracy", "runs"), (("the first units", mean_std([]), "0"),))]
    groups = [[100 * value for value in run["measured"]["removal"]["first"]] for run in runs]
    rows = [("none", scores(runs), str(len(runs)))]
    for count in COUNTS:
        left = [group[count] for group in groups if count < len(group)]
        rows.append((f"the {count} most important", mean_std(left), str(len(left))))
    each = [100 * value for value in runs[0]["measured"]["removal"]["each"]]
    together = tuple(Series(f"run {number}", _numbers(group), tuple(group)) for number, group in enumerate(groups))
    alone = Series("run 0", _numbers(each), tuple(each))
    return [
        Table(("removed", "accuracy", "runs with more units than that"), tuple(rows)),
        Plot("remove-first", "Without the most important units", "units removed", "test accuracy, %", together),
        Plot("remove-each", "Without one unit", "unit removed", "test accuracy, %", (alone,)),
    ]


def _numbers(values: list[float]) -> tuple[float, ...]:
    return tuple(float(number) for number in range(len(values)))


REMOVE = Experiment(
    name="remove",
    title="Removing the most important units",
    says="The networks of the truncation study. The paper: without the first 40 units of 83 the accuracy is that of "
    "chance; alone, most of the first 25 matter, and later ones hardly.",
    paper=TRUNCATE.paper,
    small=TRUNCATE.small,
    folder="truncate",
)
