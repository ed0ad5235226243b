"""Tables in memory: whatever holds the rows, an estimator sees the same names, kinds and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from awn import AdaptiveClassifier

ROWS = 60


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": np.where(np.arange(ROWS) % 7 == 0, np.nan, rng.integers(18, 80, ROWS)),
            "job": np.resize(np.array(["cook", "smith", None], dtype=object), ROWS),
            "when": pd.date_range("2024-01-01", periods=ROWS, freq="D"),
            "open": np.arange(ROWS) % 2 == 0,
            "class": pd.Categorical(np.resize(["a", "b", "c"], ROWS)),
        }
    )


def to_polars(table: pd.DataFrame) -> Any:
    made = pl.from_pandas(table.astype({"class": str}))
    return made.with_columns(pl.col("class").cast(pl.Categorical), pl.col("age").cast(pl.Int64))


HOLDERS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "polars": to_polars,
    "arrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
    "nullable": lambda table: table.convert_dtypes(),
    "strings": lambda table: table.astype({"job": "string", "age": "Float64", "open": "boolean"}),
    "arrow dtypes": lambda table: table.convert_dtypes(dtype_backend="pyarrow"),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_every_holder_gives_the_same_inputs_and_names(holder: str) -> None:
    table, held = frame(), HOLDERS[holder](frame())
    y = np.arange(ROWS) % 2
    plain, other = (AdaptiveClassifier(epochs=1, random_state=0, choose=None).fit(X, y) for X in (table, held))
    assert list(other.feature_names_in_) == list(table.columns)
    kinds = [column.kind for column in plain.preprocessor_.columns]
    assert [column.kind for column in other.preprocessor_.columns] == kinds == [
        "number", "category", "date", "boolean", "category"
    ]  # fmt: skip
    assert other.preprocessor_.feature_names == plain.preprocessor_.feature_names
    assert np.array_equal(other.encode(held), plain.encode(table))
    assert np.array_equal(other.predict_proba(held), plain.predict_proba(table))
    assert np.array_equal(plain.predict_proba(held), plain.predict_proba(table)), "what is fitted on one reads another"


@pytest.mark.parametrize(
    "target", [pl.Series([0, 1] * 30), pa.chunked_array([[0, 1] * 30]), pd.Series([0, 1] * 30, dtype="Int64")]
)
def test_targets_of_every_holder(target: Any) -> None:
    fitted = AdaptiveClassifier(epochs=1, random_state=0, choose=None).fit(frame(), target)
    assert fitted.classes_.tolist() == [0, 1]


def test_names_must_be_those_of_the_fit() -> None:
    fitted = AdaptiveClassifier(epochs=1, random_state=0, choose=None).fit(to_polars(frame()), [0, 1] * 30)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(to_polars(frame()).rename({"age": "years"}))
