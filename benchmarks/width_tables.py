"""The tables of docs/width.md, from the rows under results/width."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from awn.basics.text_table import markdown_table

Row = dict[str, Any]
KEPT = (0.7, 0.5, 0.3)


def with_tables(page: str, results: dict[str, list[Row]]) -> str:
    """A page with its tables written anew: each stands between `<!-- name -->` and `<!-- end -->`."""
    found = {name: Measured(rows) for name, rows in results.items()}
    for name, table in TABLES.items():
        mark = re.compile(f"<!-- {name} -->.*?<!-- end -->", re.DOTALL)
        if not mark.search(page):
            raise ValueError(f"the page has no mark <!-- {name} --> … <!-- end -->")
        page = mark.sub(f"<!-- {name} -->\n{table(found)}\n<!-- end -->", page)
    return page


class Measured:
    """The rows of one data set, by method and seed."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def of(self, method: str, **fields: Any) -> list[Row]:
        chosen = [
            row for row in self.rows if row["method"] == method and all(row[name] == fields[name] for name in fields)
        ]
        return sorted(chosen, key=lambda row: row["seed"])

    def scores(self, method: str, **fields: Any) -> list[float]:
        return [row["score"] for row in self.of(method, **fields)]

    def units(self, method: str, field: str = "units") -> float:
        """The geometric mean over the seeds."""
        return math.exp(statistics.mean(math.log(row[field]) for row in self.of(method)))

    def best_fixed(self) -> list[Row]:
        """For each seed, the fixed network with the lowest validation loss."""
        seeds = dict.fromkeys(row["seed"] for row in self.of("fixed"))
        return [
            min((row for row in self.of("fixed") if row["seed"] == seed), key=lambda row: row["validation_loss"])
            for seed in seeds
        ]

    def smallest_fixed(self) -> float:
        """The units of the smallest fixed width whose mean validation loss is within a standard error of the best."""
        losses = {
            width: [row["validation_loss"] for row in self.of("fixed", width=width)]
            for width in dict.fromkeys(row["width"] for row in self.of("fixed"))
        }
        best = min(losses, key=lambda width: statistics.mean(losses[width]))
        for width in sorted(losses):
            differences = [a - b for a, b in zip(losses[width], losses[best], strict=True)]
            if width == best or statistics.mean(differences) <= _error(differences):
                return float(self.of("fixed", width=width)[0]["units"])
        raise AssertionError("the best width is within a standard error of itself")

    def behind(self) -> tuple[float, float]:
        """The mean of fixed minus chosen scores, and its standard error over the seeds."""
        differences = [
            fixed["score"] - ours for fixed, ours in zip(self.best_fixed(), self.scores("chosen"), strict=True)
        ]
        return statistics.mean(differences), _error(differences)

    def lost(self, method: str, kept: float) -> float:
        """The mean drop of the score by a cut."""
        whole = self.scores(method.split(",")[0])
        return statistics.mean(a - b for a, b in zip(whole, self.scores(method, kept=kept), strict=True))

    def area(self, method: str) -> float:
        """The mean over the sizes of the score trained alone minus the score of the cut network."""
        return statistics.mean(
            alone - cut
            for kept in KEPT
            for alone, cut in zip(self.scores("alone", kept=kept), self.scores(method, kept=kept), strict=True)
        )

    def has(self, *methods: str) -> bool:
        return all(self.of(method) for method in methods)


def _error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _ratio(one: float, other: float) -> float:
    return max(one, other) / min(one, other)


def _criteria() -> list[Criterion]:
    return [
        Criterion(
            "score at least that of the best fixed width, within a standard error",
            "17 of 20",
            lambda one: one.behind()[0] - one.behind()[1],
            most=1e-12,
            shown=lambda one: f"{one.behind()[0]:.4f} behind, standard error {one.behind()[1]:.4f}",
        ),
        Criterion(
            "units over those of the smallest fixed width within a standard error of the best",
            "median 1.5, largest 4",
            lambda one: one.units("chosen") / one.smallest_fixed(),
            most=4.0,
            of_all=lambda each: f"median {statistics.median(each):.2f}, largest {max(each):.2f}",
        ),
        Criterion(
            "standard deviation of the width over seeds, relative to its mean",
            "median 35 %",
            lambda one: statistics.stdev(_units(one, "chosen")) / statistics.mean(_units(one, "chosen")),
            of_all=lambda each: f"median {100 * statistics.median(each):.0f} %",
        ),
        _same_from_any_start("learned", "by gradient alone"),
        _same_from_any_start("units", "after choosing"),
        *(_cut("learned", 0.7, 0.005, "20 of 20"), _cut("ordered", 0.7, 0.005, "20 of 20")),
        *(_cut("learned", 0.5, 0.01, "16 of 20"), _cut("ordered", 0.5, 0.01, "16 of 20")),
        Criterion(
            "processor time over that of a training with the defaults of before",
            "1",
            lambda one: one.of("chosen")[0]["seconds"] / one.of("before")[0]["seconds"],
            of_all=lambda each: f"median {statistics.median(each):.2f}, largest {max(each):.2f}",
        ),
    ]


@dataclass(frozen=True)
class Criterion:
    """A value of every data set, the most that it may be, and how the values of all sets are summed up."""

    text: str
    target: str
    value: Callable[[Measured], float]
    most: float = math.inf
    shown: Callable[[Measured], str] | None = None
    of_all: Callable[[list[float]], str] | None = None

    def result(self, found: dict[str, Measured]) -> str:
        each = [self.value(one) for one in found.values()]
        return _count(value <= self.most for value in each) if self.of_all is None else self.of_all(each)

    def missed(self, found: dict[str, Measured]) -> str:
        """The sets that miss the criterion, and by how much."""
        missing = [name for name, one in found.items() if self.value(one) > self.most]
        show = self.shown or (lambda one: f"{self.value(one):.2f}")
        return ", ".join(f"{name} ({show(found[name])})" for name in missing) or "–"


def _same_from_any_start(field: str, name: str) -> Criterion:
    def ratio(one: Measured) -> float:
        return _ratio(one.units("from 32", field), one.units("from 512", field))

    return Criterion(f"from 32 and from 512 units within a factor of 1.5, {name}", "16 of 20", ratio, most=1.5)


def _cut(method: str, kept: float, most: float, target: str) -> Criterion:
    def lost(one: Measured) -> float:
        return one.lost(f"{method}, repaired", kept)

    text = f"{method} network cut by {100 * (1 - kept):.0f} % and repaired: less than {100 * most:g} points lost"
    return Criterion(text, target, lost, most=most, shown=lambda one: f"{100 * lost(one):.1f} points")


def _summary(found: dict[str, Measured]) -> str:
    rows = [[one.text, one.target, one.result(found)] for one in _criteria()]
    return markdown_table(["criterion", "target", "result"], rows)


def _missed(found: dict[str, Measured]) -> str:
    rows = [[one.text, one.missed(found)] for one in _criteria() if math.isfinite(one.most)]
    return markdown_table(["criterion", "missed on"], rows)


def _count(each: Iterable[bool]) -> str:
    listed = list(each)
    return f"{sum(listed)} of {len(listed)}"


def _units(one: Measured, method: str) -> list[float]:
    return [row["units"] for row in one.of(method)]


def _scores(found: dict[str, Measured]) -> str:
    head = ["data", "chosen", "learned", "best fixed", "units, chosen", "units, learned"]
    head += ["units, smallest fixed", "deviation over seeds", "seconds"]
    rows = []
    for name, one in found.items():
        fixed = statistics.mean(row["score"] for row in one.best_fixed()) if one.has("fixed") else math.nan
        spread = statistics.stdev(_units(one, "chosen")) if len(_units(one, "chosen")) > 1 else 0.0
        learned = f"{statistics.mean(one.scores('learned')):.4f}" if one.has("learned") else "–"
        cells = [f"{statistics.mean(one.scores('chosen')):.4f}", learned, f"{fixed:.4f}"]
        cells += [f"{one.units('chosen'):.0f}", f"{one.units('chosen', 'learned'):.0f}"]
        cells += [f"{one.smallest_fixed():.0f}" if one.has("fixed") else "–", f"{spread:.0f}"]
        rows.append([name, *cells, f"{statistics.mean(row['seconds'] for row in one.of('chosen')):.1f}"])
    return markdown_table(head, rows)


def _starts(found: dict[str, Measured]) -> str:
    head = ["data", "learned from 32", "from 512", "ratio", "chosen from 32", "from 512", "ratio"]
    rows = []
    for name, one in found.items():
        if one.has("from 32", "from 512"):
            cells = []
            for field in ("learned", "units"):
                small, large = one.units("from 32", field), one.units("from 512", field)
                cells += [f"{small:.0f}", f"{large:.0f}", f"{_ratio(small, large):.2f}"]
            rows.append([name, *cells])
    return markdown_table(head, rows)


def _cuts(found: dict[str, Measured]) -> str:
    methods = ("learned, plain", "learned, repaired", "ordered, plain", "ordered, repaired")
    head = ["data", *(f"{method}, −{1 - kept:.0%}" for kept in (0.7, 0.5) for method in methods)]
    rows = [
        [name, *(f"{one.lost(method, kept):+.4f}" for kept in (0.7, 0.5) for method in methods)]
        for name, one in found.items()
        if one.has("learned", "ordered")
    ]
    return markdown_table(head, rows)


def _areas(found: dict[str, Measured]) -> str:
    methods = ("learned, plain", "learned, repaired", "ordered, plain", "ordered, repaired")
    rows = [
        [name, *(f"{one.area(method):+.4f}" for method in methods)]
        for name, one in found.items()
        if one.has("alone", "ordered")
    ]
    return markdown_table(["data", *methods], rows)


TABLES: dict[str, Callable[[dict[str, Measured]], str]] = {
    "criteria": _summary,
    "missed": _missed,
    "scores": _scores,
    "starts": _starts,
    "cuts": _cuts,
    "areas": _areas,
}
