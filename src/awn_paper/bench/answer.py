"""Benchmark 3, to the answer: one adaptive training against a search over five fixed widths.

All train with at most the same number of epochs and the same patience on the same rows; a search keeps the width that
is best on a part of the training rows, and is judged, as the adaptive network, on rows that none has seen. Several
seeds: their mean score, the range of their scores, and their median seconds and units. Seconds are those of the clock
on the wall, and all that trains has one thread.
"""

from __future__ import annotations

import gzip
import os
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from awn.basics.timing import ratio, threads
from awn.core.families import Exponential
from awn.core.resize import resize_
from awn.datasets import Split, spiral_hard, split
from awn.loss.objective import objective
from awn.nn.mlp import AdaptiveMLP
from awn.training import flush_denormals
from awn_paper.bench.pairs import mlp

TITLE = "To the answer"
WIDTHS = (16, 32, 64, 128, 256)
_ACCURACY = 0.995
Samples = tuple[Any, Any]
Found = dict[str, float]


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """The time to 99.5 % on SpiralHard, learned and fixed widths; then adaptive trainings and searches on tables."""
    from threadpoolctl import threadpool_limits

    epochs = 1 if quick else 60
    spiral = split(spiral_hard(per_class=100 if quick else 5000))
    seeds = range(2 if quick else 5)
    data: dict[str, tuple[Samples, Samples] | None] = {"SpiralHard": _as_samples(spiral)}
    if not quick:
        data |= {"pol": _pol(), "credit": _credit()}
    rows: list[dict[str, Any]] = []
    # scikit-learn's threads are those of NumPy's own library.
    with threads(1), threadpool_limits(1), flush_denormals():
        for method in ("adaptive", "fixed"):
            found = [_to_accuracy(spiral, method, 1 if quick else 200, seed) for seed in seeds]
            rows.append({"data": f"SpiralHard to {_ACCURACY:.1%}", "method": method, **_together(found)})
        for fit in METHODS.values():  # once with a few rows: the first time, libraries are loaded
            fit(*_as_samples(split(spiral_hard(per_class=100))), 2, 1, 0)
        for name, parts in data.items():
            if parts is None:
                rows.append({"data": name, "method": "not measured: AWN_DATA names no folder that has it"})
                continue
            layers = 4 if name == "SpiralHard" else 2
            runs: dict[str, list[Found]] = {method: [] for method in METHODS}
            for seed in seeds:
                for method, fit in METHODS.items():
                    runs[method].append(fit(*parts, layers, epochs, seed))
            taken = {method: [found["seconds"] for found in each] for method, each in runs.items()}
            for method, each in runs.items():
                compared = {"adaptive / this": ratio(taken["adaptive"], taken[method])}
                rows.append({"data": name, "method": method, **_together(each), **compared})
    return rows


def _together(found: Sequence[Found]) -> dict[str, Any]:
    """What several seeds found, as one row."""
    scores = [each["score"] for each in found]
    middle = {name: statistics.median(each[name] for each in found) for name in found[0] if name != "score"}
    return {
        "score": round(statistics.mean(scores), 4),
        "scores": f"{min(scores):.4f}–{max(scores):.4f}",
        **{name: round(number, 2) if name == "seconds" else round(number) for name, number in middle.items()},
    }


def _to_accuracy(data: Split, method: str, epochs: int, seed: int) -> Found:
    """Training four layers from 231 units until the validation accuracy is reached, with Adam at 0.01."""
    torch.manual_seed(seed)
    train, validation, _ = data
    model = AdaptiveMLP(2, 2, 4, activation="relu6", importance=Exponential.for_units(231, scale="unit"))
    learns = method == "adaptive"
    network = model if learns else mlp([2, *[231] * 4, 2], torch.nn.ReLU6)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01, fused=True)
    started, epoch, accuracy = time.perf_counter(), 0, 0.0
    while accuracy < _ACCURACY and epoch < epochs:
        for rows in torch.randperm(len(train.y)).split(128):
            nll = F.cross_entropy(network(train.x[rows]), train.y[rows])
            loss = objective(nll, model, n_samples=len(train.y)) if learns else nll
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if learns:
                resize_(model, optimizer)
        with torch.no_grad():
            accuracy = (network(validation.x).argmax(1) == validation.y).float().mean().item()
        epoch += 1
    return {"score": accuracy, "seconds": time.perf_counter() - started, "epochs": epoch}


def _adaptive(train: Samples, test: Samples, layers: int, epochs: int, seed: int) -> Found:
    from awn.tabular.estimators import AdaptiveClassifier

    started = time.perf_counter()
    model = AdaptiveClassifier(layers, epochs=epochs, random_state=seed).fit(*train)
    seconds = time.perf_counter() - started
    return {"score": model.score(*test), "seconds": seconds, "units": sum(model.widths_.values())}


def _torch_search(train: Samples, test: Samples, layers: int, epochs: int, seed: int) -> Found:
    """The same network and the same loop, with fixed widths."""
    from awn.tabular.estimators import AdaptiveClassifier

    def make(width: int) -> Any:
        return AdaptiveClassifier(layers, epochs=epochs, random_state=seed, fixed_widths=[width] * layers)

    return _search(make, train, test, layers, seed)


def _sklearn_search(train: Samples, test: Samples, layers: int, epochs: int, seed: int) -> Found:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def make(width: int) -> Any:
        sizes = (width,) * layers
        network = MLPClassifier(sizes, max_iter=epochs, early_stopping=True, n_iter_no_change=20, random_state=seed)
        return make_pipeline(StandardScaler(), network)

    return _search(make, train, test, layers, seed)


def _search(make: Callable[[int], Any], train: Samples, test: Samples, layers: int, seed: int) -> Found:
    from sklearn.model_selection import train_test_split

    started = time.perf_counter()
    some, others, some_y, others_y = train_test_split(*train, test_size=0.1, random_state=1 + seed, stratify=train[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, of a training that ends at its last epoch
        fits = {width: make(width).fit(some, some_y) for width in WIDTHS}
    best = max(fits, key=lambda width: float(fits[width].score(others, others_y)))
    seconds = time.perf_counter() - started
    return {"score": fits[best].score(*test), "seconds": seconds, "units": best * layers}


METHODS = {
    "adaptive": _adaptive,
    "five widths, PyTorch": _torch_search,
    "five widths, scikit-learn": _sklearn_search,
}


def _as_samples(data: Split) -> tuple[Samples, Samples]:
    train, validation, test = data
    both = (torch.cat([train.x, validation.x]).numpy(), torch.cat([train.y, validation.y]).numpy())
    return both, (test.x.numpy(), test.y.numpy())


def _pol() -> tuple[Samples, Samples] | None:
    frame = _read("pol", "201_pol.tsv.gz", "\t")
    if frame is None:
        return None
    target = frame.pop("target")
    return _parts(frame, (target < target.mean()).astype(int))


def _credit() -> tuple[Samples, Samples] | None:
    frame = _read("credit-default", "UCI_Credit_Card.csv.gz", ",")
    if frame is None:
        return None
    target = frame.pop("default.payment.next.month")
    return _parts(frame.drop(columns="ID"), target)


def _read(folder: str, name: str, separator: str) -> Any:
    """A table of the folder that AWN_DATA names; None without it."""
    import pandas as pd

    path = Path(os.environ.get("AWN_DATA", ""), folder, name)
    if "AWN_DATA" not in os.environ or not path.is_file():
        return None
    with gzip.open(path, "rt") as file:
        return pd.read_csv(file, sep=separator)


def _parts(features: Any, target: Any) -> tuple[Samples, Samples]:
    from sklearn.model_selection import train_test_split

    train, test, y, test_y = train_test_split(features, target, test_size=0.2, random_state=0, stratify=target)
    return (train.to_numpy("float32"), y.to_numpy()), (test.to_numpy("float32"), test_y.to_numpy())
