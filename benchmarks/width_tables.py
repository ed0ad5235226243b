"""The tables of docs/width.md, from the rows under results/width."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable
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


def _summary(found: dict[str, Measured]) -> str:
    every = list(found.values())
    ratios = [one.units("chosen") / one.smallest_fixed() for one in every]
    spreads = [statistics.stdev(_units(one, "chosen")) / statistics.mean(_units(one, "chosen")) for one in every]
    times = [one.of("chosen")[0]["seconds"] / one.of("before")[0]["seconds"] for one in every]
    rows = [
        [
            "score at least that of the best fixed width, within a standard error",
            "17 of 20",
            _count(one.behind()[0] <= one.behind()[1] + 1e-12 for one in every),
        ],
        [
            "units over those of the smallest fixed width within a standard error of the best",
            "median 1.5, largest 4",
            f"median {statistics.median(ratios):.2f}, largest {max(ratios):.2f}",
        ],
        [
            "standard deviation of the width over seeds, relative to its mean",
            "median 35 %",
            f"median {100 * statistics.median(spreads):.0f} %",
        ],
    ]
    for field, name in (("learned", "by gradient alone"), ("units", "after choosing")):
        close = (_ratio(one.units("from 32", field), one.units("from 512", field)) <= 1.5 for one in every)
        rows.append([f"from 32 and from 512 units within a factor of 1.5, {name}", "16 of 20", _count(close)])
    for kept, most, target in ((0.7, 0.005, "20 of 20"), (0.5, 0.01, "16 of 20")):
        for method in ("learned", "ordered"):
            lost = (one.lost(f"{method}, repaired", kept) < most for one in every)
            text = (
                f"{method} network cut by {100 * (1 - kept):.0f} % and repaired: less than {100 * most:g} points lost"
            )
            rows.append([text, target, _count(lost)])
    rows.append(
        [
            "processor time over that of a training with the defaults of before",
            "1",
            f"median {statistics.median(times):.2f}, largest {max(times):.2f}",
        ]
    )
    return markdown_table(["criterion", "target", "result"], rows)


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
    "scores": _scores,
    "starts": _starts,
    "cuts": _cuts,
    "areas": _areas,
}
