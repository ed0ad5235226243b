"""Report data: the content of a report, as plain values that JSON can represent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from awn.basics.plain import to_numbers, to_plain
from awn.basics.schema import find_fault
from awn.errors import ArgumentError
from awn.report.schema import REPORT
from awn.report.table_data import ColumnFacts, Dependence, HardRows, Leader, SizeCurve

Task = Literal["classification", "regression"]
Value = str | int | float | None
EpochRow = Mapping[str, Any]


@dataclass(frozen=True)
class LayerCurve:
    """The importance of a layer's units in order, continued beyond the width `units` to show the tail."""

    name: str
    importance: Sequence[float]
    units: int
    quantile: float
    nu: float


@dataclass(frozen=True)
class TruncationPoint:
    """A truncation that keeps the fraction `keep` of a model's units."""

    keep: float
    units: Mapping[str, int]
    parameters: int
    score: float
    latency_ms: float

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise ArgumentError(f"keep must be a fraction above 0 and at most 1, got {self.keep}.")


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix: `counts[actual][predicted]`."""

    labels: Sequence[str]
    counts: Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        size = len(self.labels)
        if len(self.counts) != size or any(len(row) != size for row in self.counts):
            raise ArgumentError(
                f"counts must have one row and one column for each of the {size} labels, "
                f"got rows of {[len(row) for row in self.counts]}."
            )


@dataclass(frozen=True)
class Residuals:
    """Actual and predicted values, row by row."""

    actual: Sequence[float]
    predicted: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.actual) != len(self.predicted):
            raise ArgumentError(
                f"there are {len(self.actual)} actual values but {len(self.predicted)} predicted values."
            )


@dataclass(frozen=True)
class ReportData:
    """The content of the report of a run. A part that is empty or None is left out.

    `history` has one row an epoch: `epoch`; the loss terms `total`, `data`, `weights`, `width`, `budget`; `score` and
    `train_score`, None without one; `widths` and `nu` by layer; and `best`, true where the score was the best so far.
    The last such row is the best epoch. `activations` has for every layer the lists `low`, `mean` and `high`, with an
    entry a unit. `answer` is the result in one line. `size_curve` has the score against size, `leaders` the models to
    compare on `leader_rows`, `columns` the facts about the columns of a table, or the first of `column_count`, with
    importances in `importance_name`, and `hard_rows` the worst-predicted rows. `truncation_rows` says which rows the
    truncations are scored on, `kept_because` which epoch was kept and why, and `max_units` is the limit of a layer.
    `measures` has for each network and measure the numbers `value`, `low` and `high`, the ends of a 95 % interval.
    `calibration` has the lists `confidence`, `accuracy` and `rows`, with an entry a bin, the expected calibration
    `error`, and the `temperature`; or, for numbers, the coverage that was `wanted` of prediction intervals, the share
    of rows that they `covered`, and their `width`.

    >>> data = ReportData("adult.csv", "classification", "accuracy", headline=[("accuracy", 0.86)])
    >>> ReportData.from_json(data.to_json()) == data
    True
    """

    title: str
    task: Task
    score_name: str
    headline: Sequence[tuple[str, Value]] = field(default_factory=list)
    history: Sequence[EpochRow] = field(default_factory=list)
    layers: Sequence[LayerCurve] = field(default_factory=list)
    truncation: Sequence[TruncationPoint] = field(default_factory=list)
    activations: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    confusion: Confusion | None = None
    residuals: Residuals | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = field(default_factory=list)
    measures: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Any] | None = None
    answer: str = ""
    size_curve: SizeCurve | None = None
    leaders: Sequence[Leader] = field(default_factory=list)
    leader_rows: str = ""
    columns: Sequence[ColumnFacts] = field(default_factory=list)
    column_count: int = 0
    importance_name: str = ""
    dependences: Sequence[Dependence] = field(default_factory=list)
    hard_rows: HardRows | None = None
    truncation_rows: str = ""
    kept_because: str = ""
    max_units: int | None = None

    def __post_init__(self) -> None:
        if self.task not in get_args(Task):
            raise ArgumentError(f"task must be 'classification' or 'regression', got {self.task!r}.")
        if not all("epoch" in row for row in self.history):
            raise ArgumentError("every row of history needs an epoch.")
        if len({tuple(point.units) for point in self.truncation}) > 1:
            raise ArgumentError("all points of truncation must list the same layers, in the same order.")
        for layer, bands in self.activations.items():
            lengths = {name: len(bands[name]) if name in bands else None for name in ("low", "mean", "high")}
            if None in lengths.values() or len(set(lengths.values())) != 1:
                raise ArgumentError(
                    f"the activations of layer {layer!r} need low, mean and high with one entry per unit; "
                    f"the lengths are {lengths}."
                )

    def to_json(self) -> dict[str, Any]:
        """The data in the types of JSON. Non-finite numbers become "nan", "inf" and "-inf".

        >>> ReportData("run", "regression", "R²", history=[{"epoch": 1, "score": float("nan")}]).to_json()["history"]
        [{'epoch': 1, 'score': 'nan'}]
        """
        content: dict[str, Any] = to_plain(self)
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ReportData:
        """Restore the data from `to_json`; unknown entries are ignored."""
        fault = find_fault(content, REPORT)
        if fault is not None:
            raise ArgumentError(f"this is not the data of a report: {fault}. Make it from the run again.")
        try:
            known = {own.name: content[own.name] for own in dataclasses.fields(cls) if own.name in content}
            return cls(**{name: _READERS[name](value) if name in _READERS else value for name, value in known.items()})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError(
                f"this is not the data of a report ({type(error).__name__}: {error}): it was edited, or written by "
                "another version of awn. Make it from the run again."
            ) from None


def _epoch(row: EpochRow) -> EpochRow:
    return {name: value if name == "path" else to_numbers(value) for name, value in row.items()}


def _layer(content: Mapping[str, Any]) -> LayerCurve:
    return LayerCurve(**{name: value if name == "name" else to_numbers(value) for name, value in content.items()})


def _confusion(content: Mapping[str, Any] | None) -> Confusion | None:
    return None if content is None else Confusion(content["labels"], to_numbers(content["counts"]))


def _residuals(content: Mapping[str, Any] | None) -> Residuals | None:
    return None if content is None else Residuals(**to_numbers(content))


def _leader(content: Mapping[str, Any]) -> Leader:
    return Leader(content["name"], **to_numbers({name: value for name, value in content.items() if name != "name"}))


def _leaders(content: Sequence[Mapping[str, Any]]) -> list[Leader]:
    return [_leader(one) for one in content]


def _size_curve(content: Mapping[str, Any] | None) -> SizeCurve | None:
    if content is None:
        return None
    final = None if content["final"] is None else _leader(content["final"])
    return SizeCurve(
        _leaders(content["points"]), content["chosen"], content["rows"], final, _leaders(content["others"])
    )


def _column(content: Mapping[str, Any]) -> ColumnFacts:
    words = ("name", "kind", "labels")
    return ColumnFacts(**{name: value if name in words else to_numbers(value) for name, value in content.items()})


def _dependence(content: Mapping[str, Any]) -> Dependence:
    return Dependence(content["column"], content["values"], to_numbers(content["curves"]))


_READERS: dict[str, Callable[[Any], Any]] = {
    "size_curve": _size_curve,
    "leaders": _leaders,
    "columns": lambda content: [_column(column) for column in content],
    "dependences": lambda content: [_dependence(one) for one in content],
    "hard_rows": lambda content: None if content is None else HardRows(content["head"], content["rows"]),
    "headline": lambda content: [(label, value) for label, value in content],
    "history": lambda rows: [_epoch(row) for row in rows],
    "layers": lambda content: [_layer(layer) for layer in content],
    "truncation": lambda content: [TruncationPoint(**to_numbers(point)) for point in content],
    "activations": to_numbers,
    "confusion": _confusion,
    "residuals": _residuals,
}
