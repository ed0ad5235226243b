"""Probabilities that hold, and intervals that cover what they promise."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.metrics import log_loss

from awn.errors import ArgumentError
from awn.tabular.calibration import CalibrationCurve, ValidationErrors, fit_temperature, softmax
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.folder import load_estimator, save_estimator


@pytest.mark.parametrize("temperature", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_temperature_of_drawn_classes_is_found(temperature: float, classes: int) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, classes))
    chances = softmax(logits, temperature)
    actual = (rng.random((len(logits), 1)) > chances.cumsum(1)).sum(1).clip(max=classes - 1)
    found = fit_temperature(logits, actual)
    assert found == pytest.approx(temperature, rel=0.1)
    for other in (0.9 * found, 1.1 * found):
        assert log_loss(actual, softmax(logits, found)) <= log_loss(actual, softmax(logits, other))


def test_the_temperature_stays_finite() -> None:
    logits = np.array([[0.0, 1.0]] * 3)
    assert math.isfinite(fit_temperature(logits, np.array([1, 1, 1])))
    assert math.isfinite(fit_temperature(logits, np.array([0, 0, 0])))
    assert fit_temperature(np.empty((0, 2)), np.empty(0, dtype=int)) == 1.0


def test_weights_are_repeated_rows() -> None:
    logits, actual = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, -1.0]]), np.array([1, 0, 0])
    repeated = fit_temperature(logits.repeat([3, 1, 2], axis=0), actual.repeat([3, 1, 2]))
    assert fit_temperature(logits, actual, np.array([3.0, 1.0, 2.0])) == pytest.approx(repeated)


def test_a_classifier_is_calibrated_and_predicts_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    options = {"epochs": 20, "weight_scale": None, "choose": None, "random_state": 0}
    plain = AdaptiveClassifier(**options, calibrate=False).fit(X, y)
    calibrated = AdaptiveClassifier(**options).fit(X, y)
    assert plain.temperature_ == 1.0 != calibrated.temperature_
    assert np.array_equal(plain.predict(X), calibrated.predict(X))
    assert calibrated.predict_proba(X) == pytest.approx(softmax(plain._outputs(X), calibrated.temperature_))
    save_estimator(calibrated, tmp_path)
    assert load_estimator(tmp_path).temperature_ == calibrated.temperature_
    new = rng.normal(size=(300, 5))
    again = calibrated.truncate(keep=0.5).calibrate_(new, (new[:, 0] > 0).astype(int))
    assert again.temperature_ != calibrated.temperature_
    with pytest.raises(ArgumentError, match=r"y has the class 7, but the classes of this model are \[0, 1\]"):
        calibrated.calibrate_(X, np.full(300, 7))


@pytest.mark.parametrize("rows", [19, 99, 5000])
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
def test_intervals_have_the_width_of_the_conformal_quantile(rows: int, coverage: float) -> None:
    errors = np.random.default_rng(0).normal(size=(rows, 2))
    expected = np.sort(np.abs(errors), axis=0)[math.ceil((rows + 1) * coverage) - 1]
    found = ValidationErrors.of(errors).half_widths(coverage)
    assert (found >= expected).all()
    assert found == pytest.approx(expected, rel=0 if rows <= 1000 else 0.02)


def test_intervals_that_the_rows_do_not_allow_are_refused() -> None:
    errors = ValidationErrors.of(np.ones((9, 1)))
    assert errors.half_widths(0.9) == [1.0]
    with pytest.raises(ArgumentError, match=r"interval=0.95 needs more than 9 validation rows; .* at most 0\.900"):
        errors.half_widths(0.95)
    with pytest.raises(ArgumentError, match="strictly between 0 and 1"):
        errors.half_widths(90)


def test_a_regressor_covers_new_rows(tmp_path: Path) -> None:
    X, y = load_diabetes(return_X_y=True)
    regressor = AdaptiveRegressor(epochs=5, random_state=0).fit(X[:300], y[:300])
    low, high = regressor.predict_interval(X[300:], 0.8)
    assert 0.65 < np.mean((low <= y[300:]) & (y[300:] <= high)) < 0.95
    wide = regressor.predict_interval(X[300:], 0.95)
    assert (wide[0] < low).all()
    assert (wide[1] > high).all()
    save_estimator(regressor, tmp_path)
    assert np.array_equal(load_estimator(tmp_path).predict_interval(X, 0.8), regressor.predict_interval(X, 0.8))
    cut = regressor.truncate(keep=0.5)
    with pytest.raises(ArgumentError, match=r"truncated. Call calibrate_\(X, y\)"):
        cut.predict_interval(X)
    errors = np.sort(np.abs(cut.predict(X[300:]) - y[300:]))
    half = (np.subtract(*cut.calibrate_(X[300:], y[300:]).predict_interval(X[:1], 0.9)[::-1]) / 2)[0]
    assert half == pytest.approx(errors[math.ceil(143 * 0.9) - 1], rel=1e-4)


def test_the_intervals_of_several_targets_have_their_own_widths() -> None:
    X, y = load_diabetes(return_X_y=True)
    regressor = AdaptiveRegressor(epochs=2, random_state=0).fit(X, np.column_stack([y, 1000 * y]))
    low, high = regressor.predict_interval(X)
    assert low.shape == (442, 2)
    widths = (high - low)[0]
    assert widths[1] > 100 * widths[0]


def test_the_calibration_curve_is_on_the_diagonal_where_probabilities_hold() -> None:
    rng = np.random.default_rng(0)
    chances = softmax(rng.normal(size=(20_000, 3)))
    actual = (rng.random((20_000, 1)) > chances.cumsum(1)).sum(1).clip(max=2)
    curve = CalibrationCurve.of(chances, actual)
    assert sum(curve.rows) == 20_000
    assert curve.accuracy == pytest.approx(curve.confidence, abs=0.04)
    assert curve.error < 0.02
    assert CalibrationCurve.of(softmax(np.log(chances), 0.25), actual).error > 0.1, "overconfident"
