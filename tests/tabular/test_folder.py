"""Estimators as folders: what comes back, and what is refused."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris

import awn
import awn.files.read
import awn.files.write
from awn.errors import ArgumentError, AwnError, CheckpointError
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.folder import load_estimator, read_about, save_estimator

FEW: dict[str, Any] = {"units": 12, "epochs": 2, "lr": 0.01, "random_state": 0}


def classifier(**options: Any) -> AdaptiveClassifier:
    return AdaptiveClassifier(**{**FEW, **options}).fit(*load_iris(return_X_y=True))


def rows() -> np.ndarray:
    return np.asarray(load_iris().data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_estimator(classifier(), tmp_path / "model", about={"target": "kind"})
    return tmp_path / "model"


# What comes back


def test_a_classifier_comes_back_whole(tmp_path: Path) -> None:
    estimator = classifier(
        members=2, class_weight={0: 1.0, 1: 2.0, 2: 1.0}, lr=np.float64(0.02), batch_size=np.int64(64)
    )
    save_estimator(estimator, tmp_path, about={"target": "kind", "scores": {"adaptive": np.float32(0.5)}})
    other = load_estimator(tmp_path)
    assert np.array_equal(other.predict_proba(rows()), estimator.predict_proba(rows()))
    assert other.get_params() == estimator.get_params()
    assert other.widths_ == estimator.widths_
    timeless = [{name: row[name] for name in row if name != "seconds"} for row in estimator.history_]
    assert other.history_.rows == timeless, "equal runs give equal files, which times would differ in"
    assert other.n_iter_ == estimator.n_iter_
    assert other.n_features_in_ == 4
    assert read_about(tmp_path) == {"target": "kind", "scores": {"adaptive": 0.5}}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    with pytest.raises(CheckpointError, match="holds a Members"):
        awn.load(tmp_path)
    alone = classifier(members=1)
    save_estimator(alone, tmp_path)
    assert awn.widths(awn.load(tmp_path)) == alone.widths_, "awn.load reads a single network"


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array([False, True]),
        np.array([2, 7], dtype=np.uint8),
        np.array([0.0, 1.0]),
        np.array(["no", "yes"], dtype=object),
        np.array([3, 4], dtype=object),
    ],
    ids=lambda labels: labels.dtype.str,
)
def test_labels_come_back_as_what_they_were(labels: np.ndarray, tmp_path: Path) -> None:
    y = labels[(rows()[:, 0] > 5.8).astype(int)]
    if y.dtype == object and not isinstance(y[0], str):
        estimator = AdaptiveClassifier(**FEW).fit(rows(), y.astype(int))
        estimator.classes_ = labels  # scikit-learn lets such labels in only at times
    else:
        estimator = AdaptiveClassifier(**FEW).fit(rows(), y)
    save_estimator(estimator, tmp_path)
    other = load_estimator(tmp_path)
    assert other.predict(rows()).tolist() == estimator.predict(rows()).tolist()
    assert [type(label) for label in other.classes_.tolist()] == [type(label) for label in labels.tolist()]
    assert other.classes_.dtype == estimator.classes_.dtype


@pytest.mark.parametrize("targets", [1, 2])
def test_a_regressor_comes_back_and_learns_on(tmp_path: Path, targets: int) -> None:
    X, y = load_diabetes(return_X_y=True)
    y = y if targets == 1 else np.column_stack([y, -y])
    estimator = AdaptiveRegressor(**FEW, batch_norm=True).fit(X, y)
    save_estimator(estimator, tmp_path)
    other = load_estimator(tmp_path)
    assert np.array_equal(other.predict(X), estimator.predict(X))
    for each in (estimator, other):
        each.partial_fit(X, y)
    assert np.array_equal(other.predict(X), estimator.predict(X))


def test_a_mixed_table_comes_back(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "size": [1.5, np.nan, 3.0, 8.0] * 10,
            "shop": ["n", "s", "?", "e"] * 10,
            "day": pd.date_range("2024-01-01", periods=40),
        }
    )
    estimator = AdaptiveClassifier(**FEW).fit(frame, ["a", "b"] * 20)
    save_estimator(estimator, tmp_path)
    other = load_estimator(tmp_path)
    assert np.array_equal(other.predict_proba(frame), estimator.predict_proba(frame))
    assert other.feature_names_in_.tolist() == ["size", "shop", "day"]


def test_what_cannot_be_data_is_refused_or_left_out(tmp_path: Path) -> None:
    generator = classifier(random_state=np.random.RandomState(3))
    save_estimator(generator, tmp_path)
    assert load_estimator(tmp_path).random_state is None
    with pytest.raises(ArgumentError, match="widths"):
        save_estimator(classifier(fixed_widths=[4]), tmp_path / "fixed")
    with pytest.raises(ArgumentError, match="of type set cannot be saved"):
        save_estimator(generator, tmp_path / "other", about={"tags": {1}})
    assert not (tmp_path / "fixed").exists()
    assert not (tmp_path / "other").exists()


def test_a_score_that_is_no_number_does_not_spoil_the_folder(tmp_path: Path) -> None:
    save_estimator(classifier(), tmp_path, about={"scores": {"adaptive": float("nan")}})
    assert read_about(tmp_path) == {"scores": {"adaptive": None}}


# What is refused


def cut(name: str, left: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[:left])

    return damage


def flip_a_weight(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-9] ^= 0xFF
    path.write_bytes(bytes(content))


def edit(*keys: str, value: Any = None, both: bool = False) -> Callable[[Path], None]:
    """Change an entry of the description: in config.json alone, or in both files, as only someone who means it can."""

    def damage(folder: Path) -> None:
        tensors, _ = awn.files.read.read_tensors(folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())
        inside = config
        for key in keys[:-1]:
            inside = inside[key]
        if value is None:
            del inside[keys[-1]]
        else:
            inside[keys[-1]] = value
        (folder / "config.json").write_bytes(awn.files.write.json_file(config))
        if both:
            (folder / "model.safetensors").write_bytes(awn.files.write.tensor_file(tensors, config))

    return damage


def of_another_network(folder: Path) -> None:
    save_estimator(classifier(units=20), folder.parent / "other")
    shutil.copy(folder.parent / "other" / "model.safetensors", folder)


def not_ours(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "notes.txt").write_text("nothing of awn")


def a_network_alone(folder: Path) -> None:
    shutil.rmtree(folder)
    awn.save(awn.AdaptiveMLP(4, 3), folder)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "weights cut off": (cut("model.safetensors", -50), "model.safetensors cannot be read"),
    "weights cut to nothing": (cut("model.safetensors", 0), "model.safetensors cannot be read"),
    "weights flipped": (flip_a_weight, "have changed since they were saved"),
    "description cut off": (cut("config.json", -50), "config.json is missing or cannot be read"),
    "description missing": (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
    "weights missing": (lambda folder: (folder / "model.safetensors").unlink(), "is not a model folder"),
    "an option edited": (edit("estimator", "options", "units", value=99), "config.json differs"),
    "a class edited": (edit("estimator", "fitted", "classes", "labels", value=[7, 8, 9]), "config.json differs"),
    "weights of another": (of_another_network, "config.json differs"),
    "an unknown option": (edit("estimator", "options", "magic", value=1, both=True), "edited or is damaged.*magic"),
    "no preprocessing": (edit("estimator", "fitted", "preprocessor", both=True), "edited or is damaged.*preprocessor"),
    "too few classes": (edit("estimator", "fitted", "classes", "labels", value=[0, 1], both=True), "2 classes"),
    "too many columns": (edit("estimator", "fitted", "n_features_in", value=9, both=True), "9 columns"),
    "nothing fitted": (edit("estimator", "fitted", value=3, both=True), "edited or is damaged"),
    "another format": (edit("estimator", "format", value=99, both=True), "this version of awn reads formats 1 to 3"),
    "not ours": (not_ours, "is not a model folder"),
    "a network alone": (a_network_alone, "a network without an estimator"),
    "no folder": (shutil.rmtree, "there is no folder"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_with_its_name(damage: str, folder: Path) -> None:
    change, message = DAMAGES[damage]
    change(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_estimator(folder)
    assert str(folder) in str(caught.value)


LACKING = {"type": "a network without an estimator", "format": "this version of awn reads formats 1 to 3"}


@pytest.mark.parametrize("entry", ["type", "options", "fitted", "about", "checksum", "format"])
def test_a_description_that_lacks_an_entry_is_refused(entry: str, folder: Path) -> None:
    edit("estimator", entry, both=True)(folder)
    with pytest.raises(AwnError, match=LACKING.get(entry, f"damaged.*{entry}")):
        read_about(folder) if entry == "about" else load_estimator(folder)


# Saving


def test_a_full_disk_while_saving_leaves_the_old_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, expected = sorted(folder.iterdir()), load_estimator(folder).predict_proba(rows())
    real, written = awn.files.write.os.fsync, []

    def full(number: int) -> None:
        written.append(number)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(number)

    monkeypatch.setattr(awn.files.write.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_estimator(classifier(units=20), folder)
    monkeypatch.undo()
    assert sorted(folder.iterdir()) == before
    assert np.array_equal(load_estimator(folder).predict_proba(rows()), expected)


@pytest.mark.parametrize("moves", [0, 1])
def test_an_interrupted_save_leaves_the_old_model_or_the_new(
    moves: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before any file has its name, or between the two: never a mixture."""
    old, new = load_estimator(folder), classifier(units=20)
    real, made = Path.replace, []

    def stopping(path: Path, target: Path) -> Path:
        if len(made) == moves:
            raise KeyboardInterrupt
        made.append(target)
        return real(path, target)

    monkeypatch.setattr(Path, "replace", stopping)
    with pytest.raises(KeyboardInterrupt):
        save_estimator(new, folder)
    monkeypatch.undo()
    expected = new if moves else old
    assert np.array_equal(load_estimator(folder).predict_proba(rows()), expected.predict_proba(rows()))
    save_estimator(new, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
