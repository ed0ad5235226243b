"""Several networks for one table: their mean is one network, in memory, in the folder and in the ONNX file."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

import awn
from awn.core.groups import find_groups
from awn.tabular.exporting import export_model
from awn.tabular.folder import load_estimator, save_estimator
from awn.tabular.members import networks_of

FEW: dict[str, Any] = {"units": 12, "epochs": 3, "random_state": 0}
MAKERS = [awn.AdaptiveClassifier, awn.AdaptiveRegressor]


def table(make: Any) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, some missing, whose encoding has bins and marks."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 3)), columns=["a", "b", "c"])
    wanted = np.abs(frame["a"].to_numpy()) + frame["b"].to_numpy()
    frame.iloc[::9, 2] = np.nan
    return frame, (wanted > 0.8) if make is awn.AdaptiveClassifier else wanted


@pytest.mark.parametrize("make", MAKERS)
def test_members_and_their_encoding_are_one_network_everywhere(make: Any, tmp_path: Path) -> None:
    X, y = table(make)
    model = make(**FEW, members=3, bins=6).fit(X, y)
    assert model.members_ == len(networks_of(model.model_)) == 3
    assert len(model.preprocessor_.feature_names) > 2 * X.shape[1]

    encoded = torch.from_numpy(model.encode(X))
    mean = torch.stack([one.eval()(encoded) for one in networks_of(model.model_)]).mean(0)
    assert torch.allclose(model.to_torch()(encoded), mean, atol=1e-5)

    expected = model.predict_proba(X) if make is awn.AdaptiveClassifier else model.predict(X)[:, None]
    save_estimator(model, tmp_path / "model")
    again = load_estimator(tmp_path / "model")
    assert np.array_equal(again.predict(X), model.predict(X))
    export_model(tmp_path / "model", tmp_path / "model.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert session.run(None, {"input": X.to_numpy(np.float64)})[0] == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("make", MAKERS)
def test_all_trainings_of_the_defaults_are_by_hand(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    X, y = table(make)
    with caplog.at_level(logging.INFO, logger="awn.training"):
        model = make(**FEW).fit(X, y)
    ways = [record.getMessage() for record in caplog.records if record.getMessage().startswith("training ")]
    assert len(ways) >= model.members_ == 5
    assert set(ways) == {"training by hand"}
    assert model.history_.path == "by hand"


@pytest.mark.parametrize(
    ("options", "members"),
    [({}, 5), ({"validation_fraction": 0.25}, 4), ({"members": 2}, 2), ({"max_params": 500}, 1), ({"members": 1}, 1)],
)
def test_there_is_a_member_for_each_fold_unless_the_user_says_otherwise(options: Any, members: int) -> None:
    X, y = table(awn.AdaptiveRegressor)
    assert awn.AdaptiveRegressor(**{**FEW, "epochs": 1}, bins=0, **options).fit(X, y).members_ == members


def test_the_others_have_a_quarter_more_units_than_the_first_one_chose() -> None:
    X, y = table(awn.AdaptiveRegressor)
    model = awn.AdaptiveRegressor(**FEW, members=3).fit(X, y)
    first, *others = [list(awn.widths(network).values()) for network in networks_of(model.model_)]
    assert others == [[math.ceil(1.25 * units) for units in first]] * 2
    alone = model.first_network()
    assert list(alone.widths_.values()) == first
    assert model.curve_[0].total_units >= sum(first)


@pytest.mark.parametrize("options", [{"choose": None}, {"choose": "epoch"}, {"max_params": 2000}])
def test_all_networks_learn_their_width_if_the_first_one_does_not_choose_alone(options: Any) -> None:
    X, y = table(awn.AdaptiveRegressor)
    model = awn.AdaptiveRegressor(**FEW, members=3, width_lr=0.5, **options).fit(X, y)
    rates = {group.width.value for network in networks_of(model.model_)[1:] for group in find_groups(network)}
    assert len(rates) == 4
