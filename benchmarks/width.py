"""Is the width that awn finds the right one? Twenty data sets, five seeds, against fixed widths.

Run: AWN_DATA=folder python benchmarks/width.py          (about half an hour on one core)
Writes a file per data set to results/width, a row per training. `--page` writes the tables of docs/width.md from them.
Data sets and trainings that are there already, with the same settings of the estimators, are not repeated; `--anew`
repeats them. Several processes can share the work, each with other `--sets`.

A quarter of the rows is the test set, read once, at the end. The estimators hold back a part of the others for
validation, the same rows for every method. Methods:

- chosen: the defaults: learn the widths, choose the smallest size that is as good on the validation rows, fine-tune.
- learned: without a cut (`choose="epoch"`); then cut by 30 %, 50 % and 70 %, plain and repaired.
- ordered: as "learned", in ordered training.
- chosen from 32, chosen from 512: the defaults from another initial width.
- fixed: ordinary networks of 16, 32, 64, 128 and 256 units per layer, and of the sizes of the cuts ("alone").
- before: the defaults of version 0.1 (unit scale, 128 units, no choice), for its processor time; one seed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split
from width_tables import with_tables

from awn.basics.plain import to_plain
from awn.datasets import Samples, double_moon, spiral, spiral_hard
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn_paper.bench.table_data import TABLES, Table, data_file, from_file

FIXED = (16, 32, 64, 128, 256)
KEPT = (0.7, 0.5, 0.3)
Row = dict[str, Any]


def points(make: Callable[..., Samples]) -> Callable[[], Table]:
    def load() -> Table:
        samples = make(seed=0)
        return pd.DataFrame(samples.x.numpy(), columns=["x", "y"]), pd.Series(samples.y.numpy()), "classification"

    return load


def adult() -> Table:
    """The first of the two files alone."""
    frame, target, task = TABLES["adult"]()
    with gzip.open(data_file("adult", "adult.data.gz"), "rt") as file:
        rows = sum(bool(line.strip()) for line in file)
    return frame[:rows], target[:rows], task


# The recipe was chosen on the first ten; the test rows of the others were read once, with the final recipe.
TUNED_ON: dict[str, Callable[[], Table]] = {
    "Spiral": points(spiral),
    "SpiralHard": points(spiral_hard),
    "pol": TABLES["pol"],
    "california-housing": TABLES["california-housing"],
    "digits": TABLES["digits"],
    "breast-cancer": TABLES["breast-cancer"],
    "concrete": from_file("concrete", "Concrete compressive strength(MPa, megapascals)", "regression"),
    "satellite": from_file("satellite", "classes", "classification"),
    "titanic": from_file(
        "titanic", "survived", "classification", ("name", "ticket", "cabin", "home.dest", "boat", "body")
    ),
    "abalone": from_file("abalone", "Rings", "regression"),
}
OTHERS: dict[str, Callable[[], Table]] = {
    "DoubleMoon": points(double_moon),
    "credit-default": TABLES["credit-default"],
    "adult": adult,
    "wine": TABLES["wine"],
    "ames": from_file("ames", "SalePrice", "regression", ("Order", "PID")),
    "bike-sharing": from_file("bike_sharing", "cnt", "regression", ("casual", "registered", "instant")),
    "diamonds": from_file("diamonds", "price", "regression"),
    "hpc": from_file("hpc", "class", "classification"),
    "telco-churn": from_file("telco_churn", "Churn", "classification", ("customerID",)),
    "bank-marketing": from_file("bank_marketing", "y", "classification"),
}
SETS = TUNED_ON | OTHERS
# The paper's depths and activation for its synthetic data, and more epochs; tables have the estimators' defaults.
OPTIONS: dict[str, Row] = {
    "DoubleMoon": {"hidden_layers": 1, "activation": "relu6", "epochs": 100},
    "Spiral": {"hidden_layers": 1, "activation": "relu6", "epochs": 250},
    "SpiralHard": {"hidden_layers": 4, "activation": "relu6", "epochs": 170},
}
# One network each: several, averaged, would be compared with single fixed ones.
ONE = {"members": 1}
BEFORE: Row = {
    "activation": "relu",
    "bins": 0,
    "lr": 0.01,
    "narrow": None,
    "scale": "unit",
    "units": 128,
    "max_units": 256,
    "quantile": 0.9,
    "weight_scale": 0.4,
    "width_lr": 0.01,
    "epochs": 200,
    "patience": 20,
    "schedule": "plateau",
    "validation_fraction": 0.1,
    "choose": None,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--options", type=json.loads, default={}, help="JSON of the estimators' options")
    parser.add_argument("--out", type=Path, default=Path("results/width"))
    parser.add_argument("--anew", action="store_true", help="measure again what is measured already")
    parser.add_argument("--page", type=Path, nargs="?", const=Path("docs/width.md"), help="write the tables of a page")
    asked = parser.parse_args()
    if asked.page:
        every = {name: json.loads(file_of(asked.out, name).read_text())["rows"] for name in SETS}
        write_files({asked.page: with_tables(asked.page.read_text(), every).encode()})
        return
    torch.set_num_threads(1)
    for name in asked.sets:
        measure(name, asked)


def measure(name: str, asked: argparse.Namespace) -> None:
    """All trainings on a data set that its file does not have yet."""
    X, y, task = SETS[name]()
    path, settings = file_of(asked.out, name), settings_of(name, task, asked.options)
    made_by = {**provenance(seeds=asked.seeds, options=asked.options), "settings": settings}
    rows = [] if asked.anew else rows_with(path, settings)
    done = {(row["seed"], row["asked"]) for row in rows}
    for seed in asked.seeds:
        trial = Trial(name, X, y, task, seed, asked.options)
        for method in asked.methods:
            if (seed, method) in done:
                continue
            found = [{"seed": seed, "asked": method, **row} for row in METHODS[method](trial)]
            rows += found
            write_files({path: json_file({"from": made_by, "rows": rows})})
            for row in found:
                print(name, row, flush=True)


def settings_of(name: str, task: str, options: Row) -> Row:
    """The parameters of the estimators, defaults included: rows of an earlier run count if theirs were the same."""
    estimator: Any = (AdaptiveClassifier if task == "classification" else AdaptiveRegressor)(
        **{**ONE, **OPTIONS.get(name, {}), **options}
    )
    return {key: value for key, value in to_plain(estimator.get_params()).items() if key != "callbacks"}


def rows_with(path: Path, settings: Row) -> list[Row]:
    """The rows of a file, or none if they were measured with other settings."""
    known = json.loads(path.read_text()) if path.is_file() else {}
    return known["rows"] if known and known["from"].get("settings") == settings else []


def file_of(folder: Path, name: str) -> Path:
    return folder / f"{name.lower()}.json"


class Trial:
    """A data set, split by a seed, and the estimators to train on it."""

    def __init__(self, name: str, X: pd.DataFrame, y: pd.Series, task: str, seed: int, options: Row) -> None:
        self.seed, self.options = seed, {**ONE, **OPTIONS.get(name, {}), **options}
        self.kind: Any = AdaptiveClassifier if task == "classification" else AdaptiveRegressor
        stratify = y if task == "classification" else None
        parts = train_test_split(X, y, test_size=0.25, random_state=seed, stratify=stratify)
        self.X, self.X_test, self.y, self.y_test = parts
        self.layers = self.options.get("hidden_layers", self.kind().hidden_layers)

    def train(self, **options: Any) -> tuple[Any, Row]:
        """A fitted estimator, and its row."""
        started = time.process_time()
        model = self.kind(random_state=self.seed, **{**self.options, **options}).fit(self.X, self.y)
        seconds = time.process_time() - started
        kept = model.history_[model.history_.kept_epoch - 1]
        return model, {
            "score": self.score(model),
            "validation_loss": kept["validation_loss"],
            "units": sum(model.widths_.values()),
            "learned": sum(kept["widths"].values()),
            "epochs": len(model.history_),
            "kept_epoch": model.history_.kept_epoch,
            "seconds": round(seconds, 3),
        }

    def score(self, model: Any) -> float:
        return round(float(model.score(self.X_test, self.y_test)), 5)


def chosen(trial: Trial, **options: Any) -> Iterator[Row]:
    model, row = trial.train(**options)
    curve = model.history_.choice.curve if model.history_.choice else ()
    yield {"method": "chosen", **row, "curve": [[p.total_units, round(p.loss, 5), round(p.error, 5)] for p in curve]}


def learned(trial: Trial, method: str = "learned", **options: Any) -> Iterator[Row]:
    """The network before any choice, its cuts, and networks trained alone at the sizes of the cuts."""
    model, row = trial.train(choose="epoch", **options)
    yield {"method": method, **row}
    for keep in KEPT:
        for repair in (None, trial.X):
            cut = model.truncate(keep=keep, repair=repair)
            name = f"{method}, {'plain' if repair is None else 'repaired'}"
            yield {"method": name, "kept": keep, "score": trial.score(cut), "units": sum(cut.widths_.values())}
        if method == "learned":
            widths = list(cut.widths_.values())
            _, row = trial.train(fixed_widths=widths)
            yield {"method": "alone", "kept": keep, **row, "units": sum(widths)}


def fixed(trial: Trial) -> Iterator[Row]:
    for width in FIXED:
        _, row = trial.train(fixed_widths=[width] * trial.layers)
        yield {"method": "fixed", "width": width, **row, "units": width * trial.layers}


def before(trial: Trial) -> Iterator[Row]:
    if trial.seed == 0:
        rows = round((1 - BEFORE["validation_fraction"]) * len(trial.X))
        yield {"method": "before", **trial.train(**BEFORE, batch_size=max(16, min(128, rows // 32)))[1]}


METHODS: dict[str, Callable[[Trial], Iterator[Row]]] = {
    "chosen": chosen,
    "learned": learned,
    "ordered": lambda trial: learned(trial, "ordered", ordered=1.0),
    "from 32": lambda trial: ({**row, "method": "from 32"} for row in chosen(trial, units=32, max_units=2000)),
    "from 512": lambda trial: ({**row, "method": "from 512"} for row in chosen(trial, units=512, max_units=2000)),
    "fixed": fixed,
    "before": before,
}


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
