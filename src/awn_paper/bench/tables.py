"""Benchmark of the estimators on eighteen real tables, against boosting, linear models and other networks.

A fifth of the rows is the test set; the splits differ by their seed, and all methods have the same. Score, log-loss or
RMSE, the processor time of the fit, units and size on disk, a row per table, split and method. One thread.
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from awn.basics.text_table import markdown_table
from awn.basics.timing import threads
from awn.errors import ArgumentError
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn_paper.bench.table_data import TABLES, TUNED_ON, Table
from awn_paper.bench.table_methods import METHODS, OWN, available, megabytes, plain_frame, quietly

SPLITS = (0, 1, 2)
#: These are at most this far behind and count as equally good.
EQUAL = 0.002
Row = dict[str, Any]
Rows = dict[str, list[Row]]


def measure(
    folder: Path,
    *,
    tables: Sequence[str] = (),
    methods: Sequence[str] = (),
    splits: Sequence[int] = SPLITS,
    tell: Callable[[str], None] = print,
) -> None:
    """Fit every method to every split of every table, and write a file per table. What is there is not repeated."""
    from threadpoolctl import threadpool_limits

    for given, known in ((tables, TABLES), (methods, METHODS)):
        for name in given:
            if name not in known:
                raise ArgumentError(f"there is no {name!r}. There are: {', '.join(known)}.")
    made = provenance(splits=list(splits))
    with threads(1), threadpool_limits(1):
        for name in tables or TABLES:
            path = folder / f"{name}.json"
            content = json.loads(path.read_text()) if path.is_file() else {"from": {}, "rows": []}
            done = {(row["split"], row["method"]) for row in content["rows"]}
            table = None
            # Methods take turns, so that a busy machine slows all of them alike.
            for split, method in itertools.product(splits, methods or METHODS):
                if (split, method) not in done and available(method):
                    table = table or TABLES[name]()
                    content["rows"].append({"split": split, "method": method, **_fit(table, method, split)})
                    content["from"][method] = made
                    write_files({path: json_file(content)})
                    tell(f"{name}: {content['rows'][-1]}")


def _fit(table: Table, method: str, split: int) -> Row:
    """One fit and its measures on the test rows."""
    from sklearn.model_selection import train_test_split

    X, y, task = table
    classifies = task == "classification"
    frame = X if method in OWN else plain_frame(X)
    rows, test, target, wanted = train_test_split(
        frame, y, test_size=0.2, random_state=split, stratify=y if classifies else None
    )
    started = time.process_time()
    model, units = quietly(lambda: METHODS[method](rows, target, task, split))
    seconds = time.process_time() - started
    score, loss = _judge(model, test, wanted, classifies)
    size = {} if units is None else {"units": units}
    return {
        "score": score,
        "loss": loss,
        "cpu_seconds": round(seconds, 3),
        "megabytes": round(megabytes(model), 4),
        **size,
    }


def _judge(model: Any, test: Any, wanted: Any, classifies: bool) -> tuple[float, float]:
    """Accuracy and log-loss, or R² and the root mean squared error."""
    from sklearn.metrics import log_loss, r2_score, root_mean_squared_error

    if classifies:
        chances = np.asarray(model.predict_proba(test), dtype=np.float64)
        hits = model.classes_[chances.argmax(1)] == np.asarray(wanted)
        return float(hits.mean()), float(log_loss(wanted, chances, labels=model.classes_))
    predicted = np.asarray(model.predict(test)).ravel()
    return float(r2_score(wanted, predicted)), float(root_mean_squared_error(wanted, predicted))


def read(folder: Path) -> Rows:
    """The rows of all tables of a folder, in the order of the benchmark."""
    found = {name: folder / f"{name}.json" for name in TABLES}
    rows = {name: json.loads(path.read_text())["rows"] for name, path in found.items() if path.is_file()}
    if not rows:
        raise ArgumentError(f"there are no results of `awn bench tables` in {folder}: measure first, without --show.")
    return rows


def with_results(page: str, rows: Rows) -> str:
    """A page with its tables written anew: each stands between `<!-- name -->` and `<!-- end -->`."""
    for name, table in SECTIONS.items():
        mark = re.compile(f"<!-- {name} -->.*?<!-- end -->", re.DOTALL)
        if not mark.search(page):
            raise ArgumentError(f"the page has no mark <!-- {name} --> … <!-- end -->.")
        page = mark.sub("\n".join([f"<!-- {name} -->", table(rows), "<!-- end -->"]).replace("\\", r"\\"), page)
    return page


def mean(rows: Iterable[Row], method: str, field: str) -> float | None:
    """The mean of a measure over the splits; None if the method was not measured."""
    values = [row[field] for row in rows if row["method"] == method and field in row]
    return statistics.fmean(values) if values else None


def _present(rows: Rows, splits: Sequence[int]) -> list[str]:
    """The methods that have these splits of all tables."""
    found = [{(row["split"], row["method"]) for row in each} for each in rows.values()]
    return [one for one in METHODS if all((split, one) in each for each in found for split in splits)]


def ranks(rows: Rows, field: str, methods: Sequence[str]) -> dict[str, float]:
    """The mean rank of every method over the tables, 1 is the best; equal measures share a rank."""
    from scipy.stats import rankdata

    sign = -1 if field == "score" else 1
    each = [rankdata([sign * (mean(one, method, field) or 0.0) for method in methods]) for one in rows.values()]
    return dict(zip(methods, np.mean(each, axis=0).tolist(), strict=True))


def _measures(field: str) -> Callable[[Rows], str]:
    def cell(each: list[Row], method: str) -> str:
        found = mean(each, method, field)
        fewer = sum(row["method"] == method for row in each) < len(SPLITS)
        return "–" if found is None else _digits(found) + (" †" if fewer else "")

    def table(rows: Rows) -> str:
        methods = [method for method in METHODS if any(mean(each, method, field) is not None for each in rows.values())]
        lines = [
            [name + ("" if name in TUNED_ON else " *"), *(cell(each, method) for method in methods)]
            for name, each in rows.items()
        ]
        return markdown_table(["table", *methods], lines)

    return table


def _digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.4f}" if number < 2 else f"{number:.2f}"


def _costs(rows: Rows) -> str:
    head = ["table", "CPU s", "CPU s, boosting", "ratio", "CPU s, one network", "units", "units, one network"]
    head += ["MB", "MB, boosting"]
    lines = []
    for name, each in rows.items():
        own, other = mean(each, "adaptive", "cpu_seconds"), mean(each, "boosting", "cpu_seconds")
        assert own is not None
        assert other is not None
        single = mean(each, "one network", "cpu_seconds")
        cells = [f"{own:.1f}", f"{other:.2f}", f"{own / other:.1f}", "–" if single is None else f"{single:.1f}"]
        for method in ("adaptive", "one network"):
            units = mean(each, method, "units")
            cells.append("–" if units is None else f"{units:.0f}")
        sizes = (mean(each, "adaptive", "megabytes"), mean(each, "boosting", "megabytes"))
        lines.append([name, *cells, *(f"{size or 0:.2f}" for size in sizes)])
    return markdown_table(head, lines)


def _ranking(splits: Sequence[int]) -> Callable[[Rows], str]:
    def table(rows: Rows) -> str:
        some = {name: [row for row in each if row["split"] in splits] for name, each in rows.items()}
        methods = _present(some, splits)
        scores, losses = ranks(some, "score", methods), ranks(some, "loss", methods)
        best_first = sorted(methods, key=lambda method: scores[method])
        lines = [[method, f"{scores[method]:.2f}", f"{losses[method]:.2f}"] for method in best_first]
        return markdown_table(["method", "mean rank, score", "mean rank, log-loss or RMSE"], lines)

    return table


def differences(rows: Rows, method: str = "adaptive") -> dict[str, float]:
    """The score of a method minus that of boosting, by table."""
    return {
        name: (mean(each, method, "score") or 0.0) - (mean(each, "boosting", "score") or 0.0)
        for name, each in rows.items()
    }


def _criteria(rows: Rows) -> str:
    default, one = (_results(rows, method) for method in ("adaptive", "one network"))
    lines = [[words, target, found, other] for (words, target, found), (*_, other) in zip(default, one, strict=True)]
    return markdown_table(["criterion, against boosting", "target", "default", "`members=1`"], lines)


def _results(rows: Rows, method: str) -> list[tuple[str, str, str]]:
    """Every criterion, its target, and what a method reaches."""
    ahead, lines = differences(rows, method), []
    for field, words in (("score", "score"), ("loss", "log-loss or RMSE")):
        both = ranks(rows, field, [method, "boosting"])
        lines.append((f"mean rank by {words}", "ahead", f"{both[method]:.2f} against {both['boosting']:.2f}"))
    good = sum(each >= -EQUAL for each in ahead.values())
    lines.append((f"at least as good, within {EQUAL}", "12 of 18", f"{good} of {len(ahead)}"))
    worst = min(ahead, key=ahead.__getitem__)
    lines.append(("farthest behind", "0.03", f"{max(0.0, -ahead[worst]):.4f} ({worst})"))
    for name, least in (("ames", 0.86), ("concrete", 0.91), ("california-housing", 0.83), ("adult", 0.866)):
        if name in rows:
            lines.append((f"score on {name}", f"{least}", f"{mean(rows[name], method, 'score') or 0.0:.4f}"))
    seconds = {name: mean(each, method, "cpu_seconds") or 0.0 for name, each in rows.items()}
    ratios = [seconds[name] / (mean(each, "boosting", "cpu_seconds") or 1.0) for name, each in rows.items()]
    lines.append(("processor time over that of boosting, median", "5", f"{statistics.median(ratios):.1f}"))
    lines.append(("processor time on any table", "60 s", f"{max(seconds.values()):.1f} s"))
    return lines


SECTIONS: dict[str, Callable[[Rows], str]] = {
    "criteria": _criteria,
    "ranks": _ranking(SPLITS),
    "first ranks": _ranking(SPLITS[:1]),
    "scores": _measures("score"),
    "losses": _measures("loss"),
    "costs": _costs,
}
