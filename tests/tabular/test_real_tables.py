"""Real tables as they are published, from the file to the numbers. AWN_DATA names the folder that has them."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from awn.errors import TableError
from awn.tabular.encode.preprocess import Preprocessor
from awn.tabular.read.table import read_table
from awn.tabular.read.target import guess_task, split_target

DATA = os.environ.get("AWN_DATA", "")
pytestmark = pytest.mark.skipif(not DATA, reason="AWN_DATA does not name a folder of real tables")
ADULT = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income\n"
)


def real(folder: str, name: str) -> Path:
    path = Path(DATA) / folder / name
    if not path.exists():
        pytest.skip(f"AWN_DATA has no {folder}/{name}")
    return path


def prepared(frame: pd.DataFrame, target: str) -> tuple[Preprocessor, npt.NDArray[np.float32], str]:
    rows, wanted, _ = split_target(frame, target)
    fitted = Preprocessor().fit(rows)
    out = fitted.transform(rows)
    restored = Preprocessor.from_json(json.loads(json.dumps(fitted.to_json())))
    assert np.array_equal(restored.transform(rows), out)
    assert np.isfinite(out).all()
    return fitted, out, guess_task(wanted).task


def test_pol() -> None:
    frame = read_table(real("pol", "201_pol.tsv.gz"))
    assert frame.shape == (15_000, 49)
    fitted, out, task = prepared(frame, "target")
    assert task == "regression"
    assert out.shape == (15_000, 26)
    assert sum(column.kind == "constant" for column in fitted.columns) == 22
    assert fitted.numeric_pieces() is not None


def test_credit_default() -> None:
    frame = read_table(real("credit-default", "UCI_Credit_Card.csv.gz"))  # its lines end in \r
    assert frame.shape == (30_000, 25)
    fitted, out, task = prepared(frame, "default.payment.next.month")
    assert task == "classification"
    assert out.shape == (30_000, 23)
    assert fitted.notes == [
        "'ID': left out as an identifier: a different integer in every row; --kind ID=number uses it"
    ]
    assert frame["default.payment.next.month"].sum() == 6636


def test_california_housing() -> None:
    frame = read_table(real("california-housing", "california_housing.parquet.brotli"))
    assert frame.shape == (20_640, 9)
    fitted, out, task = prepared(frame, "MedHouseVal")
    assert task == "regression"
    assert out.shape == (20_640, 8)
    assert fitted.notes == []
    with pytest.raises(TableError, match=r"file extension '.data'"):
        read_table(real("california-housing", "cal_housing.data.gz"))


def test_adult(tmp_path: Path) -> None:
    rows = gzip.decompress(real("adult", "adult.data.gz").read_bytes())
    (tmp_path / "adult.csv").write_bytes(ADULT.encode() + rows)
    frame = read_table(tmp_path / "adult.csv")
    assert frame.shape == (32_561, 15)
    fitted, out, task = prepared(frame, "income")
    assert task == "classification"
    kinds = [column.kind for column in fitted.columns]
    assert kinds.count("number") == 6
    assert kinds.count("category") == 8
    assert out.shape == (32_561, 108)
    names = fitted.feature_names
    assert {"workclass is missing", "occupation is missing", "native-country is missing"} < set(names)
    assert out[:, names.index("occupation is missing")].sum() == 1843
    (tmp_path / "bare.csv").write_bytes(rows)
    with pytest.raises(TableError, match="has no header"):
        read_table(tmp_path / "bare.csv")
