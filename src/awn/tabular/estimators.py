"""AdaptiveClassifier and AdaptiveRegressor: scikit-learn estimators with a network that learns its widths."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import Tensor, nn

from awn.errors import ArgumentError
from awn.loss import likelihood
from awn.smaller.truncate import compress
from awn.tabular.calibration import ValidationErrors, fit_temperature, softmax
from awn.tabular.criterion import Criterion
from awn.tabular.held_outputs import HeldOutputs
from awn.tabular.network import NetworkEstimator
from awn.tabular.training_rows import Array, TrainingRows
from awn.training import Data
from awn.training.evaluate import accuracy, all_outputs


@dataclass(eq=False, repr=False, kw_only=True)
class AdaptiveClassifier(ClassifierMixin, NetworkEstimator):  # type: ignore[misc]
    """A classifier that learns the width of its hidden layers.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = AdaptiveClassifier(random_state=0).fit(X, y)
    >>> classifier.score(X, y) > 0.9
    True
    >>> list(classifier.widths_)
    ['hidden.0', 'hidden.1']

    DataFrames may hold numbers, categories, booleans, dates and missing values. Arrays hold numbers.

    The network:

    - `hidden_layers`: the number of hidden layers.
    - `activation`: the name of the activation function, such as "relu", "gelu" or "tanh".
    - `units`: the number of units that each hidden layer starts with.
    - `max_units`: the most units a hidden layer may grow to; None means 256, or twice `units` if that is more.
    - `max_params`: the most parameters the network may end with; None means no limit.
    - `ordered`: the share of the training steps that also train a random prefix of the units, from 0 to 1. The trained
      network can then be truncated further, but is itself a little worse.
    - `scale`: the scale of the importance, "anchored", "mass" or "unit"; see `awn.Exponential`.
    - `quantile`: the share of the importance that the width covers, between 0 and 1.
    - `members`: the number of networks whose outputs are averaged, each with other rows held out. None means 5, or
      fewer if `validation_fraction` gives fewer, and 1 with `max_params` or above 100,000 training rows. The first
      network learns and chooses its width; the others have a quarter more units. `widths_` has the units of all
      networks. One network takes less time and scores a little lower.
    - `bins`: the most bins of the piecewise-linear encoding of a number; 0 means none, None 16 for a classifier and 24
      for a regressor. Tables with many columns or rows get fewer.
    - `dropout`: the dropout rate after each activation.
    - `batch_norm`: whether to normalise each hidden layer before its activation.
    - `fixed_widths`: the hidden widths of an ordinary network to train instead, as a reference.

    The training:

    - `weight_scale`: the standard deviation of the weights' prior, larger below 500 rows; None means no prior.
    - `lr`: the learning rate; None means 0.01 for a classifier and 0.007 for a regressor.
    - `width_lr`: the learning rate of the widths; None means five times `lr`.
    - `batch_size`: rows per batch; None means 1/32 of the training rows, between 16 and 128.
    - `epochs`: the most passes over the training rows. None means 15 of a classifier, within 200 to 1,000 steps and at
      least 4, and 50 of a regressor, within 250 to 4,000 steps and at least 6. An epoch of `history_` is then several
      passes if they have few steps. Classes with intricate borders and little noise need more.
    - `patience`: epochs without a lower validation loss before training stops; None means never.
    - `schedule`: the learning rate over time, "constant", "cosine" or "plateau".
    - `clip`: the largest norm of the gradient; None means no clipping.
    - `resize_every`: steps between two resizes.
    - `validation_fraction`: the share of the rows held back to keep the best epoch and to choose the width; at most
      2,500 rows.
    - `choose`: "smallest" cuts the trained network to the smallest size that is as good on the validation rows. With
      `members=1` and below 2,000 rows, it takes as many folds for this as `validation_fraction` gives. "epoch" keeps
      the learned widths of the smallest of equally good epochs, None those of the best epoch.
    - `narrow`: widths do not change in the first tenth of the epochs. Wider layers are then cut to so many units, or
      more if that costs too much, and learn on. None means that widths learn from the first step. Not with
      `choose=None`.
    - `fresh`: whether to also train a new network at the chosen widths, and keep it if its validation loss is lower. It
      takes about twice as long.
    - `kinds`: the kinds of some columns, by name: "number", "boolean", "category", "date" or "ignored". The others are
      inferred; free text and identifiers are left out, with a warning.
    - `class_weight`: a weight for each class, or "balanced" for weights inversely proportional to class frequency.
    - `calibrate`: whether to fit the temperature of the probabilities to the validation rows after training.
    - `device`: where to train, such as "cpu" or "cuda"; "auto" means CUDA if there is one.
    - `callbacks`: `awn.training.Callback` objects to call during `fit`.
    - `random_state`: the seed of the initial weights, the validation split and the order of the rows.

    Fitted attributes: `widths_`, the units per layer; `curve_`, the validation loss at every size, as
    `awn.advanced.CurvePoint` objects from the learned network down to one unit per layer; `history_`, one row per
    epoch; `members_`, the number of networks; `network_`, all of them as one plain module; `temperature_`, by which
    `predict_proba` divides the network's outputs.
    """

    class_weight: Mapping[Any, float] | str | None = None
    calibrate: bool = True

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        folder: str | Path | None = None,
        resume: bool = False,
        data_parallel: bool = False,
    ) -> AdaptiveClassifier:
        """Train on rows and their classes.

        `folder` and `resume` are those of `awn.training.fit`. With `data_parallel`, all processes of torch's default
        group train one network together; each must get the same rows.
        """
        frame = self._frame(X, reset=True)
        labels = self._labels(frame, y)
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise ArgumentError(
                f"y has only one class, {self.classes_.tolist()[0]!r}; a classifier needs at least two."
            )
        rows = self._training_rows(frame, labels, sample_weight).of_positive_weight()
        held = self._train(
            rows, len(self.classes_), _CLASSIFICATION, folder=folder, resume=resume, data_parallel=data_parallel
        )
        self._fit_temperature(held)
        return self

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> AdaptiveClassifier:
        """Train for one epoch on some rows. The first call needs all `classes` and fits the preprocessing."""
        first = self._is_new()
        if self.class_weight == "balanced":
            raise ArgumentError(
                "class_weight='balanced' does not work with partial_fit, which sees only some of the rows. "
                "Pass a dict of weights."
            )
        frame = self._frame(X, reset=first)
        if first:
            if classes is None:
                raise ArgumentError("classes is required in the first call of partial_fit: pass all class labels.")
            self.classes_, self.temperature_ = np.unique(np.asarray(classes)), 1.0
        labels = self._known_labels(frame, y)
        self._train_on(self._training_rows(frame, labels, sample_weight), len(self.classes_), _CLASSIFICATION)
        return self

    def predict_proba(self, X: Any) -> Array:
        """The probability of every class, [rows, classes], in the order of `classes_`, at the fitted temperature."""
        return softmax(self._outputs(X), self.temperature_)

    def predict(self, X: Any) -> Array:
        """The most probable class of every row."""
        check_is_fitted(self, "network_")
        chosen: Array = self.classes_[self._outputs(X).argmax(1)]
        return chosen

    def calibrate_(self, X: Any, y: ArrayLike) -> AdaptiveClassifier:
        """Fit the temperature of the probabilities to rows that were not trained on, such as after a truncation."""
        check_is_fitted(self, "network_")
        frame = self._frame(X, reset=False)
        classes = np.searchsorted(self.classes_, self._known_labels(frame, y))
        self._fit_temperature(HeldOutputs(self._encoded_outputs(self.preprocessor_.transform(frame)), classes))
        return self

    def _fit_temperature(self, held: HeldOutputs) -> None:
        self.temperature_ = fit_temperature(held.outputs, held.targets, held.weights) if self.calibrate else 1.0

    def compress(self, X: Any, y: ArrayLike, *, max_drop: float = 0.005, repair: Any = None) -> AdaptiveClassifier:
        """A copy with the smallest network whose accuracy on these rows drops by at most `max_drop`.

        `repair` takes rows, such as those of `fit`; see `awn.compress`.
        """
        rows, wanted = torch.from_numpy(self.encode(X)), np.asarray(y)
        check_consistent_length(rows, wanted)

        def score(model: nn.Module) -> float:
            return self.network_score(model, rows, wanted)

        network = self._adaptive()
        return self._with(compress(network, score, max_drop=max_drop, repair=self._rows_to_repair(repair)))

    def network_score(self, model: nn.Module, rows: Tensor, y: ArrayLike) -> float:
        """The accuracy of a network for this table, such as a truncated one, on rows that `encode` returned."""
        return float(np.mean(self.classes_[predict_rows(model, rows).argmax(1)] == np.asarray(y)))

    def _labels(self, frame: pd.DataFrame, y: ArrayLike) -> Array:
        self._require(y)
        labels: Array = column_or_1d(y, warn=True)
        check_consistent_length(frame, labels)
        if (missing := pd.isna(labels)).any():
            rows = ", ".join(map(str, np.flatnonzero(missing)[:5]))
            raise ArgumentError(
                f"y has {missing.sum()} missing values, in rows {rows}. Leave out rows without a class."
            )
        try:
            check_classification_targets(labels)
        except ValueError as error:
            raise ArgumentError(str(error)) from None
        return labels

    def _known_labels(self, frame: pd.DataFrame, y: ArrayLike) -> Array:
        labels = self._labels(frame, y)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            known = self.classes_.tolist()
            raise ArgumentError(f"y has the class {unknown.tolist()[0]!r}, but the classes of this model are {known}.")
        return labels

    def _training_rows(self, frame: pd.DataFrame, labels: Array, sample_weight: ArrayLike | None) -> TrainingRows:
        if self.class_weight is not None:
            try:
                by_class = compute_sample_weight(self.class_weight, labels)
                if not (np.isfinite(by_class).all() and by_class.min() >= 0 and by_class.any()):
                    raise ValueError("weights must be finite numbers of at least 0, and some above it")
            except ValueError as error:
                raise ArgumentError(f"class_weight={self.class_weight!r} cannot be used: {error}") from None
            sample_weight = by_class if sample_weight is None else by_class * np.asarray(sample_weight)
        weights = self._checked_weights(frame, sample_weight)
        return TrainingRows(frame, np.searchsorted(self.classes_, labels), weights)


class AdaptiveRegressor(RegressorMixin, NetworkEstimator):  # type: ignore[misc]
    """A regressor that learns the width of its hidden layers; one target or several.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> regressor = AdaptiveRegressor(random_state=0).fit(X, y)
    >>> regressor.predict(X).shape
    (442,)

    The parameters are those of `AdaptiveClassifier`, without `class_weight`. Targets are standardised internally.
    """

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        folder: str | Path | None = None,
        resume: bool = False,
        data_parallel: bool = False,
    ) -> AdaptiveRegressor:
        """Train on rows and their targets.

        `folder` and `resume` are those of `awn.training.fit`. With `data_parallel`, all processes of torch's default
        group train one network together; each must get the same rows.
        """
        frame = self._frame(X, reset=True)
        weights = self._checked_weights(frame, sample_weight)
        rows = TrainingRows(frame, self._checked_targets(frame, y), weights).of_positive_weight()
        rows = dataclasses.replace(rows, targets=self._standardised(rows.targets, reset=True))
        held = self._train(
            rows, rows.targets.shape[1], _REGRESSION, folder=folder, resume=resume, data_parallel=data_parallel
        )
        self._keep_errors(held)
        return self

    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> AdaptiveRegressor:
        """Train for one epoch on some rows. The first call fits the preprocessing and the targets' scale."""
        first = self._is_new()
        frame = self._frame(X, reset=first)
        targets = self._standardised(self._checked_targets(frame, y), reset=first)
        self.validation_errors_ = None
        rows = TrainingRows(frame, targets, self._checked_weights(frame, sample_weight))
        self._train_on(rows, targets.shape[1], _REGRESSION)
        return self

    def predict(self, X: Any) -> Array:
        """The predicted target of every row: [rows], or [rows, targets] if there are several."""
        check_is_fitted(self, "network_")
        predicted = self._outputs(X) * self.target_scale_ + self.target_mean_
        return np.asarray(predicted[:, 0] if self._one_target else predicted)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Array, Array]:
        """The lower and upper ends of intervals that contain the target of a row with probability `coverage`.

        They are conformal intervals: every one has the same width, from the errors on rows that were held out. If
        several networks are averaged, these are the errors of each network on its own held-out rows, so intervals are
        rather too wide. Those rows also chose the epoch and the width.
        """
        check_is_fitted(self, "network_")
        if self.validation_errors_ is None:
            raise ArgumentError(
                "There are no validation errors for prediction intervals: the model was trained without validation "
                "rows, or truncated. Call calibrate_(X, y) with rows that were not trained on."
            )
        half = self.validation_errors_.half_widths(coverage)
        predicted = self.predict(X)
        half = half[0] if self._one_target else half
        return predicted - half, predicted + half

    def calibrate_(self, X: Any, y: ArrayLike) -> AdaptiveRegressor:
        """Take the errors on rows that were not trained on as those of prediction intervals."""
        check_is_fitted(self, "network_")
        frame = self._frame(X, reset=False)
        targets = self._standardised(self._checked_targets(frame, y), reset=False)
        self._keep_errors(HeldOutputs(self._encoded_outputs(self.preprocessor_.transform(frame)), targets))
        return self

    def _keep_errors(self, held: HeldOutputs) -> None:
        errors = (held.outputs - held.targets) * self.target_scale_ if len(held) else None
        self.validation_errors_ = None if errors is None else ValidationErrors.of(errors)

    def compress(self, X: Any, y: ArrayLike, *, max_drop: float = 0.005, repair: Any = None) -> AdaptiveRegressor:
        """A copy with the smallest network whose R² on these rows drops by at most `max_drop`.

        `repair` takes rows, such as those of `fit`; see `awn.compress`.
        """
        rows, wanted = torch.from_numpy(self.encode(X)), np.asarray(y, dtype=np.float64)
        check_consistent_length(rows, wanted)

        def r2(model: nn.Module) -> float:
            return self.network_score(model, rows, wanted)

        network = self._adaptive()
        return self._with(compress(network, r2, max_drop=max_drop, repair=self._rows_to_repair(repair)))

    def network_score(self, model: nn.Module, rows: Tensor, y: ArrayLike) -> float:
        """The R² of a network for this table, such as a truncated one, on rows that `encode` returned."""
        return float(r2_score(y, predict_rows(model, rows) * self.target_scale_ + self.target_mean_))

    def _checked_targets(self, frame: pd.DataFrame, y: ArrayLike) -> Array:
        self._require(y)
        checked: Array = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        if checked.ndim == 2 and checked.shape[1] == 1:
            checked = column_or_1d(checked, warn=True)
        check_consistent_length(frame, checked)
        return checked

    def _standardised(self, targets: Array, *, reset: bool) -> Array:
        """The targets, [rows, targets], with mean 0 and standard deviation 1 in the first rows seen."""
        columns = targets.reshape(len(targets), -1)
        if reset:
            self._one_target = targets.ndim == 1
            self.target_mean_ = columns.mean(0)
            deviation = columns.std(0)
            self.target_scale_ = np.where(deviation > 0, deviation, 1.0)
        elif columns.shape[1] != len(self.target_mean_):
            raise ArgumentError(
                f"y has {columns.shape[1]} targets, but the first call of partial_fit had {len(self.target_mean_)}."
            )
        return np.asarray((columns - self.target_mean_) / self.target_scale_, dtype=np.float32)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def r_squared(model: nn.Module, data: Data) -> float:
    """R² on these rows, the mean over the targets; 0 where a target is the same in all of them."""
    weight = torch.ones_like(data.y[:, :1]) if data.weight is None else data.weight[:, None]
    mean = (weight * data.y).sum(0) / weight.sum()
    predicted = all_outputs(model, data.x)
    errors, spread = ((weight * (data.y - other).square()).double().sum(0) for other in (predicted, mean))
    varied = spread > 1e-9 * weight.sum()  # above rounding: the targets are of about unit size
    return float(torch.where(varied, 1 - errors / spread, 0.0).mean())


def predict_rows(model: nn.Module, rows: Tensor) -> Array:
    """A model's outputs for encoded rows, as an array."""
    return np.asarray(all_outputs(model.eval(), rows.to(next(model.parameters()).device)).cpu())


# The cross-entropy on validation rows rises again long before the squared error does.
_CLASSIFICATION = Criterion(
    likelihood.categorical,
    accuracy,
    stratify=True,
    bins=16,
    lr=0.01,
    passes=15,
    fewest_passes=4,
    fewest_steps=200,
    most_steps=1000,
)
_REGRESSION = Criterion(
    likelihood.gaussian,
    r_squared,
    stratify=False,
    bins=24,
    lr=0.007,
    passes=50,
    fewest_passes=6,
    fewest_steps=250,
    most_steps=4000,
)
