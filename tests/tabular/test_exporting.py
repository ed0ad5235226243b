"""Exports compute what the model computes, from the table's own columns where they are numbers."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_diabetes, load_iris
from torch import Tensor, nn

import awn
from awn.errors import ArgumentError, MissingExtraError
from awn.export import onnx_bytes, program_bytes
from awn.export.check import ExportError, check_same
from awn.tabular import table_network
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.exporting import export_model
from awn.tabular.folder import save_estimator
from awn.tabular.table_network import MatrixNetwork

FEW: dict[str, Any] = {"units": 12, "epochs": 3, "lr": 0.01, "random_state": 0}


def iris() -> tuple[pd.DataFrame, pd.Series]:
    """With missing values, and a column of truth values and one of large numbers, as moments are."""
    X, y = load_iris(return_X_y=True, as_frame=True)
    X["wide"] = X["sepal width (cm)"] > 3
    X["moment"] = 1.7e9 + 10 * X["petal length (cm)"]
    X.iloc[::7, 2] = np.nan
    return X, y


def diabetes() -> tuple[pd.DataFrame, pd.Series]:
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X.iloc[::7, 2] = np.nan
    return X, y


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any, pd.DataFrame]]:
    """Saved models by name, each with its estimator and rows to predict."""
    made = {}
    for name, make, (X, y) in (
        ("classifier", AdaptiveClassifier, iris()),
        ("regressor", AdaptiveRegressor, diabetes()),
        ("mixed", AdaptiveClassifier, mixed()),
    ):
        estimator = make(**FEW, batch_norm=name == "regressor").fit(X, y)
        folder = tmp_path_factory.mktemp(name)
        save_estimator(estimator, folder)
        made[name] = (folder, estimator, X)
    return made


def expected(estimator: Any, X: pd.DataFrame) -> np.ndarray:
    if isinstance(estimator, AdaptiveClassifier):
        return estimator.predict_proba(X)
    return np.asarray(estimator.predict(X)[:, None])


@pytest.mark.parametrize("name", ["classifier", "regressor"])
def test_onnx_takes_the_tables_own_columns_missing_values_too(name: str, models: Any, tmp_path: Path) -> None:
    folder, estimator, X = models[name]
    said = export_model(folder, tmp_path / "model.onnx", "onnx")
    assert "the table's columns as float64" in said
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for rows in (X, X.head(1), X.assign(**{X.columns[2]: np.nan})):
        out = session.run(None, {"input": rows.to_numpy(np.float64)})[0]
        assert out == pytest.approx(expected(estimator, rows), rel=1e-4, abs=1e-4)


def mixed() -> tuple[pd.DataFrame, pd.Series]:
    """Categories with missing, rare and blank-padded levels, dates with hours, truth values and written numbers."""
    X, y = iris()
    shops = np.resize(np.array(["north", "south", None, " east", "?"], dtype=object), len(X))
    when = pd.Series(pd.date_range("2019-12-30 05:00", periods=len(X), freq="31h"))
    when[::11] = pd.NaT
    towns = [f"town {number % 60}" for number in range(len(X))]  # more levels than have an input of their own
    pay = [f"${1000 + 70 * number % 3000:,}" for number in range(len(X))]
    return X.assign(shop=shops, when=when, town=towns, pay=pay, open=["yes", "no"] * (len(X) // 2)), y


def column_inputs(session: Any, X: pd.DataFrame) -> dict[str, np.ndarray]:
    """The table as a user without awn would pass it: words, numbers, and days since 1970."""
    own = X.assign(
        when=(X["when"] - pd.Timestamp(0)) / pd.Timedelta(days=1),
        pay=X["pay"].str.replace(r"[$,]", "", regex=True).astype(float),
        open=(X["open"] == "yes").astype(float),
        shop=X["shop"].str.strip(),
    )
    inputs = {}
    for given in session.get_inputs():
        text = given.type == "tensor(string)"
        column = own[given.name].fillna("").astype(object) if text else own[given.name].astype(float)
        inputs[given.name] = column.to_numpy()[:, None]
    return inputs


def test_onnx_of_a_mixed_table_takes_words_and_numbers_by_column(models: Any, tmp_path: Path) -> None:
    folder, estimator, X = models["mixed"]
    said = export_model(folder, tmp_path / "model.onnx", "onnx")
    assert "strings for 'shop', 'town'" in said
    assert "days since 1970-01-01 for 'when'" in said
    assert "the probabilities of '0', '1', '2'" in said
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert {given.name for given in session.get_inputs()} == set(X.columns)
    unseen = X.assign(shop="nowhere", town="elsewhere")
    for rows in (X, X.head(1), unseen, X.assign(when=pd.NaT, moment=np.nan)):
        out = session.run(None, column_inputs(session, rows))[0]
        assert out == pytest.approx(expected(estimator, rows), abs=1e-4)


@pytest.mark.filterwarnings("ignore:.*left out as an identifier:awn.errors.ColumnWarning")
def test_onnx_leaves_out_columns_that_the_model_does_not_use(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "number": [f"A-{place:05d}" for place in range(120)],  # an identifier
            "size": rng.normal(size=120),
            "always": 1.0,
            "kind": rng.choice(["a", "b", "c"], 120),
            "left out": rng.normal(size=120),
        }
    )
    model = AdaptiveRegressor(epochs=2, members=1, kinds={"left out": "ignored"}, random_state=0)
    save_estimator(model.fit(frame, frame["size"]), tmp_path / "model")
    says = export_model(tmp_path / "model", tmp_path / "model.onnx", "onnx")
    assert "strings for 'kind'; float64 for 'size'" in says
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    inputs = {"kind": frame[["kind"]].to_numpy(), "size": frame[["size"]].to_numpy()}
    assert session.run(None, inputs)[0].ravel() == pytest.approx(model.predict(frame), rel=1e-5, abs=1e-5)


def test_torch_export_of_a_mixed_table_takes_its_encoded_columns(models: Any, tmp_path: Path) -> None:
    folder, estimator, X = models["mixed"]
    assert "the encoded columns as float32" in export_model(folder, tmp_path / "model.pt2", "torch")
    program = torch.export.load(tmp_path / "model.pt2").module()
    out = program(torch.from_numpy(estimator.encode(X))).detach().numpy()
    assert out == pytest.approx(expected(estimator, X), abs=1e-5)


@pytest.mark.parametrize("name", ["output", "numbers"])
def test_a_table_of_words_alone_is_exported_whatever_its_column_is_called(name: str, tmp_path: Path) -> None:
    X = pd.DataFrame({name: ["a", "b", "c", "b"] * 20})
    estimator = AdaptiveRegressor(**FEW).fit(X, np.arange(80.0) % 4)
    save_estimator(estimator, tmp_path / "model")
    export_model(tmp_path / "model", tmp_path / "model.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    out = session.run(None, {name: X.to_numpy(dtype=object)})[0]
    assert out == pytest.approx(expected(estimator, X), rel=1e-4)


def test_torch_export_needs_no_awn(models: Any, tmp_path: Path) -> None:
    folder, estimator, X = models["regressor"]
    export_model(folder, tmp_path / "model.pt2", "torch")
    program = torch.export.load(tmp_path / "model.pt2").module()
    for rows in (X, X.head(1)):
        out = program(torch.tensor(rows.to_numpy(np.float64))).numpy()
        assert out == pytest.approx(expected(estimator, rows), rel=1e-4)


def test_safetensors_has_the_plain_weights(models: Any, tmp_path: Path) -> None:
    folder, estimator, X = models["classifier"]
    export_model(folder, tmp_path / "model.safetensors", "safetensors")
    plain = estimator.to_torch()
    for weight in plain.parameters():
        nn.init.zeros_(weight)
    plain.load_state_dict(load_file(tmp_path / "model.safetensors"))
    out = plain(torch.from_numpy(estimator.encode(X))).div(estimator.temperature_).softmax(1).detach().numpy()
    assert out == pytest.approx(estimator.predict_proba(X), abs=1e-5)


def test_what_cannot_be_written_is_refused(models: Any, tmp_path: Path) -> None:
    folder = models["classifier"][0]
    with pytest.raises(ArgumentError, match=r"one of onnx, torch, safetensors; got 'pickle'"):
        export_model(folder, tmp_path / "model", "pickle")
    with pytest.raises(ArgumentError, match="is a folder"):
        export_model(folder, tmp_path, "onnx")
    assert not list(tmp_path.iterdir())


# A wrong export


def test_an_onnx_file_that_computes_something_else_is_refused(
    models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = MatrixNetwork(models["mixed"][1])
    other = onnx_bytes(mixed, mixed.example_rows(3))
    wrong = MatrixNetwork(models["classifier"][1])
    with torch.no_grad():
        wrong.output.network[0].bias += 0.5
    content = onnx_bytes(wrong, wrong.example_rows(4))
    old = tmp_path / "model.onnx"
    old.write_bytes(b"the old one")
    for bad in (content, other):
        monkeypatch.setattr("awn.export.onnx_file._export", lambda module, call, any_rows, bad=bad: bad)
        with pytest.raises(ExportError, match="Nothing was written"):
            export_model(models["classifier"][0], old, "onnx")
        assert old.read_bytes() == b"the old one"


def test_a_wrong_way_from_columns_to_inputs_is_refused(
    models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is against the estimator, so an encoding that differs from its own is noticed."""
    right = table_network._Numbers.forward
    monkeypatch.setattr(table_network._Numbers, "forward", lambda self, x: 0.5 * right(self, x))
    for name in ("regressor", "mixed"):
        with pytest.raises(ExportError, match="computes something different"):
            export_model(models[name][0], tmp_path / "model.onnx", "onnx")
    assert not list(tmp_path.iterdir())


class Doubled(nn.Module):
    """Computes something else when it is exported."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x if torch.compiler.is_exporting() else x


@pytest.mark.parametrize("make", [onnx_bytes, program_bytes])
def test_a_module_that_changes_in_the_export_is_refused(make: Any) -> None:
    with pytest.raises(ExportError, match="computes something different from the model"):
        make(Doubled(), torch.randn(4, 2))


class Branching(nn.Module):
    """Python looks at its values, which no export can hold."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.sum()) > 0 else -x


@pytest.mark.parametrize("make", [onnx_bytes, program_bytes])
def test_a_module_that_cannot_be_exported_is_refused(make: Any) -> None:
    with pytest.raises(ExportError, match="cannot export") as caught:
        make(Branching(), torch.randn(4, 2))
    said = str(caught.value)
    assert "data-dependent" in said, "why, in torch's words"
    assert "\n" not in said, "and no more of them"
    assert "\x1b" not in said


class FourRows(nn.Module):
    """Takes four rows, and no other number."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(4, 2) + 1


@pytest.mark.parametrize("make", [onnx_bytes, program_bytes])
def test_a_module_for_one_number_of_rows_is_refused_with_the_way_out(make: Any) -> None:
    with pytest.raises(ExportError, match=r"for any number of rows \(any_rows=False") as caught:
        make(FourRows(), torch.randn(4, 2))
    assert "\n" not in str(caught.value)
    assert make(FourRows(), torch.randn(4, 2), any_rows=False)


WRONG_EXAMPLES: dict[str, tuple[nn.Module, Any, str]] = {
    "columns": (
        awn.AdaptiveMLP(2, 3),
        torch.randn(4, 5),
        r"\(4, 5\) of float32: .*Linear\(in_features=2, out_features=",
    ),
    "channels": (
        nn.Conv2d(3, 4, 3),
        torch.randn(2, 1, 8, 8),
        r"\(2, 1, 8, 8\) of float32: .*3 channels.*Conv2d\(3, 4,",
    ),
    "type": (nn.Sequential(nn.ReLU(), nn.Linear(2, 3)), torch.ones(4, 2).long(), r"\(4, 2\) of int64: .*Linear\("),
    "arguments": (
        nn.Linear(2, 3),
        (torch.randn(4, 2), torch.randn(4, 2)),
        r"\(4, 2\) of float32, \(4, 2\) of float32: .*arguments",
    ),
    "no tensor": (nn.Linear(2, 3), {"words": "x"}, r"which has no tensors: .*words"),
}


@pytest.mark.parametrize("name", WRONG_EXAMPLES)
@pytest.mark.parametrize("export", [awn.export.onnx, awn.export.program])
def test_an_example_that_the_model_does_not_take_is_named_with_what_it_expects(
    name: str, export: Any, tmp_path: Path
) -> None:
    model, example, said = WRONG_EXAMPLES[name]
    with pytest.raises(ExportError, match=f"the model cannot be run on the example, {said}"):
        export(model, tmp_path / "model", example)
    assert not list(tmp_path.iterdir())


def test_the_check_sees_shapes_and_numbers_that_are_none() -> None:
    good = torch.ones(3, 2)
    check_same(good + 1e-6, good, "file", 1e-4)
    for bad in (good + 1e-3, torch.ones(3), torch.ones(2, 2), good * torch.nan):
        with pytest.raises(ExportError, match="the file"):
            check_same(bad, good, "file", 1e-4)
    with pytest.raises(ExportError, match="finite"):
        check_same(good * torch.nan, good * torch.nan, "file", 1e-4)


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r'pip install "awn\[onnx\]"'):
        onnx_bytes(nn.Linear(2, 2), torch.randn(4, 2))


def test_any_finalized_model_can_be_exported() -> None:
    plain = awn.finalize(awn.AdaptiveMLP(3, 2, hidden_layers=2, batch_norm=True)).eval()
    rows = torch.randn(5, 3)
    session = onnxruntime.InferenceSession(onnx_bytes(plain, torch.randn(4, 3)))
    program = torch.export.load(io.BytesIO(program_bytes(plain, torch.randn(4, 3)))).module()
    with torch.no_grad():
        assert session.run(None, {"input": rows.numpy()})[0] == pytest.approx(plain(rows).numpy(), abs=1e-5)
        assert torch.allclose(program(rows), plain(rows), atol=1e-6)
