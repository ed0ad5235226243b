"""What a report shows of an experiment, as data: tables, and plots of curves with bands."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from awn_paper.run import Record, total_width

NOT_RUN = "not run"


@dataclass(frozen=True)
class Table:
    """A table whose first column names its rows."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Series:
    """A curve, with a band around it if there is more than one run."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Plot:
    """Curves over a common axis. `key` is its file's name."""

    key: str
    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    log: bool = False


Shown = Table | Plot


@dataclass(frozen=True)
class Results:
    """The outcomes of an experiment in one profile."""

    outcomes: tuple[dict[str, Any], ...]

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets with results."""
        return tuple(dict.fromkeys(outcome["dataset"] for outcome in self.outcomes))

    def labels(self, dataset: str) -> tuple[str, ...]:
        """The cases of a data set."""
        return tuple(dict.fromkeys(o["label"] for o in self.outcomes if o["dataset"] == dataset))

    def final(self, dataset: str, label: str) -> list[Record]:
        """The final runs of a case, over all its folds, without those whose loss was lost."""
        return self._runs(dataset, label, "final")

    def selection(self, dataset: str, label: str) -> list[Record]:
        """The runs of a case's model selection, likewise."""
        return self._runs(dataset, label, "selection")

    def _runs(self, dataset: str, label: str, part: str) -> list[Record]:
        outcomes = [o for o in self.outcomes if (o["dataset"], o["label"]) == (dataset, label)]
        return [record for outcome in outcomes for record in outcome[part] if "failed" not in record]


def score(record: Record, part: str = "test") -> float:
    """The accuracy in per cent, or the loss of a data set of sentences."""
    found = record[part]
    return 100 * float(found["accuracy"]) if "accuracy" in found else float(found["loss"])


def at_end(record: Record) -> Record:
    """A run as it was after its last epoch. Records of older runs have the kept epoch alone, and stand with that."""
    return {**record, **record.get("last", {})}


def mean_std(values: Sequence[float], digits: int = 1) -> str:
    """A mean and a standard deviation, as the paper writes them.

    >>> mean_std([99.0, 100.0, 101.0]), mean_std([8]), mean_std([])
    ('100.0 (1.0)', '8.0', 'not run')
    """
    if not values:
        return NOT_RUN
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({statistics.stdev(values):.{digits}f})"


def scores(records: Sequence[Record], part: str = "test") -> str:
    """The scores of runs as mean and standard deviation."""
    digits = 1 if not records or "accuracy" in records[0][part] else 2
    return mean_std([score(record, part) for record in records], digits)


def widths(records: Sequence[Record]) -> str:
    """The total widths of runs as mean and standard deviation, or the one that all have."""
    totals = {total_width(record) for record in records}
    return str(*totals) if len(totals) == 1 else mean_std([total_width(record) for record in records])


def over_epochs(name: str, records: Sequence[Record], curve: Callable[[Record], Sequence[float]]) -> Series:
    """The mean over runs after each epoch, with a band of one standard deviation; ended runs keep their last value."""
    longest = max(records, key=lambda record: int(record["epochs"]))
    x = longest["history"]["epoch"]
    curves = [_at(x, record["history"]["epoch"], curve(record)) for record in records]
    means = tuple(statistics.fmean(values) for values in zip(*curves, strict=True))
    if len(records) == 1:
        return Series(name, tuple(x), means)
    spread = tuple(statistics.stdev(values) for values in zip(*curves, strict=True))
    low = tuple(mean - off for mean, off in zip(means, spread, strict=True))
    high = tuple(mean + off for mean, off in zip(means, spread, strict=True))
    return Series(name, tuple(x), means, low, high)


def width_curve(record: Record) -> list[float]:
    """The total width after every epoch of a history."""
    return [float(sum(units)) for units in zip(*record["history"]["widths"].values(), strict=True)]


def width_after(record: Record, epoch: int) -> float:
    """The total width after an epoch, or after the last one before it that the history has."""
    return _at([epoch], record["history"]["epoch"], width_curve(record))[0]


def score_curve(record: Record) -> list[float]:
    """The validation score after every epoch of a history, in per cent, or the loss."""
    sign = 100.0 if "accuracy" in record["validation"] else -1.0
    return [sign * value for value in record["history"]["score"]]


def width_and_score(key: str, what: str, groups: Mapping[str, Sequence[Record]]) -> list[Shown]:
    """The two plots that the paper has for most studies: width and validation accuracy, or loss, over the epochs."""
    groups = {name: records for name, records in groups.items() if records}
    if not groups:
        return []
    adaptive = {name: records for name, records in groups.items() if records[0]["history"]["widths"]}
    by_width = tuple(over_epochs(name, records, width_curve) for name, records in adaptive.items())
    by_score = tuple(over_epochs(name, records, score_curve) for name, records in groups.items())
    accuracy = all("accuracy" in run["validation"] for runs in groups.values() for run in runs)
    score_name, unit = ("accuracy", "accuracy, %") if accuracy else ("loss", "loss")
    return [
        Plot(f"{key}-width", f"Total width: {what}", "epoch", "units", by_width),
        Plot(f"{key}-score", f"Validation {score_name}: {what}", "epoch", unit, by_score),
    ]


def _at(x: Sequence[float], own: Sequence[float], values: Sequence[float]) -> list[float]:
    """A curve at other epochs: the last value that was known by then."""
    found, place = [], 0
    for epoch in x:
        while place + 1 < len(own) and own[place + 1] <= epoch:
            place += 1
        found.append(values[place])
    return found
