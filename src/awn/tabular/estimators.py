"""AdaptiveClassifier and AdaptiveRegressor: scikit-learn estimators whose network learns its own width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from awn.tabular.network import Array, NetworkEstimator, weighted_rows
from awn.training import Callback, Data
from awn.training.evaluate import accuracy, all_outputs


class AdaptiveClassifier(ClassifierMixin, NetworkEstimator):  # type: ignore[misc]
    """A classifier that learns the width of its hidden layers.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = AdaptiveClassifier(random_state=0).fit(X, y)
    >>> classifier.score(X, y) > 0.9
    True
    >>> list(classifier.widths_)
    ['hidden.0', 'hidden.1']

    `hidden_layers`, `activation`, `units` (to start from), `scale`, `quantile`, `max_units`, `dropout` and `batch_norm`
    shape the network. A layer grows to `max_units`, or to twice `units` if that is not given; `max_params` caps the
    whole. `weight_scale` is the prior's σ_θ. `fixed_widths` trains an ordinary network of those widths instead, to
    compare with. `resize_every` is the number of steps between two resizes. A share `validation_fraction` of the rows
    is held back to stop early by. DataFrames may have numbers, categories, booleans, dates and missing values.
    """

    def __init__(
        self,
        hidden_layers: int = 2,
        *,
        class_weight: Mapping[Any, float] | str | None = None,
        activation: str = "relu",
        units: int = 128,
        scale: str = "unit",
        quantile: float = 0.9,
        max_units: int | None = None,
        max_params: int | None = None,
        weight_scale: float | None = 0.4,
        dropout: float = 0.0,
        batch_norm: bool = False,
        lr: float = 0.01,
        width_lr: float | None = None,
        batch_size: int | None = None,
        epochs: int = 200,
        patience: int | None = 20,
        schedule: str = "plateau",
        clip: float | None = None,
        resize_every: int = 1,
        validation_fraction: float = 0.1,
        fixed_widths: Sequence[int] | None = None,
        device: str = "cpu",
        callbacks: Sequence[Callback] = (),
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden_layers = hidden_layers
        self.class_weight = class_weight
        self.activation = activation
        self.units = units
        self.scale = scale
        self.quantile = quantile
        self.max_units = max_units
        self.max_params = max_params
        self.weight_scale = weight_scale
        self.dropout = dropout
        self.batch_norm = batch_norm
        self.lr = lr
        self.width_lr = width_lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.patience = patience
        self.schedule = schedule
        self.clip = clip
        self.resize_every = resize_every
        self.validation_fraction = validation_fraction
        self.fixed_widths = fixed_widths
        self.device = device
        self.callbacks = callbacks
        self.random_state = random_state

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
        """Train on rows and their classes; `folder` and `resume` are those of `awn.training.fit`.

        `data_parallel` trains together with the other processes of torch's default group, each given the same rows.
        """
        frame = self._frame(X, reset=True)
        labels = self._labels(frame, y)
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise ArgumentError(
                f"there is only one class, {self.classes_.tolist()[0]!r}; a classifier needs at least two."
            )
        weights = self._class_weights(frame, labels, sample_weight)
        frame, labels, weights = weighted_rows(weights, frame, labels)
        numbers, outputs = np.searchsorted(self.classes_, labels), len(self.classes_)
        loss, score = likelihood.categorical, accuracy
        self._train(frame, numbers, outputs, weights, loss, score, numbers, folder, resume, data_parallel)
        return self

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> AdaptiveClassifier:
        """Train for one epoch on some rows. The first call needs all `classes`, and fits the preprocessing."""
        first = self._is_new()
        if self.class_weight == "balanced":
            raise ArgumentError("partial_fit sees some rows only, so it cannot balance classes: give their weights.")
        frame = self._frame(X, reset=first)
        labels = self._labels(frame, y)
        if first:
            if classes is None:
                raise ArgumentError("the first call of partial_fit must say which classes there are: classes=[…].")
            self.classes_ = np.unique(np.asarray(classes))
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            known = self.classes_.tolist()
            raise ArgumentError(f"class {unknown.tolist()[0]!r} is not among those of the first call, {known}.")
        weights = self._class_weights(frame, labels, sample_weight)
        numbers = np.searchsorted(self.classes_, labels)
        self._train_on(frame, numbers, len(self.classes_), weights, likelihood.categorical)
        return self

    def predict_proba(self, X: Any) -> Array:
        """The probability of every class, [rows, classes], in the order of `classes_`."""
        return np.asarray(torch.from_numpy(self._outputs(X)).softmax(1))

    def predict(self, X: Any) -> Array:
        """The most probable class of every row."""
        check_is_fitted(self, "network_")
        chosen: Array = self.classes_[self._outputs(X).argmax(1)]
        return chosen

    def compress(self, X: Any, y: ArrayLike, *, max_drop: float = 0.005) -> AdaptiveClassifier:
        """A copy with the smallest network whose accuracy on these rows is at most `max_drop` lower."""
        rows, wanted = torch.from_numpy(self.encode(X)), np.asarray(y)
        check_consistent_length(rows, wanted)

        def score(model: nn.Module) -> float:
            return self.network_score(model, rows, wanted)

        return self._with(compress(self._adaptive(), score, max_drop=max_drop))

    def network_score(self, model: nn.Module, rows: Tensor, y: ArrayLike) -> float:
        """The accuracy of a network of this table, such as a smaller one, on rows that `encode` gave."""
        return float(np.mean(self.classes_[predict_rows(model, rows).argmax(1)] == np.asarray(y)))

    def _labels(self, frame: pd.DataFrame, y: ArrayLike) -> Array:
        self._require(y)
        labels: Array = column_or_1d(y, warn=True)
        check_consistent_length(frame, labels)
        try:
            check_classification_targets(labels)
        except ValueError as error:
            raise ArgumentError(str(error)) from None
        return labels

    def _class_weights(self, frame: pd.DataFrame, labels: Array, sample_weight: ArrayLike | None) -> Array | None:
        if self.class_weight is not None:
            try:
                by_class = compute_sample_weight(self.class_weight, labels)
            except ValueError as error:
                raise ArgumentError(f"class_weight={self.class_weight!r} cannot be used: {error}") from None
            sample_weight = by_class if sample_weight is None else by_class * np.asarray(sample_weight)
        return self._checked_weights(frame, sample_weight)


class AdaptiveRegressor(RegressorMixin, NetworkEstimator):  # type: ignore[misc]
    """A regressor that learns the width of its hidden layers; one target or several.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> regressor = AdaptiveRegressor(random_state=0).fit(X, y)
    >>> regressor.predict(X).shape
    (442,)

    The options are those of `AdaptiveClassifier`. Targets are standardised inside.
    """

    def __init__(
        self,
        hidden_layers: int = 2,
        *,
        activation: str = "relu",
        units: int = 128,
        scale: str = "unit",
        quantile: float = 0.9,
        max_units: int | None = None,
        max_params: int | None = None,
        weight_scale: float | None = 0.4,
        dropout: float = 0.0,
        batch_norm: bool = False,
        lr: float = 0.01,
        width_lr: float | None = None,
        batch_size: int | None = None,
        epochs: int = 200,
        patience: int | None = 20,
        schedule: str = "plateau",
        clip: float | None = None,
        resize_every: int = 1,
        validation_fraction: float = 0.1,
        fixed_widths: Sequence[int] | None = None,
        device: str = "cpu",
        callbacks: Sequence[Callback] = (),
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden_layers = hidden_layers
        self.activation = activation
        self.units = units
        self.scale = scale
        self.quantile = quantile
        self.max_units = max_units
        self.max_params = max_params
        self.weight_scale = weight_scale
        self.dropout = dropout
        self.batch_norm = batch_norm
        self.lr = lr
        self.width_lr = width_lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.patience = patience
        self.schedule = schedule
        self.clip = clip
        self.resize_every = resize_every
        self.validation_fraction = validation_fraction
        self.fixed_widths = fixed_widths
        self.device = device
        self.callbacks = callbacks
        self.random_state = random_state

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
        """Train on rows and their targets; `folder` and `resume` are those of `awn.training.fit`.

        `data_parallel` trains together with the other processes of torch's default group, each given the same rows.
        """
        frame = self._frame(X, reset=True)
        weights = self._checked_weights(frame, sample_weight)
        frame, wanted, weights = weighted_rows(weights, frame, self._checked_targets(frame, y))
        targets = self._standardised(wanted, reset=True)
        outputs = targets.shape[1]
        loss, score = likelihood.gaussian, _r2
        self._train(frame, targets, outputs, weights, loss, score, None, folder, resume, data_parallel)
        return self

    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> AdaptiveRegressor:
        """Train for one epoch on some rows. The first call fits the preprocessing and the targets' scale."""
        first = self._is_new()
        frame = self._frame(X, reset=first)
        targets = self._standardised(self._checked_targets(frame, y), reset=first)
        weights = self._checked_weights(frame, sample_weight)
        self._train_on(frame, targets, targets.shape[1], weights, likelihood.gaussian)
        return self

    def predict(self, X: Any) -> Array:
        """The expected target of every row: [rows], or [rows, targets] if there were several."""
        check_is_fitted(self, "network_")
        predicted = self._outputs(X) * self.target_scale_ + self.target_mean_
        return np.asarray(predicted[:, 0] if self._one_target else predicted)

    def compress(self, X: Any, y: ArrayLike, *, max_drop: float = 0.005) -> AdaptiveRegressor:
        """A copy with the smallest network whose R² on these rows is at most `max_drop` lower."""
        rows, wanted = torch.from_numpy(self.encode(X)), np.asarray(y, dtype=np.float64)
        check_consistent_length(rows, wanted)

        def r2(model: nn.Module) -> float:
            return self.network_score(model, rows, wanted)

        return self._with(compress(self._adaptive(), r2, max_drop=max_drop))

    def network_score(self, model: nn.Module, rows: Tensor, y: ArrayLike) -> float:
        """The R² of a network of this table, such as a smaller one, on rows that `encode` gave."""
        return float(r2_score(y, predict_rows(model, rows) * self.target_scale_ + self.target_mean_))

    def _checked_targets(self, frame: pd.DataFrame, y: ArrayLike) -> Array:
        self._require(y)
        checked: Array = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        if checked.ndim == 2 and checked.shape[1] == 1:
            checked = column_or_1d(checked, warn=True)
        check_consistent_length(frame, checked)
        return checked

    def _standardised(self, targets: Array, *, reset: bool) -> Array:
        """The targets, [rows, targets], of about unit size."""
        columns = targets.reshape(len(targets), -1)
        if reset:
            self._one_target = targets.ndim == 1
            self.target_mean_ = columns.mean(0)
            deviation = columns.std(0)
            self.target_scale_ = np.where(deviation > 0, deviation, 1.0)
        elif columns.shape[1] != len(self.target_mean_):
            raise ArgumentError(f"there were {len(self.target_mean_)} targets at first, now {columns.shape[1]}.")
        return np.asarray((columns - self.target_mean_) / self.target_scale_, dtype=np.float32)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _r2(model: nn.Module, data: Data) -> float:
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
