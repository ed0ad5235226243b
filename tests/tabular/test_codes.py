"""Whole numbers that name something get an input for each value; measurements and counts do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest

import awn
from awn.errors import CheckpointError
from awn.tabular.encode.codes import Codes
from awn.tabular.encode.preprocess import Preprocessor
from awn.tabular.exporting import export_model
from awn.tabular.folder import load_estimator, save_estimator

RANDOM = np.random.default_rng(0)
ROWS = 3000
SHOP = RANDOM.integers(100, 160, ROWS).astype(float)
EFFECT = RANDOM.normal(size=200)  # of every shop
NOISE = 0.3 * RANDOM.normal(size=ROWS)


def codes_of(column: np.ndarray, target: np.ndarray) -> Codes:
    return Codes.fit(column[:, None], target, candidates=[0])


def test_a_number_that_names_something_is_a_code() -> None:
    target = (EFFECT[SHOP.astype(int)] + NOISE)[:, None]
    found = codes_of(SHOP, target)
    assert found.values.tolist() == list(range(100, 160))
    assert codes_of(SHOP, (target[:, 0] > 0).astype(int)).values.tolist() == found.values.tolist()  # classes


@pytest.mark.parametrize(
    ("column", "target"),
    [
        pytest.param(SHOP, NOISE, id="no effect"),
        pytest.param(SHOP, SHOP / 30 + NOISE, id="a straight effect"),
        pytest.param(SHOP, np.sin(SHOP / 10) + NOISE, id="a smooth effect"),
        pytest.param(SHOP + 0.5, EFFECT[SHOP.astype(int)], id="not whole"),
        pytest.param(SHOP // 6, EFFECT[SHOP.astype(int) // 6], id="a bin for every value"),
        pytest.param(np.arange(ROWS) // 2.0, EFFECT[np.arange(ROWS) // 2 % 200], id="two rows of each"),
        pytest.param(np.full(ROWS, np.nan), NOISE, id="missing"),
        pytest.param(SHOP, np.ones(ROWS), id="a constant target"),
    ],
)
def test_other_numbers_are_not_codes(column: np.ndarray, target: np.ndarray) -> None:
    assert len(codes_of(column, target[:, None]).values) == 0


def test_codes_that_need_too_much_memory_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    target = (EFFECT[SHOP.astype(int)] + NOISE)[:, None]
    both = np.column_stack([SHOP, SHOP])
    monkeypatch.setattr("awn.tabular.encode.codes._MOST_NUMBERS", 100 * ROWS)  # the inputs of one column
    assert set(Codes.fit(both, target, candidates=[0, 1]).columns.tolist()) == {0}


@pytest.fixture(scope="module")
def shops() -> tuple[pd.DataFrame, pd.Series]:
    frame = pd.DataFrame({"shop": SHOP, "size": RANDOM.normal(size=ROWS), "town": RANDOM.choice(["a", "b"], ROWS)})
    frame.loc[::50, "shop"] = np.nan
    target = pd.Series(np.where(frame["shop"].isna(), 0.0, EFFECT[SHOP.astype(int)]) + frame["size"] + NOISE)
    return frame, target


def test_only_targets_reveal_codes(shops: tuple[pd.DataFrame, pd.Series]) -> None:
    frame, target = shops
    plain, with_codes = Preprocessor(bins=4).fit(frame), Preprocessor(bins=4).fit(frame, target.to_numpy()[:, None])
    more = [f"shop = {number}" for number in range(100, 160)]
    assert [name for name in with_codes.feature_names if name not in plain.feature_names] == more
    rows = pd.DataFrame({"shop": [105, 999, np.nan], "size": 0.0, "town": "a"})
    encoded = pd.DataFrame(with_codes.transform(rows), columns=with_codes.feature_names)
    assert encoded[more].sum(axis=1).tolist() == [1, 0, 0]
    assert encoded["shop = 105"].tolist() == [1, 0, 0]
    others = [name for name in with_codes.feature_names if name not in more]
    assert np.array_equal(encoded[others], plain.transform(rows))
    assert set(with_codes.inputs_of["shop"]) >= {with_codes.feature_names.index(name) for name in more}


def test_codes_are_restored_exactly(shops: tuple[pd.DataFrame, pd.Series]) -> None:
    frame, target = shops
    fitted = Preprocessor(bins=4).fit(frame, target.to_numpy()[:, None])
    data = fitted.to_json()
    assert np.array_equal(Preprocessor.from_json(data).transform(frame), fitted.transform(frame))
    for damage in ({"columns": [0]}, {"columns": [99] * 60}, {"values": [float("inf")] * 60}):
        with pytest.raises(CheckpointError, match="damaged or was edited"):
            Preprocessor.from_json({**data, "codes": {**data["codes"], **damage}})


def test_a_file_of_format_2_has_no_codes(shops: tuple[pd.DataFrame, pd.Series]) -> None:
    fitted = Preprocessor(bins=4).fit(shops[0])
    data = {key: value for key, value in fitted.to_json().items() if key != "codes"} | {"format": 2}
    assert np.array_equal(Preprocessor.from_json(data).transform(shops[0]), fitted.transform(shops[0]))


@pytest.mark.parametrize("columns", [["shop", "size"], ["shop", "size", "town"]], ids=["numbers", "mixed"])
def test_a_model_with_codes_learns_them_and_is_saved_and_exported(
    columns: list[str], shops: tuple[pd.DataFrame, pd.Series], tmp_path: Path
) -> None:
    X, y = shops[0][columns], shops[1]
    model = awn.AdaptiveRegressor(random_state=0, members=1).fit(X.iloc[:2400], y.iloc[:2400])
    assert "shop = 105" in model.preprocessor_.feature_names
    assert model.score(X.iloc[2400:], y.iloc[2400:]) > 0.9  # 0.5 without the effects of the shops
    save_estimator(model, tmp_path)
    assert np.array_equal(load_estimator(tmp_path).predict(X), model.predict(X))
    export_model(tmp_path, tmp_path / "model.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    rows = X.iloc[:60]  # with a missing shop
    if "town" in columns:
        fed = {name: rows[[name]].to_numpy(object if name == "town" else np.float64) for name in columns}
    else:
        fed = {"input": rows.to_numpy(np.float64)}
    assert session.run(None, fed)[0].ravel() == pytest.approx(model.predict(rows), rel=1e-4, abs=1e-4)
