"""What a report says of a table: which rows decide, how models compare, and what predictions depend on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from awn.errors import CheckpointError
from awn.report import ReportData
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.explain import Explainer
from awn.tabular.fitting import fit_table
from awn.tabular.folder import load_estimator, read_about
from awn.tabular.predicting import compress_model, predict_table
from awn.tabular.rivals import fit_rivals
from awn.tabular.settings import TableSettings
from awn.tabular.split import read_split

ROWS = 240
QUICK: dict[str, Any] = {"epochs": 6, "units": 12, "lr": 0.02}


def houses() -> pd.DataFrame:
    """A price that follows from the size and the town, a column of noise, and rows without a price."""
    rng = np.random.default_rng(0)
    size, town = rng.normal(100, 30, ROWS), rng.choice(["Linz", "Wien"], ROWS)
    price = 3 * size + 150 * (town == "Wien") + rng.normal(0, 5, ROWS)
    frame = pd.DataFrame({"size": size, "town": town, "noise": rng.normal(size=ROWS), "price": price.round(1)})
    frame.loc[::40, "price"] = np.nan
    frame.loc[::11, "size"] = np.nan
    return frame


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("houses")
    houses().to_csv(folder / "houses.csv", index=False)
    fit_table(folder / "houses.csv", folder / "run", TableSettings("price", options=QUICK))
    return folder / "run"


@pytest.fixture(scope="module")
def data(run: Path) -> ReportData:
    return ReportData.from_json(json.loads((run / "report.json").read_bytes()))


def test_every_row_of_the_table_has_a_part(run: Path) -> None:
    table = run.parent / "houses.csv"
    parts = read_split(run / "model", read_about(run / "model"), table, ROWS)
    assert parts is not None
    assert pd.Series(parts).value_counts().to_dict() == {"train": 150, "test": 47, "validation": 37, "unused": 6}
    assert (parts == "unused").tolist() == houses()["price"].isna().tolist()
    other = table.with_name("other.csv")
    other.write_text(table.read_text() + "1,Linz,0,3\n", encoding="utf-8")
    assert read_split(run / "model", read_about(run / "model"), other, ROWS + 1) is None, "it is another table"


def test_a_damaged_split_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "split.csv").write_text("part\ntrain\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="a part for each of the 240 rows"):
        read_split(tmp_path, read_about(run / "model"), run.parent / "houses.csv", ROWS)


def test_compression_decides_by_validation_rows_and_reads_the_test_rows_last(run: Path, tmp_path: Path) -> None:
    table = run.parent / "houses.csv"
    found = compress_model(run / "model", table, tmp_path / "small", max_drop=0.05)
    assert found["rows"] == "the validation rows"
    frame = houses()
    parts = read_split(run / "model", read_about(run / "model"), table, ROWS)
    for model, facts in ((run / "model", found["before"]), (tmp_path / "small", found["after"])):
        estimator = load_estimator(model)
        for part, name in (("validation", "score"), ("test", "test_score")):
            rows = frame[parts == part]
            assert estimator.score(rows.drop(columns="price"), rows["price"]) == pytest.approx(facts[name])
    assert found["after"]["score"] >= found["before"]["score"] - 0.05
    # The errors on the validation rows give intervals, and the next cut has the same split.
    assert list(predict_table(tmp_path / "small", table, interval=0.8)) == ["price", "price low", "price high"]
    again = compress_model(tmp_path / "small", table, tmp_path / "smaller", max_drop=0.05)
    assert again["before"] == found["after"]


def test_another_table_is_used_as_a_whole(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    houses().head(100).to_csv(other, index=False)
    found = compress_model(run / "model", other, tmp_path / "small", max_drop=0.05)
    assert found["rows"] == f"all rows of {other}"
    assert "test_score" not in found["after"]


def test_all_models_are_scored_on_the_test_rows(data: ReportData) -> None:
    names = ["adaptive", "baseline", "fixed, same widths", "gradient boosting", "linear"]
    assert sorted(leader.name for leader in data.leaders) == names
    assert [leader.score for leader in data.leaders] == sorted((one.score for one in data.leaders), reverse=True)
    assert all(one.low <= one.score <= one.high for one in data.leaders)
    assert data.leader_rows == "the 47 test rows"
    assert data.residuals is not None
    assert len(data.residuals.actual) == 47
    assert data.leaders[-1].name == "baseline"


def test_score_against_size_is_that_of_the_validation_rows(data: ReportData, run: Path) -> None:
    curve = data.size_curve
    assert curve is not None
    assert curve.rows == "the 37 validation rows"
    kept = curve.points[curve.chosen]
    assert kept.units == sum(json.loads((run / "summary.json").read_bytes())["widths"].values())
    assert data.answer.startswith((f"{kept.units} units are enough", f"all {kept.units} learned units count"))
    assert {other.name for other in curve.others} == {"fixed, same widths", "gradient boosting", "baseline"}
    assert all(point.low < point.score < point.high for point in curve.points)
    assert data.truncation_rows == "the 37 validation rows"


def test_the_columns_that_matter_come_first(data: ReportData) -> None:
    assert {data.columns[0].name, data.columns[1].name} == {"size", "town"}
    facts = {column.name: column for column in data.columns}
    assert facts["noise"].importance == pytest.approx(0, abs=0.05)
    assert facts["size"].missing == pytest.approx(1 / 11, abs=0.04)
    assert (facts["town"].kind, facts["town"].levels, set(facts["town"].labels)) == ("category", 2, {"Linz", "Wien"})
    assert sum(facts["town"].counts) == 150
    towns = next(one for one in data.dependences if one.column == "town")
    means = dict(zip(towns.values, towns.curves["prediction"], strict=True))
    assert means["Wien"] - means["Linz"] == pytest.approx(150, abs=60)
    sizes = next(one for one in data.dependences if one.column == "size")
    assert sizes.curves["prediction"][-1] > sizes.curves["prediction"][0]


def test_the_worst_rows_are_those_with_the_largest_errors_by_line(data: ReportData, run: Path) -> None:
    assert data.hard_rows is not None
    first = dict(zip(data.hard_rows.head, data.hard_rows.rows[0], strict=True))
    assert data.residuals is not None
    errors = np.subtract(data.residuals.predicted, data.residuals.actual)
    assert abs(first["predicted − actual"]) == pytest.approx(np.abs(errors).max())  # type: ignore[arg-type]
    line = int(str(first["row"]).removeprefix("line "))
    written = (run.parent / "houses.csv").read_text().splitlines()[line - 1]
    assert float(written.split(",")[-1]) == first["actual"]


def test_training_has_both_curves_and_says_why_an_epoch_was_kept(data: ReportData) -> None:
    assert all({"train_score", "score", "data", "validation_loss"} <= set(row) for row in data.history)
    assert f"of {len(data.history)} is kept" in data.kept_because
    assert data.max_units == 256
    assert data.calibration is not None
    assert set(data.calibration) == {"wanted", "covered", "width"}


def test_without_comparison_and_explanation_a_report_has_the_rest(tmp_path: Path) -> None:
    houses().to_csv(tmp_path / "houses.csv", index=False)
    settings = TableSettings("price", compare=False, explain=False, options={**QUICK, "epochs": 1})
    result = fit_table(tmp_path / "houses.csv", tmp_path / "run", settings)
    assert set(result.scores) == {"adaptive", "baseline"}
    made = ReportData.from_json(json.loads((tmp_path / "run" / "report.json").read_bytes()))
    assert made.dependences == []
    assert all(column.importance is None for column in made.columns)
    assert len(made.columns) == 3


def test_shuffling_encoded_blocks_is_shuffling_columns() -> None:
    """The importance of a column is the loss of predictions on a table in which it is shuffled."""
    frame = houses().dropna().reset_index(drop=True)
    X, y = frame.drop(columns="price"), frame["price"]
    estimator = AdaptiveRegressor(**QUICK, random_state=0).fit(X, y)
    explainer = Explainer(estimator, X, y)
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = X.assign(town=X["town"].to_numpy()[order])
    inputs = estimator.preprocessor_.inputs_of["town"]
    encoded = estimator.encode(X)
    encoded[:, inputs] = encoded[order][:, inputs]
    assert np.array_equal(encoded, estimator.encode(shuffled))
    assert explainer._badness(encoded) == pytest.approx(1 - estimator.score(shuffled, y), abs=1e-4)


def test_rivals_read_the_same_columns_and_know_all_classes() -> None:
    frame = houses().dropna().reset_index(drop=True)
    X, y = frame.drop(columns="price"), (frame["town"] == "Wien")
    estimator = AdaptiveClassifier(**QUICK, random_state=0).fit(X, y)
    rivals = fit_rivals(estimator.preprocessor_, X, y, "classification")
    for name in ("boosting", "linear"):
        assert (rivals[name].outputs(X).argmax(1) == y).all(), "the town is among its inputs"
    unseen = X.assign(town="Graz", size=np.nan)
    assert all(np.isfinite(rival.outputs(unseen)).all() for rival in rivals.values())
