"""The estimators on real tables, against a fixed width, the best of five, and against gradient boosting.

Run: AWN_DATA=folder python benchmarks/tables.py            (about twenty minutes on two cores)
Writes results/tables.json, a row a fit; `--show` prints the table of it. k-fold, the same folds for all; accuracy or
R² on the fold that was left out. The fixed networks are the same but for the learned width, trained with the same
options; their width is chosen as a user would, by a part of the training rows, and refitted on all of them.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.read.table import read_table

WIDTHS = (16, 32, 64, 128, 256)
Table = tuple[pd.DataFrame, pd.Series, str]
Fitted = tuple[Any, dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the networks; the folds stay the same")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--methods", nargs="+", default=["adaptive", "fixed", "boosting"])
    parser.add_argument("--options", type=json.loads, default={}, help="JSON of the estimators' options")
    parser.add_argument("--out", type=Path, default=Path("results/tables.json"))
    parser.add_argument("--show", action="store_true", help="print the table of a finished file")
    options = parser.parse_args()
    if options.show:
        show(json.loads(options.out.read_text())["fits"])
        return
    torch.set_num_threads(1)
    made_by, fits = provenance(folds=options.folds, seeds=options.seeds, options=options.options), []
    for name in options.tables:
        X, y, task = TABLES[name]()
        folds = StratifiedKFold if task == "classification" else KFold
        for fold, (train, test) in enumerate(folds(options.folds, shuffle=True, random_state=0).split(X, y)):
            for seed, method in itertools.product(options.seeds, options.methods):
                started = time.perf_counter()
                model, about = METHODS[method](X.iloc[train], y.iloc[train], task, seed, options.options)
                score = float(model.score(X.iloc[test], y.iloc[test]))
                seconds = round(time.perf_counter() - started, 1)
                place = {"table": name, "fold": fold, "seed": seed, "method": method}
                fits.append({**place, "score": score, "seconds": seconds, **about})
                print(fits[-1], flush=True)
                write_files({options.out: json_file({"from": made_by, "fits": fits})})
    show(fits)


def adaptive(X: pd.DataFrame, y: pd.Series, task: str, seed: int, options: dict[str, Any]) -> Fitted:
    kind = AdaptiveClassifier if task == "classification" else AdaptiveRegressor
    model = kind(random_state=seed, **options).fit(X, y)
    return model, {"units": sum(model.widths_.values()), "epochs": model.n_iter_}


def fixed(X: pd.DataFrame, y: pd.Series, task: str, seed: int, options: dict[str, Any]) -> Fitted:
    """The best of five widths on a validation part, refitted on all rows."""
    kind = AdaptiveClassifier if task == "classification" else AdaptiveRegressor
    layers = options.get("hidden_layers", kind().hidden_layers)
    stratify = y if task == "classification" else None
    X_a, X_b, y_a, y_b = train_test_split(X, y, test_size=0.1, random_state=1 + seed, stratify=stratify)

    def network(width: int) -> Any:
        return kind(random_state=seed, **options, fixed_widths=[width] * layers)

    best = max(WIDTHS, key=lambda width: network(width).fit(X_a, y_a).score(X_b, y_b))
    model = network(best).fit(X, y)
    return model, {"units": best * layers, "epochs": model.n_iter_}


def boosting(X: pd.DataFrame, y: pd.Series, task: str, seed: int, options: dict[str, Any]) -> Fitted:
    kind = HistGradientBoostingClassifier if task == "classification" else HistGradientBoostingRegressor
    return kind(random_state=seed, categorical_features="from_dtype").fit(X, y), {}


METHODS: dict[str, Callable[..., Fitted]] = {
    "adaptive": adaptive,
    "fixed": fixed,
    "boosting": boosting,
}


def data_file(*parts: str) -> Path:
    if "AWN_DATA" not in os.environ:
        raise SystemExit("Set AWN_DATA to the folder with the data sets.")
    return Path(os.environ["AWN_DATA"], *parts)


def pol() -> Table:
    frame = read_table(data_file("pol", "201_pol.tsv.gz"))
    target = frame.pop("target")
    return frame, (target < target.mean()).astype(int), "classification"


def credit() -> Table:
    frame = read_table(data_file("credit-default", "UCI_Credit_Card.csv.gz")).drop(columns="ID")
    return frame, frame.pop("default.payment.next.month"), "classification"


def adult() -> Table:
    names = "age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain "
    names += "capital-loss hours-per-week native-country income"
    with gzip.open(data_file("adult", "adult.data.gz"), "rt") as file:
        frame = pd.read_csv(file, names=names.split(), skipinitialspace=True, na_values="?")
    target = frame.pop("income")
    for name in frame.select_dtypes(exclude="number"):
        frame[name] = frame[name].astype("category")
    return frame, target, "classification"


def california() -> Table:
    frame = read_table(data_file("california-housing", "california_housing.parquet.brotli"))
    return frame, frame.pop("MedHouseVal"), "regression"


def from_sklearn(load: Callable[..., Any], task: str) -> Callable[[], Table]:
    def make() -> Table:
        bunch = load(as_frame=True)
        return bunch.data, bunch.target, task

    return make


TABLES: dict[str, Callable[[], Table]] = {
    "pol": pol,
    "credit-default": credit,
    "adult": adult,
    "california-housing": california,
    "breast-cancer": from_sklearn(datasets.load_breast_cancer, "classification"),
    "wine": from_sklearn(datasets.load_wine, "classification"),
    "iris": from_sklearn(datasets.load_iris, "classification"),
    "digits": from_sklearn(datasets.load_digits, "classification"),
    "diabetes": from_sklearn(datasets.load_diabetes, "regression"),
}


def show(fits: list[dict[str, Any]]) -> None:
    """A Markdown table: the mean score of each method, the units, and the time."""
    print("| table | adaptive | fixed, best of five | boosting | units | units, fixed | time, adaptive / fixed |")
    print("|---|---|---|---|---|---|---|")
    for table in dict.fromkeys(fit["table"] for fit in fits):
        of = {method: [fit for fit in fits if (fit["table"], fit["method"]) == (table, method)] for method in METHODS}
        scores = [f"{statistics.mean(f['score'] for f in of[m]):.4f}" if of[m] else "–" for m in METHODS]
        units = [f"{statistics.mean(f['units'] for f in of[m]):.0f}" if of[m] else "–" for m in ("adaptive", "fixed")]
        times = [sum(fit["seconds"] for fit in of[method]) for method in ("adaptive", "fixed")]
        ratio = f"{times[0] / times[1]:.2f}" if times[1] else "–"
        print(f"| {table} | {' | '.join(scores)} | {' | '.join(units)} | {ratio} |")


if __name__ == "__main__":
    main()
