"""What is to be learned from a table, and what came of it, as data and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from awn.basics.names import listed
from awn.tabular.read.target import Task

#: What the networks whose scores are told of are called, wherever people read it.
SCORES = {"adaptive": "learned width", "fixed": "same width, fixed", "baseline": "baseline"}
_BASELINES = {"classification": "the most frequent class", "regression": "the mean"}
SCORE_NAMES: dict[Task, str] = {"classification": "accuracy", "regression": "R²"}


def network_name(score: str, task: str) -> str:
    """The network of a score, with what the baseline says of every row.

    >>> network_name("adaptive", "regression"), network_name("baseline", "regression")
    ('learned width', 'baseline (the mean)')
    """
    name = SCORES.get(score, score)
    return f"{name} ({_BASELINES[task]})" if score == "baseline" and task in _BASELINES else name


class Start(NamedTuple):
    """What is known before the first epoch: what the target was taken for, and what is learned from.

    `columns` counts those of the table, those that are used, and the inputs that they make.
    """

    task: Task
    score_name: str
    classes: list[str] | None
    rows: dict[str, int]
    columns: dict[str, int]
    notes: list[str]


@dataclass(frozen=True)
class TableFit:
    """What came of fitting a table: scores on rows that were held out, widths, size, time, and where it is all kept.

    Of `epochs` the network of `kept_epoch` is kept; `at_cap` has the layers that ended with all the units that they
    may have, with their number.
    """

    task: Task
    score_name: str
    classes: list[str] | None
    rows: dict[str, int]
    columns: dict[str, int]
    scores: dict[str, float]
    widths: dict[str, int]
    at_cap: dict[str, int]
    parameters: int
    epochs: int
    kept_epoch: int
    stopped_early: bool
    seconds: float
    folder: str
    model: str
    report: str
    notes: list[str]

    def ending(self) -> list[str]:
        """How the training ended, in words, and what might be changed."""
        if self.stopped_early:
            said = [
                f"stopped early, after {self.epochs} epochs: none after epoch {self.kept_epoch} was better; it is kept"
            ]
        elif self.kept_epoch < self.epochs:
            said = [f"trained for all {self.epochs} epochs; epoch {self.kept_epoch}, the best, is kept"]
        else:
            said = [f"trained for all {self.epochs} epochs; the last is kept, and more (--epochs) may do better"]
        if self.at_cap:
            cap = max(self.at_cap.values())
            said.append(
                f"ended at the cap of {cap} units: {', '.join(self.at_cap)}; a higher --max-units may do better"
            )
        return said


def describe_target(target: str, task: Task, classes: list[str] | None, reason: str) -> str:
    """What a target was taken for, and why.

    >>> describe_target("pet", "classification", ["cat", "dog"], "'pet' holds words: 2 classes")
    "classification of 'pet' into 'cat', 'dog': 'pet' holds words: 2 classes"
    >>> describe_target("price", "regression", None, "as stated")
    "regression of 'price': as stated"
    """
    into = "" if classes is None else f" into {listed(classes)}"
    return f"{task} of {target!r}{into}: {reason}"


def describe_rows(rows: dict[str, int], columns: dict[str, int]) -> str:
    """What is learned from.

    >>> describe_rows({"train": 1200, "test": 300}, {"table": 5, "used": 4, "inputs": 9})
    '1,200 rows to learn from, 300 held out; 4 of 5 columns used, as 9 inputs'
    """
    return (
        f"{rows['train']:,} rows to learn from, {rows['test']:,} held out; "
        f"{columns['used']:,} of {columns['table']:,} columns used, as {columns['inputs']:,} inputs"
    )
