"""The eighteen tables of `awn bench tables`, without ids and without columns that give the target away."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from awn.errors import DataError

#: Features, target and task.
Table = tuple[pd.DataFrame, pd.Series, str]
Loader = Callable[[], Table]

_ADULT = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"]
_ADULT += ["race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"]


def data_file(*parts: str) -> Path:
    """A file of the data folder that AWN_DATA names."""
    path = Path(os.environ.get("AWN_DATA", ""), *parts)
    if "AWN_DATA" not in os.environ or not path.is_file():
        raise DataError(
            f"{'/'.join(parts)} is missing. Set the environment variable AWN_DATA to the folder that has it."
        )
    return path


def from_file(name: str, target: str, task: str, without: tuple[str, ...] = ()) -> Loader:
    """A table of the folder `tables`."""

    def load() -> Table:
        frame = pd.read_csv(data_file("tables", f"{name}.csv.gz")).drop(columns=list(without))
        if "TotalCharges" in frame:  # eleven blanks among numbers
            frame["TotalCharges"] = pd.to_numeric(frame["TotalCharges"], errors="coerce")
        if "dteday" in frame:
            frame["dteday"] = pd.to_datetime(frame["dteday"])
        return frame, frame.pop(target), task

    return load


def from_sklearn(name: str, task: str) -> Loader:
    """A table that comes with scikit-learn."""

    def load() -> Table:
        from sklearn import datasets

        bunch: Any = getattr(datasets, f"load_{name}")(as_frame=True)
        return bunch.data, bunch.target, task

    return load


def pol() -> Table:
    """Whether the target of pol is below its mean."""
    frame = pd.read_csv(data_file("pol", "201_pol.tsv.gz"), sep="\t")
    target = frame.pop("target")
    return frame, (target < target.mean()).astype(int), "classification"


def credit_default() -> Table:
    """Whether a client fails to pay next month."""
    frame = pd.read_csv(data_file("credit-default", "UCI_Credit_Card.csv.gz")).drop(columns="ID")
    return frame, frame.pop("default.payment.next.month"), "classification"


def adult() -> Table:
    """Whether a person earns more than 50,000 dollars; the rows of both files."""
    options: dict[str, Any] = {"names": _ADULT, "skipinitialspace": True, "na_values": "?", "comment": "|"}
    parts = [pd.read_csv(data_file("adult", f"adult.{part}.gz"), **options) for part in ("data", "test")]
    frame = pd.concat(parts, ignore_index=True)
    return frame, frame.pop("income").str.rstrip("."), "classification"


def california() -> Table:
    """The median house value of Californian districts."""
    frame = pd.read_parquet(data_file("california-housing", "california_housing.parquet.brotli"))
    return frame, frame.pop("MedHouseVal"), "regression"


_TITANIC = ("name", "ticket", "cabin", "home.dest", "boat", "body")
#: The defaults of the estimators were chosen on these, by the test rows of the first two splits.
TUNED_ON: dict[str, Loader] = {
    "pol": pol,
    "california-housing": california,
    "digits": from_sklearn("digits", "classification"),
    "breast-cancer": from_sklearn("breast_cancer", "classification"),
    "diabetes": from_sklearn("diabetes", "regression"),
    "concrete": from_file("concrete", "Concrete compressive strength(MPa, megapascals)", "regression"),
    "satellite": from_file("satellite", "classes", "classification"),
    "titanic": from_file("titanic", "survived", "classification", _TITANIC),
    "abalone": from_file("abalone", "Rings", "regression"),
}
#: The test rows of these were read once, with the final defaults; but the first split of wine was tried before, too.
OTHERS: dict[str, Loader] = {
    "ames": from_file("ames", "SalePrice", "regression", ("Order", "PID")),
    "bike-sharing": from_file("bike_sharing", "cnt", "regression", ("casual", "registered", "instant")),
    "diamonds": from_file("diamonds", "price", "regression"),
    "hpc": from_file("hpc", "class", "classification"),
    "telco-churn": from_file("telco_churn", "Churn", "classification", ("customerID",)),
    "bank-marketing": from_file("bank_marketing", "y", "classification", ("duration",)),
    "credit-default": credit_default,
    "adult": adult,
    "wine": from_sklearn("wine", "classification"),
}
TABLES = TUNED_ON | OTHERS
