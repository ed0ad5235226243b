"""NetworkEstimator: the part that classifier and regressor share, from the rows of a table to a trained network."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)
from torch import nn

from awn.basics.checks import check_units
from awn.core.count import count_parameters
from awn.core.groups import find_groups
from awn.errors import ArgumentError
from awn.loss.budget import Budget
from awn.loss.param_groups import param_groups
from awn.loss.prior import Prior
from awn.parallel.ddp import together
from awn.smaller.finalize import finalize
from awn.smaller.truncate import truncate
from awn.tabular.calibration import ValidationErrors
from awn.tabular.criterion import Course, Criterion, batch_size_for
from awn.tabular.cross_fit import Part, choose_over_folds_, folds_of, other_parts
from awn.tabular.encode.columns import warn_of_columns
from awn.tabular.encode.preprocess import Preprocessor
from awn.tabular.held_outputs import HeldOutputs
from awn.tabular.make_network import make_network
from awn.tabular.members import Members, layer_widths, merge, networks_of, roomy, total_widths
from awn.tabular.parameters import NetworkParameters
from awn.tabular.read.frames import as_frame
from awn.tabular.training_rows import Array, TrainingRows
from awn.training import Data, FitOptions, History, fit
from awn.training.choosing import pinned_widths
from awn.training.evaluate import all_outputs
from awn.training.options import WIDTH_RATE

SelfT = TypeVar("SelfT", bound="NetworkEstimator")

# For fewer rows, the prior on the weights is widened so that it does not outweigh the data.
_FEW_ROWS = 500
# With fewer rows, one validation part does not tell 20 units from 200, so several folds choose the width.
_FEW_ROWS_TO_CHOOSE = 2000
# Gradients of a small network change quickly, so their squares are averaged over fewer steps than Adam's default.
_BETAS = (0.9, 0.95)
# More networks are hardly better. Averaging pays on all tables, but on longer ones it takes minutes.
_MEMBERS = 5
_MOST_ROWS_TO_AVERAGE = 100_000
# Predictions are computed in double precision for this many rows at a time.
_ROWS_AT_ONCE = 1 << 16


class NetworkEstimator(NetworkParameters, BaseEstimator):  # type: ignore[misc]
    """A network over the encoded rows of a table; the subclasses define what it predicts."""

    # The labels of the rows that the training held out to keep an epoch and to choose the width.
    validation_index_: pd.Index
    # Kept from one call of partial_fit to the next.
    _optimizer: torch.optim.Optimizer | None
    # Of a regressor, for prediction intervals; None if there were no validation rows, or the network was cut.
    validation_errors_: ValidationErrors | None

    def _train(
        self,
        rows: TrainingRows,
        outputs: int,
        criterion: Criterion,
        *,
        folder: str | Path | None,
        resume: bool,
        data_parallel: bool,
    ) -> HeldOutputs:
        """Split off the validation rows, fit the preprocessing on the others, build the networks and train them.

        Returns the outputs for rows that were held out.
        """
        seed = self._seed()
        train, validation = rows.split(self.validation_fraction, stratify=criterion.stratify, seed=seed)
        self._optimizer = None  # one from an earlier partial_fit belongs to another network
        self.validation_index_ = validation.frame.index
        self.preprocessor_ = self._make_preprocessor(criterion).fit(train.frame, train.targets)
        warn_of_columns(self.preprocessor_.columns)
        part = Part(self._data(train), self._data(validation) if len(validation) else None)
        self.model_ = self._make_network(part.train.x.shape[1], outputs, seed)
        usual = criterion.course(math.ceil(len(train) / self._batch_size(len(train))))
        options = self._options(seed, len(train), usual)
        self.max_iter_ = options.epochs
        self.members_ = members = self._number_of_members(part, data_parallel)
        folds = 1
        if members == 1 and len(rows) < _FEW_ROWS_TO_CHOOSE and self._learns_and_chooses() and not data_parallel:
            folds = folds_of(part)
            options = dataclasses.replace(options, choose="epoch") if folds > 1 else options
        self._check_cap(members)
        prior = self._prior(len(train))
        self.history_ = fit(
            together(self.model_) if data_parallel else self.model_,
            *part,
            loss=criterion.loss,
            score=criterion.score,
            options=options,
            prior=prior,
            optimizer=self._make_optimizer(self.model_, options.lr, prior, len(train)),
            budget=self._budget(members),
            callbacks=self.callbacks,
            folder=folder,
            resume=resume,
        )
        held = self._train_others(part, outputs, criterion, options, members=members, folds=folds)
        self._finish(part.train.x)
        return held

    def _train_others(
        self, part: Part, outputs: int, criterion: Criterion, options: FitOptions, *, members: int, folds: int
    ) -> HeldOutputs:
        """Train the networks besides the first, on other parts of the rows.

        Either these choose the width of the first with it, if there are folds, or they become members of the model and
        have the width that the first one has found. Returns the outputs of the members, each for the rows that it did
        not train on.
        """
        networks, parts, histories = [self.model_], [part], [self.history_]
        prior = self._prior(len(part.train.y))
        given = members > 1 and self._learns_and_chooses() and self.max_params is None
        units = roomy(self.model_) if given else None
        for place, other in enumerate(other_parts(part, max(members, folds) - 1, options.seed), 1):
            network = self._make_network(part.train.x.shape[1], outputs, options.seed + place, units)
            own = dataclasses.replace(options, seed=options.seed + place)
            with pinned_widths(network) if units else nullcontext():
                history = fit(
                    network,
                    *other,
                    loss=criterion.loss,
                    options=dataclasses.replace(own, choose=None) if units else own,
                    prior=prior,
                    optimizer=self._make_optimizer(network, options.lr, prior, len(other.train.y)),
                    budget=self._budget(members),
                )
            histories.append(history)
            networks.append(network)
            # The rows of a member are not needed any more, and their memory serves for those of the next.
            parts.append(other if folds > 1 else Part(part.train, other.held))
        if folds > 1:
            self.history_.choice = choose_over_folds_(
                networks, parts, loss=criterion.loss, score=criterion.score, options=options, prior=prior
            )
        self.learned_widths_ = total_widths([kept["widths"] for kept in (each.kept for each in histories[:members])])
        self.model_ = networks[0] if members == 1 else Members(networks[:members])
        return HeldOutputs.of(networks[:members], [part.held for part in parts[:members]])

    def _learns_and_chooses(self) -> bool:
        return self.choose == "smallest" and self.fixed_widths is None

    def _number_of_members(self, part: Part, data_parallel: bool) -> int:
        """The networks to average, unless the user sets their number: one for each fold, at most five."""
        limited = self.fixed_widths is not None or self.max_params is not None
        alone = data_parallel or limited or len(part.train.y) > _MOST_ROWS_TO_AVERAGE
        members = (1 if alone else min(_MEMBERS, folds_of(part))) if self.members is None else self.members
        check_units("members", members)
        if data_parallel and members > 1:
            raise ArgumentError("With data_parallel, several processes train one network: members must be 1.")
        return members

    def _train_on(self, rows: TrainingRows, outputs: int, criterion: Criterion) -> None:
        """Train for one epoch; the first call also fits the preprocessing and builds the network."""
        seed = self._seed()
        if self._is_new():
            self.preprocessor_ = self._make_preprocessor(criterion).fit(rows.frame)
            warn_of_columns(self.preprocessor_.columns)
        data = self._data(rows)
        if self._is_new():
            self.model_ = self._make_network(data.x.shape[1], outputs, seed)
            self.history_ = History()
        if getattr(self, "_optimizer", None) is None:
            self._optimizer = self._make_optimizer(self.model_, criterion.lr if self.lr is None else self.lr)
        done = len(self.history_)  # changes the seed, so that every epoch shuffles differently
        options = FitOptions(
            epochs=1,
            batch_size=self._batch_size(len(rows)),
            clip=self.clip,
            resize_every=self.resize_every,
            patience=None,
            seed=seed + done,
        )
        more = fit(
            self.model_,
            data,
            loss=criterion.loss,
            options=options,
            prior=self._prior(len(rows)),
            budget=self._budget(1),
            optimizer=self._optimizer,
        )
        self.history_ = History([*self.history_, *({**row, "epoch": done + row["epoch"]} for row in more)])
        self._finish(data.x)

    def _finish(self, rows: torch.Tensor | None = None) -> None:
        """Truncate the network to `max_params`, which the budget only approximates, and finalize it for prediction.

        The truncated network is repaired on the training rows.
        """
        groups = find_groups(self.model_)
        if groups and self.max_params is not None and count_parameters(self.model_) > self.max_params:
            enough = rows if rows is not None and len(rows) > 1 else None
            self.model_ = truncate(self.model_, max_params=self.max_params, scope="global", repair=enough)
            self._optimizer = None
        self.widths_ = layer_widths(self.model_)
        self.curve_ = () if self.history_.choice is None else self.history_.choice.curve
        self.n_iter_ = len(self.history_)
        # In double precision on the CPU, the prediction of a row does not depend on the other rows of its batch.
        networks = [finalize(one) if groups else copy.deepcopy(one) for one in networks_of(self.model_)]
        self.network_ = merge(networks).cpu().double().eval().requires_grad_(False)

    def _frame(self, X: Any, *, reset: bool) -> pd.DataFrame:
        """The rows as a DataFrame, checked as scikit-learn does; the columns of an array become x0, x1 and so on."""
        names = None if reset else [column.name for column in self.preprocessor_.columns]
        X = as_frame(X)
        if isinstance(X, pd.DataFrame):
            _check_feature_names(self, X, reset=reset)
            _check_n_features(self, X, reset=reset)
            # Without names in fit, columns are matched by position.
            return X if names is None or "feature_names_in_" in vars(self) else X.set_axis(names, axis=1)
        checked = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")
        return pd.DataFrame(checked, columns=names or [f"x{i}" for i in range(checked.shape[1])])

    def _outputs(self, X: Any) -> Array:
        """The network's outputs for rows."""
        check_is_fitted(self, "network_")
        return self._encoded_outputs(self.encode(X))

    def _encoded_outputs(self, encoded: Array) -> Array:
        rows = torch.from_numpy(encoded)
        parts = rows.split(_ROWS_AT_ONCE) if len(rows) else [rows]
        return np.concatenate([np.asarray(all_outputs(self.network_, part.double())) for part in parts])

    def encode(self, X: Any) -> Array:
        """The rows as the network's inputs: scaled numbers and their bins, and one-hot categories."""
        check_is_fitted(self, "preprocessor_")
        encoded: Array = self.preprocessor_.transform(self._frame(X, reset=False))
        return encoded

    def to_torch(self) -> nn.Module:
        """The trained network as a plain `nn.Module` in single precision; its inputs are the output of `encode`.

        The outputs of a classifier's network are logits: softmax(outputs / temperature_) gives the probabilities.
        """
        check_is_fitted(self, "network_")
        return copy.deepcopy(self.network_).float()

    def truncate(
        self: SelfT,
        *,
        keep: float | None = None,
        units: int | None = None,
        max_params: int | None = None,
        repair: Any = None,
    ) -> SelfT:
        """A copy without the least important units; see `awn.truncate`. `repair` takes rows, such as those of `fit`."""
        rows = self._rows_to_repair(repair)
        return self._with(truncate(self._adaptive(), keep=keep, units=units, max_params=max_params, repair=rows))

    def first_network(self: SelfT) -> SelfT:
        """A copy with the first network alone, if several are averaged. Its validation rows are new to it alone."""
        networks = networks_of(self._adaptive())
        return self if len(networks) == 1 else self._with(networks[0])

    def _rows_to_repair(self, X: Any) -> torch.Tensor | None:
        """The inputs of the network for rows, on its device; None for None."""
        return None if X is None else torch.from_numpy(self.encode(X)).to(next(self.model_.parameters()).device)

    def _with(self: SelfT, model: nn.Module) -> SelfT:
        # Everything else is shared, since it does not change after fitting; the errors are those of this network.
        other = type(self).__new__(type(self))
        other.__dict__.update({**self.__dict__, "model_": model, "_optimizer": None, "validation_errors_": None})
        other._finish()
        return other

    def _adaptive(self) -> nn.Module:
        check_is_fitted(self, "model_")
        if not find_groups(self.model_):
            raise ArgumentError(
                "A network trained with fixed_widths cannot be truncated: its units are not ordered by importance."
            )
        return self.model_

    def _is_new(self) -> bool:
        return getattr(self, "model_", None) is None

    def _data(self, rows: TrainingRows) -> Data:
        device = self._device()
        encoded = torch.from_numpy(self.preprocessor_.transform(rows.frame))
        weight = None if rows.weights is None else torch.from_numpy(rows.weights).to(device, torch.float32)
        return Data(encoded.to(device), torch.from_numpy(rows.targets).to(device), weight)

    def _make_preprocessor(self, criterion: Criterion) -> Preprocessor:
        return Preprocessor(kinds=self.kinds, bins=criterion.bins if self.bins is None else self.bins)

    def _make_network(self, inputs: int, outputs: int, seed: int, units: Sequence[int] | None = None) -> nn.Module:
        return make_network(self, inputs, outputs, seed, units).to(self._device())

    def _prior(self, rows: int) -> Prior:
        """The prior on the weights, wider for few rows."""
        if self.weight_scale is None:
            return Prior(weight_scale=None)
        return Prior(weight_scale=self.weight_scale * math.sqrt(max(1.0, _FEW_ROWS / rows)))

    def _make_optimizer(
        self, model: nn.Module, lr: float, prior: Prior | None = None, rows: int | None = None
    ) -> torch.optim.Optimizer:
        """Adam; given the prior and the number of rows, it applies the prior on the weights, which is cheaper."""
        rate = WIDTH_RATE * lr if self.width_lr is None else self.width_lr
        inside: dict[str, Any] = {"prior": prior, "n_samples": rows} if prior and self.fixed_widths is None else {}
        return torch.optim.Adam(param_groups(model, lr, width_lr=rate, **inside), betas=_BETAS, fused=True)

    def _device(self) -> torch.device:
        wanted = self.device if self.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        try:
            return torch.empty(0, device=wanted).device
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ArgumentError(f"device={wanted!r} cannot be used here: {reason}") from None

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_cap(self, members: int) -> None:
        """Refuse, before training, a limit that even the smallest networks exceed."""
        smallest = members * count_parameters(self.model_, {group.name: 1 for group in find_groups(self.model_)})
        if self.max_params is not None and smallest > self.max_params:
            raise ArgumentError(
                f"max_params={self.max_params:,} cannot be met: with one unit per layer, the network has {smallest:,} "
                "parameters.",
                argument="max_params",
            )

    def _budget(self, members: int) -> Budget | None:
        return None if self.max_params is None else Budget(max_params=self.max_params // members)

    def _options(self, seed: int, rows: int, usual: Course) -> FitOptions:
        epochs, passes = usual[:2] if self.epochs is None else (self.epochs, 1)
        return FitOptions(
            epochs=epochs,
            passes=passes,
            batch_size=self._batch_size(rows),
            lr=usual.lr if self.lr is None else self.lr,
            width_lr=self.width_lr,
            schedule=self.schedule,
            patience=self.patience,
            clip=self.clip,
            resize_every=self.resize_every,
            stop_by="loss",  # smoother than the accuracy on few rows
            choose=self.choose,
            narrow=self.narrow,
            fresh=self.fresh,
            seed=seed,
        )

    def _batch_size(self, rows: int) -> int:
        return batch_size_for(rows) if self.batch_size is None else self.batch_size

    def _require(self, y: Any) -> None:
        if y is None:
            raise ArgumentError(f"{type(self).__name__} requires y to be passed, but the target y is None.")

    def _checked_weights(self, frame: pd.DataFrame, sample_weight: Any) -> Array | None:
        """Sample weights with a mean of 1, or None."""
        if sample_weight is None:
            return None
        checked: Array = _check_sample_weight(sample_weight, frame, ensure_non_negative=True)
        if not checked.sum() > 0:
            raise ArgumentError("sample_weight is zero for every row, so there is nothing to learn from.")
        return np.asarray(checked * (len(checked) / checked.sum()))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
