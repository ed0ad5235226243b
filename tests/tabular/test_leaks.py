"""Columns that give the target away are found, and ordinary ones are not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from awn.tabular.encode.columns import decide_columns
from awn.tabular.leaks import find_leaks

RNG = np.random.default_rng(0)
ROWS = 400
CLASS = pd.Series(RNG.choice(["no", "yes"], ROWS), name="y")
NUMBER = pd.Series(RNG.normal(size=ROWS), name="y")
PARTS = RNG.integers(0, 50, (2, ROWS))
NOISE = RNG.normal(size=ROWS)


@pytest.mark.parametrize(
    ("columns", "target", "leaking"),
    [
        pytest.param({"copy": NUMBER}, NUMBER, ["copy"], id="copy"),
        pytest.param({"scaled": 3 - 2 * NUMBER}, NUMBER, ["scaled"], id="scaled copy"),
        pytest.param({"curved": np.exp(NUMBER)}, NUMBER, ["curved"], id="function"),
        pytest.param({"a": PARTS[0], "b": PARTS[1]}, pd.Series(PARTS.sum(0)), ["a", "b"], id="sum"),
        pytest.param({"copy": CLASS}, CLASS, ["copy"], id="copy of classes"),
        pytest.param({"code": (CLASS == "yes") * 7.0}, CLASS, ["code"], id="number of a class"),
        pytest.param({"end": np.where(CLASS == "yes", NOISE, np.nan)}, CLASS, ["end"], id="known for one class"),
        pytest.param({"rank": np.where((CLASS == "yes") & (NOISE > 0), NOISE, np.nan)}, CLASS, ["rank"], id="in part"),
        pytest.param({"near": NUMBER + 0.5 * RNG.normal(size=ROWS)}, NUMBER, [], id="noisy number"),
        pytest.param({"near": (CLASS == "yes") + NOISE}, CLASS, [], id="noisy class"),
        pytest.param({"code": [f"c{i // 8}" for i in range(ROWS)]}, CLASS, [], id="many levels"),
    ],
)
def test_leaks_are_pointed_out(columns: dict[str, object], target: pd.Series, leaking: list[str]) -> None:
    frame = pd.DataFrame({**columns, "noise": NOISE})
    task = "classification" if target is CLASS else "regression"
    notes = " ".join(find_leaks(frame, target, task, decide_columns(frame)))
    assert [name for name in frame if f"--ignore {name}" in notes] == leaking


def test_few_rows_tell_nothing() -> None:
    frame = pd.DataFrame({"x": range(10), "z": [1, 2] * 5})
    assert find_leaks(frame, frame["x"], "regression", decide_columns(frame)) == []
