"""The start and the result of a run on a table, as data and as text for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from awn.basics.names import listed
from awn.tabular.read.target import Task

#: The names of the scored networks, in all output for people.
SCORES = {
    "adaptive": "adaptive",
    "fixed": "fixed, same widths",
    "boosting": "gradient boosting",
    "linear": "linear",
    "baseline": "baseline",
}
_BASELINES = {"classification": "most frequent class", "regression": "mean"}
_IMBALANCE = 5  # times as many rows of the largest class as of the smallest
SCORE_NAMES: dict[Task, str] = {"classification": "accuracy", "regression": "R²"}


def network_name(score: str, task: str) -> str:
    """The name of a scored network, with the constant prediction of the baseline.

    >>> network_name("adaptive", "regression"), network_name("baseline", "regression")
    ('adaptive', 'baseline (mean)')
    """
    name = SCORES.get(score, score)
    return f"{name} ({_BASELINES[task]})" if score == "baseline" and task in _BASELINES else name


class Start(NamedTuple):
    """The facts known before the first epoch: the task, the numbers of rows and columns, and notes for the user.

    `columns` counts the table's columns, the columns used, and the inputs that they are encoded as.
    """

    task: Task
    score_name: str
    classes: list[str] | None
    rows: dict[str, int]
    columns: dict[str, int]
    notes: list[str]


@dataclass(frozen=True)
class TableFit:
    """The result of a run: scores on the test set, widths, size, time, and paths.

    The model is that of `kept_epoch`, out of `epochs`, cut from `learned_widths` to `widths`. It is the mean of several
    `networks`, whose units are counted together. `at_cap` has the layers that ended at their maximum number of units,
    with that number. `measures` has for each network the `value` of every measure on the test set, and the ends of its
    95 % interval, `low` and `high`. `training_path` is that of the history: "by hand" or "autograd".
    """

    task: Task
    score_name: str
    classes: list[str] | None
    rows: dict[str, int]
    columns: dict[str, int]
    scores: dict[str, float]
    measures: dict[str, dict[str, dict[str, float]]]
    networks: int
    widths: dict[str, int]
    learned_widths: dict[str, int]
    at_cap: dict[str, int]
    parameters: int
    epochs: int
    kept_epoch: int
    stopped_early: bool
    training_path: str
    seconds: float
    folder: str
    model: str
    report: str
    notes: list[str]

    def answer(self) -> str:
        """The result in one line: how many units are enough, how good they are, and how boosting compares."""
        learned, kept = sum(self.learned_widths.values()), sum(self.widths.values())
        enough = f"{kept} units are enough" if kept < learned else f"all {kept} learned units count"
        if self.networks > 1:
            enough += f" ({self.networks} networks of about {round(kept / self.networks)})"
        as_good = f", as good as all {learned} that were learned" if kept < learned else ""
        others = f"; gradient boosting: {self._with_interval('boosting')}" if "boosting" in self.scores else ""
        return f"{enough}: {self.score_name} {self._with_interval('adaptive')} on the test rows{as_good}{others}"

    def _with_interval(self, name: str) -> str:
        interval = self.measures[name].get(self.score_name)
        half = "" if interval is None else f" ± {(interval['high'] - interval['low']) / 2:.3f}"
        return f"{self.scores[name]:.3f}{half}"

    def ending(self) -> list[str]:
        """How the training ended, and which options may improve the result."""
        if not self.rows.get("validation"):
            notes = [
                f"trained for all {self.epochs} epochs; there are too few rows for a validation set, so the last "
                "epoch is kept, and no size is chosen"
            ]
        elif self.stopped_early:
            notes = [f"stopped early after {self.epochs} epochs; the model is from epoch {self.kept_epoch}, the best"]
        elif self.kept_epoch < self.epochs:
            notes = [f"trained for all {self.epochs} epochs; the model is from epoch {self.kept_epoch}, the best"]
        else:
            notes = [f"trained for all {self.epochs} epochs; the last was the best, so more --epochs may help"]
        learned, kept = sum(self.learned_widths.values()), sum(self.widths.values())
        if kept < learned:
            notes.append(f"the layers learned {learned} units, of which {kept} are as good on the validation rows")
        if self.at_cap:
            cap = max(self.at_cap.values())
            notes.append(f"{', '.join(self.at_cap)} reached the limit of {cap} units; a higher --max-units may help")
        return notes


def describe_target(target: str, task: Task, classes: list[str] | None, reason: str) -> str:
    """The task of a target, and the reason for it.

    >>> describe_target("pet", "classification", ["cat", "dog"], "'pet' has 2 distinct strings")
    "classification of 'pet' into 'cat', 'dog' ('pet' has 2 distinct strings)"
    >>> describe_target("price", "regression", None, "as specified")
    "regression of 'price' (as specified)"
    """
    into = "" if classes is None else f" into {listed(classes)}"
    return f"{task} of {target!r}{into} ({reason})"


def describe_rows(rows: dict[str, int], columns: dict[str, int]) -> str:
    """The numbers of rows, columns and inputs.

    >>> describe_rows({"train": 1200, "validation": 240, "test": 300}, {"table": 5, "used": 4, "inputs": 9})
    '1,200 training rows, 240 of them for validation, 300 test rows; 4 of 5 columns used, encoded as 9 inputs'
    """
    held = f" {rows['validation']:,} of them for validation," if rows.get("validation") else ""
    return (
        f"{rows['train']:,} training rows,{held} {rows['test']:,} test rows; "
        f"{columns['used']:,} of {columns['table']:,} columns used, encoded as {columns['inputs']:,} inputs"
    )


def describe_imbalance(target: pd.Series) -> str:
    """A note on classes of very different sizes, or an empty string.

    >>> describe_imbalance(pd.Series(["no"] * 9 + ["yes"]))
    "the classes are imbalanced: 90% of the rows are 'no' and 10% are 'yes'; the balanced accuracy weighs them ..."
    >>> describe_imbalance(pd.Series(["no", "yes"]))
    ''
    """
    shares = target.value_counts(normalize=True)
    most, least = shares.iloc[0], shares.iloc[-1]
    if most < _IMBALANCE * least:
        return ""
    return (
        f"the classes are imbalanced: {most:.0%} of the rows are {str(shares.index[0])!r} and {least:.0%} are "
        f"{str(shares.index[-1])!r}; the balanced accuracy weighs them equally, and so does training with --balanced"
    )
