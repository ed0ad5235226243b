"""`awn fit` and the columns of a table: kinds that the user sets, and columns that are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from awn.tabular.folder import load_estimator
from cli_cases import Run, one_sentence

QUICK = ["--epochs", "1", "--no-compare"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def people(rows: int = 100) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    code = rng.choice(["007", "012", "400"], rows)
    return pd.DataFrame(
        {
            "nr": range(rows),
            "name": [f"{first} Smith" for first in range(rows)],
            "zip": code,
            "size": rng.normal(50, 20, rows).round(2),
            "buys": np.where(rng.random(rows) < 0.5, "yes", "no"),
        }
    )


def used(folder: str = "run") -> dict[str, str]:
    return {column.name: column.kind for column in load_estimator(f"{folder}/model").preprocessor_.columns}


def fit(run: Run, *words: Any, table: str = "people.csv") -> Any:
    return run("fit", table, "--target", "buys", "--out", "run", "--overwrite", *QUICK, *words)


def test_text_and_identifiers_are_left_out_with_a_note(run: Run) -> None:
    people().to_csv("people.csv", index=False)
    said = fit(run)
    assert said.code == 0, said.err
    assert "'nr': left out as an identifier: a different integer in every row; --kind nr=number uses it" in said.err
    assert "'name': left out as text" in said.err
    assert "2 of 4 columns used" in said.err
    assert used() == {"nr": "id", "name": "text", "zip": "number", "size": "number"}


def test_kinds_come_from_options_or_a_file(run: Run) -> None:
    frame = people().assign(zip=np.tile([7, 12], 50))
    frame.to_csv("people.csv", index=False)
    said = fit(run, "--ignore", "name", "--ignore", "nr", "--kind", "zip=category", "--json")
    assert said.code == 0, said.err
    assert used() == {"nr": "ignored", "name": "ignored", "zip": "category", "size": "number"}
    assert "'name'" not in said.err, "what the user leaves out needs no note"
    Path("c.json").write_text('{"kinds": {"zip": "category", "nr": "number"}}')
    assert fit(run, "--config", "c.json", "--ignore", "nr").code == 0
    assert used()["nr"] == "ignored", "the command line goes first"
    assert used()["zip"] == "category"
    assert run("predict", "run", "people.csv").code == 0


def test_a_code_that_is_set_to_be_a_category_keeps_its_zeros(run: Run) -> None:
    people().to_csv("people.csv", index=False)
    assert fit(run, "--kind", "zip=category").code == 0
    assert [name for name in load_estimator("run/model").preprocessor_.feature_names if "zip" in name] == [
        "zip = 007",
        "zip = 012",
        "zip = 400",
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--kind", "zip"], "--kind takes COLUMN=KIND, such as zip=category, got 'zip'."),
        (["--kind", "zip=word"], "The kind of column 'zip' must be number, boolean, category, date or ignored"),
        (["--ignore", "nam"], "The table has no column 'nam' to leave out. Did you mean 'name'?"),
        (["--ignore", "buys"], "'buys' is the target, so it has no kind."),
        (["--kind", "name=number"], "Column 'name', line 2: '0 Smith' is not a number"),
    ],
)
def test_kinds_that_cannot_be_used_are_refused_before_training(words: list[str], says: str, run: Run) -> None:
    people().to_csv("people.csv", index=False)
    assert says in one_sentence(fit(run, *words))
    assert not Path("run").exists()


def test_a_wrong_cell_is_found_before_training_in_whatever_part_it_falls(run: Run) -> None:
    """Also in the test rows, which are encoded only at the end."""
    for row in range(0, 100, 10):
        frame = people().assign(size=lambda frame: frame["size"].astype(str))
        frame.loc[row, "size"] = "large"
        frame.to_csv("people.csv", index=False)
        assert "'large' is not a number" in one_sentence(fit(run))
    assert not Path("run").exists()


def test_numbers_in_the_format_of_a_spreadsheet(run: Run) -> None:
    rng = np.random.default_rng(0)
    price = rng.uniform(500, 5000, 100)
    frame = pd.DataFrame({"rate": [f"{x:.1f}%" for x in price / 100], "fee": [f"${x:,.2f}" for x in price]})
    frame["price"] = [f"{x:,.2f} €" for x in price + rng.normal(0, 100, 100)]
    frame.to_csv("t.csv", index=False)
    said = run("fit", "t.csv", "--target", "price", "--out", "run", *QUICK)
    assert said.code == 0, said.err
    assert "regression of 'price'" in said.err
    assert "'fee': numbers: '$" in said.err
    assert json.loads(Path("run/summary.json").read_text())["columns"] == {"table": 2, "used": 2, "inputs": 50}
    assert float(run("predict", "run", "t.csv").out.splitlines()[1]) > 0


def test_imbalance_leaks_and_measures_are_said(run: Run) -> None:
    frame = people(200).assign(buys=np.where(np.arange(200) % 10 == 0, "yes", "no"))
    frame["paid"] = np.where(frame["buys"] == "yes", 1.5, 2.5)
    frame.to_csv("people.csv", index=False)
    said = fit(run, "--balanced")
    assert said.code == 0, said.err
    assert "90% of the rows are 'no' and 10% are 'yes'" in said.err
    assert "'paid' alone predicts the target almost perfectly: leave out with --ignore paid" in said.err
    found = json.loads(Path("run/summary.json").read_text())["measures"]["adaptive"]
    assert list(found) == ["accuracy", "balanced accuracy", "AUC", "F1 of 'yes'", "log-loss"]
    assert all(one["low"] <= one["value"] <= one["high"] for one in found.values())
    report = json.loads(Path("run/report.json").read_text())
    assert sum(report["calibration"]["rows"]) == sum(map(sum, report["confusion"]["counts"])) == 40


def test_predict_keeps_columns_and_adds_intervals(run: Run) -> None:
    frame = people().assign(price=lambda frame: frame["size"] * 3)
    frame.to_csv("t.csv", index=False)
    assert run("fit", "t.csv", "--target", "price", "--out", "run", *QUICK).code == 0
    lines = run("predict", "run", "t.csv", "--keep", "zip", "--keep", "price", "--interval", 0.8).out.splitlines()
    assert lines[0] == "zip,price,predicted price,predicted price low,predicted price high"
    assert lines[1].split(",")[0] == frame["zip"][0], "the zeros are kept"
    _, _, middle, low, high = map(float, lines[1].split(","))
    assert middle - low == pytest.approx(high - middle)
    assert low < high
    assert "has no column 'zap' to keep. Did you mean 'zip'" in one_sentence(
        run("predict", "run", "t.csv", "--keep", "zap")
    )
    assert "--interval must lie strictly" in one_sentence(run("predict", "run", "t.csv", "--interval", 9))
