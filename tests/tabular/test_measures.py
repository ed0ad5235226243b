"""Measures agree with scikit-learn's, and their intervals with the theory of the mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics

from awn.tabular.calibration import softmax
from awn.tabular.measures import bootstrap, measure_classes, measure_numbers


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("ties", [False, True])
def test_the_measures_of_classes_are_those_of_scikit_learn(classes: int, ties: bool) -> None:
    rng = np.random.default_rng(classes)
    actual = rng.choice(classes, 200, p=np.arange(classes, 0, -1) / np.arange(classes + 1).sum())
    chances = softmax(rng.normal(size=(200, classes)) + np.eye(classes)[actual])
    chances = softmax(np.round(np.log(chances))) if ties else chances
    predicted = chances.argmax(1)
    found = {
        name: one.value for name, one in measure_classes([f"c{i}" for i in range(classes)], actual, chances).items()
    }
    several = {"multi_class": "ovr", "average": "macro"} if classes > 2 else {}
    f1 = metrics.f1_score(actual, predicted, average="macro") if classes > 2 else metrics.f1_score(actual, predicted)
    assert found == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(actual, predicted),
            "balanced accuracy": metrics.balanced_accuracy_score(actual, predicted),
            "AUC": metrics.roc_auc_score(actual, chances if classes > 2 else chances[:, 1], **several),
            "F1 (macro)" if classes > 2 else "F1 of 'c1'": f1,
            "log-loss": metrics.log_loss(actual, chances),
        }
    )


def test_the_measures_of_numbers_are_those_of_scikit_learn() -> None:
    actual, predicted = np.random.default_rng(0).normal(size=(2, 50))
    found = {name: one.value for name, one in measure_numbers(actual, predicted).items()}
    assert found == pytest.approx(
        {
            "R²": metrics.r2_score(actual, predicted),
            "RMSE": metrics.root_mean_squared_error(actual, predicted),
            "MAE": metrics.mean_absolute_error(actual, predicted),
        }
    )


def test_the_interval_of_a_share_is_about_two_standard_errors_wide() -> None:
    actual = np.zeros(1000, dtype=int)
    right = np.arange(1000) < 800
    found = measure_classes(["a", "b"], actual, np.eye(2)[np.where(right, 0, 1)])
    error = math.sqrt(0.8 * 0.2 / 1000)
    assert found["accuracy"].value == 0.8
    assert found["accuracy"].low == pytest.approx(0.8 - 1.96 * error, abs=error / 4)
    assert found["accuracy"].high == pytest.approx(0.8 + 1.96 * error, abs=error / 4)
    assert "AUC" not in found, "rows of one class do not define it"


def test_the_intervals_are_the_same_in_every_call() -> None:
    values = np.random.default_rng(0).normal(size=50)
    first, second = (bootstrap(lambda weights: {"mean": weights @ values / weights.sum()}, 50) for _ in range(2))
    assert first == second
