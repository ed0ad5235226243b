"""Benchmark 3, to the answer: one adaptive training against searches for a width.

All networks have the same number of hidden layers and train for at most the same number of epochs, except those of
scikit-learn, which stop by its own rule. Every method finds its network by the training rows alone, and is judged on
rows that none has seen. Several seeds, each with another split: the mean score, the mean difference of the scores with
its standard error, and the median processor seconds and units. All have one thread, and take turns.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd

from awn.basics.timing import ratio, threads
from awn.datasets import spiral_hard
from awn.errors import DataError
from awn.training import flush_denormals
from awn_paper.bench.searches import Answer, Task, five_widths, optuna_search, sklearn_search
from awn_paper.bench.table_data import TABLES, Table

TITLE = "To the answer"
#: The data, with the number of hidden layers and of epochs.
DATA = {
    "concrete": (2, 50),
    "satellite": (2, 12),
    "pol": (2, 10),
    "SpiralHard": (4, 25),
    "credit-default": (2, 6),
    "california-housing": (2, 38),
}
_TEST = 0.2
Found = dict[str, float]


def run(*, quick: bool = False) -> Iterator[dict[str, Any]]:
    """One adaptive training and three searches on six data sets; rows come as they are found."""
    from threadpoolctl import threadpool_limits

    rows: list[dict[str, Any]] = []
    # scikit-learn's threads are those of NumPy's own library.
    with threads(1), threadpool_limits(1), flush_denormals():
        for find in METHODS.values():  # once with a few rows: the first time, libraries are loaded
            find(_task(_spiral(100), layers=2, epochs=1, seed=0), 0)
        for name, (layers, epochs) in DATA.items():
            try:
                table = _spiral(100 if quick else 5000) if name == "SpiralHard" else TABLES[name]()
            except DataError:
                yield {"data": name, "method": "not measured: AWN_DATA names no folder that has it"}
                continue
            runs: dict[str, list[Found]] = {method: [] for method in METHODS}
            for seed in range(2 if quick else 5):
                task = _task(table, layers, 1 if quick else epochs, seed)
                for method, find in METHODS.items():
                    runs[method].append(_timed(partial(find, task, seed)))
            found = [{"data": name, "method": method, **_together(each, runs)} for method, each in runs.items()]
            yield from found
            rows += found
    yield from _medians(rows)


def _timed(find: Callable[[], Answer]) -> Found:
    started = time.process_time()
    answer = find()
    return {"score": answer.score, "seconds": time.process_time() - started, "units": answer.units}


def _together(found: Sequence[Found], runs: dict[str, list[Found]]) -> dict[str, Any]:
    """What several seeds found, as one row, compared with the adaptive training."""
    scores, seconds, units = ([each[name] for each in found] for name in ("score", "seconds", "units"))
    own = runs["adaptive"]
    ahead = [mine["score"] - other for mine, other in zip(own, scores, strict=True)]
    return {
        "score": round(statistics.mean(scores), 4),
        "adaptive − this": round(statistics.mean(ahead), 4),
        "std. error": round(statistics.stdev(ahead) / math.sqrt(len(ahead)), 4),
        "seconds": round(statistics.median(seconds), 2),
        "units": round(statistics.median(units)),
        "adaptive / this": ratio([mine["seconds"] for mine in own], seconds),
    }


def _medians(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The median ratio of the processor time over the data sets, for each search."""
    medians = []
    for method in METHODS:
        ratios = [row["adaptive / this"] for row in rows if row["method"] == method]
        if ratios and method != "adaptive":
            middle = round(statistics.median(ratios), 3)
            medians.append({"data": "median", "method": method, "adaptive / this": middle})
    return medians


def _adaptive(task: Task, seed: int) -> Answer:
    """One network of the estimators, with the choice of its width, its repair and its fine-tuning."""
    from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor

    kind = AdaptiveClassifier if task.classifies else AdaptiveRegressor
    model = kind(task.layers, epochs=task.epochs, members=1, random_state=seed).fit(*task.train)
    return Answer(float(model.score(*task.test)), sum(model.widths_.values()))


METHODS: dict[str, Callable[[Task, int], Answer]] = {
    "adaptive": _adaptive,
    "five widths, PyTorch": five_widths,
    "Optuna, PyTorch": optuna_search,
    "five widths, scikit-learn": sklearn_search,
}


def _spiral(per_class: int) -> Table:
    data = spiral_hard(per_class=per_class)
    return pd.DataFrame(data.x.numpy(), columns=["x", "y"]), pd.Series(data.y.numpy()), "classification"


def _task(table: Table, layers: int, epochs: int, seed: int) -> Task:
    from sklearn.model_selection import train_test_split

    features, target, kind = table
    classifies = kind == "classification"
    stratify = target if classifies else None
    x, test, y, test_y = train_test_split(features, target, test_size=_TEST, random_state=seed, stratify=stratify)
    return Task((x, y), (test, test_y), classifies, layers, epochs)
