"""Trained estimators as folders: the network as `awn.save` writes it, with the rest in its description. No pickle."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from awn.basics.plain import to_plain
from awn.core.families import Exponential
from awn.errors import ArgumentError, CheckpointError
from awn.files.model_folder import damage_named, describe, read_model, rebuild, write_model
from awn.files.model_schema import FORMAT
from awn.nn.mlp import AdaptiveMLP
from awn.tabular.calibration import ValidationErrors
from awn.tabular.encode.preprocess import Preprocessor
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.folder_schema import read_content
from awn.tabular.members import Members, networks_of
from awn.tabular.options import SET_ELSEWHERE, check_options
from awn.training import History
from awn.training.data import checksum

Estimator = AdaptiveClassifier | AdaptiveRegressor

_ESTIMATORS = {kind.__name__: kind for kind in (AdaptiveClassifier, AdaptiveRegressor)}


def save_estimator(estimator: Estimator, folder: str | Path, *, about: dict[str, Any] | None = None) -> None:
    """Write a fitted estimator to a folder, with metadata in `about`, such as the target's name and the scores.

    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> estimator = AdaptiveClassifier(epochs=2, random_state=0).fit(X, y)
    >>> folder = tempfile.mkdtemp()
    >>> save_estimator(estimator, folder)
    >>> bool((load_estimator(folder).predict_proba(X) == estimator.predict_proba(X)).all())
    True
    """
    if estimator.fixed_widths is not None:
        raise ArgumentError(
            "An estimator with fixed_widths cannot be saved to a folder. Save estimator.to_torch() instead."
        )
    model = estimator._adaptive()
    tensors = dict(model.state_dict())
    content = {
        "format": FORMAT,
        "type": type(estimator).__name__,
        "options": _options(estimator),
        "fitted": _fitted(estimator),
        "about": about or {},
        "checksum": checksum(tensors[name] for name in sorted(tensors)),
    }
    # The description is in both files. If one of them is edited, or an interrupted save leaves an old file beside a new
    # one, the two differ.
    config = {**describe(model), "estimator": _plain(content)}
    write_model(folder, tensors, config)


def load_estimator(folder: str | Path) -> Estimator:
    """The estimator of a folder that `save_estimator` wrote."""
    tensors, config = _read(Path(folder))
    content = config["estimator"]
    with damage_named(folder):
        if content["checksum"] != checksum(tensors[name] for name in sorted(tensors)):
            raise CheckpointError(
                f"The weights in {folder} have changed since they were saved. Restore the folder from a copy."
            )
        estimator = _restored(content)
        estimator.model_ = rebuild(tensors, config, _unfilled(content["fitted"].get("members")))
        _check_belongs(estimator, estimator.model_)
        estimator._finish()
        return estimator


def read_about(folder: str | Path) -> dict[str, Any]:
    """The metadata that was passed to `save_estimator` as `about`."""
    about: dict[str, Any] = _read(Path(folder))[1]["estimator"]["about"]
    return about


def _read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if folder.is_dir() and not (folder / "model.safetensors").is_file():
        raise CheckpointError(f"{folder} is not a model folder: `awn fit` and save_estimator write those.")
    tensors, config = read_model(folder)
    return tensors, {**config, "estimator": read_content(str(folder), config.get("estimator"), list(_ESTIMATORS))}


def _options(estimator: Estimator) -> dict[str, Any]:
    options = {name: value for name, value in estimator.get_params().items() if name != "callbacks"}
    if isinstance(options["random_state"], np.random.RandomState):
        options["random_state"] = None  # a generator in use cannot be repeated
    if isinstance(options.get("class_weight"), Mapping):
        options["class_weight"] = list(options["class_weight"].items())  # JSON allows only strings as keys
    return options


def _fitted(estimator: Estimator) -> dict[str, Any]:
    names = getattr(estimator, "feature_names_in_", None)
    fitted: dict[str, Any] = {
        "preprocessor": estimator.preprocessor_.to_json(),
        "n_features_in": estimator.n_features_in_,
        "feature_names_in": None if names is None else names.tolist(),
        # Without the times, so that equal runs give equal files.
        "history": [{name: value for name, value in row.items() if name != "seconds"} for row in estimator.history_],
        "members": _members(estimator.model_),
    }
    if isinstance(estimator, AdaptiveClassifier):
        fitted["classes"] = {"dtype": estimator.classes_.dtype.str, "labels": estimator.classes_.tolist()}
        fitted["temperature"] = estimator.temperature_
    else:
        fitted["target"] = {
            "mean": estimator.target_mean_.tolist(),
            "scale": estimator.target_scale_.tolist(),
            "one": estimator._one_target,
        }
        errors = estimator.validation_errors_
        fitted["errors"] = None if errors is None else dataclasses.asdict(errors)
    return fitted


def _members(model: nn.Module) -> dict[str, Any] | None:
    """The number of networks and the options of each, if there are several."""
    networks: list[Any] = networks_of(model)
    return {"number": len(networks), "options": networks[0].options} if isinstance(model, Members) else None


def _unfilled(members: Mapping[str, Any] | None) -> Members | None:
    """Networks to load the weights of several into; None for a single network, which `rebuild` makes itself."""
    if members is None:
        return None
    few = Exponential.for_units(1)  # the state dict sets the widths
    return Members([AdaptiveMLP(**members["options"], importance=few) for _ in range(members["number"])])


def _restored(content: dict[str, Any]) -> Estimator:
    """The estimator without its network."""
    options, fitted = dict(content["options"]), content["fitted"]
    if isinstance(options.get("class_weight"), list):
        options["class_weight"] = dict(options["class_weight"])
    kind = _ESTIMATORS[content["type"]]
    check_options(kind, {name: value for name, value in options.items() if name not in SET_ELSEWHERE})
    estimator = kind(**options)
    estimator.preprocessor_ = Preprocessor.from_json(fitted["preprocessor"])
    estimator.n_features_in_ = fitted["n_features_in"]
    if fitted["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.asarray(fitted["feature_names_in"], dtype=object)
    if isinstance(estimator, AdaptiveClassifier):
        estimator.classes_ = np.asarray(fitted["classes"]["labels"], dtype=fitted["classes"]["dtype"])
        estimator.temperature_ = float(fitted.get("temperature", 1.0))
    else:
        estimator.target_mean_ = np.asarray(fitted["target"]["mean"], dtype=np.float64)
        estimator.target_scale_ = np.asarray(fitted["target"]["scale"], dtype=np.float64)
        estimator._one_target = fitted["target"]["one"]
        errors = fitted.get("errors")
        sizes = () if errors is None else tuple(tuple(target) for target in errors["sizes"])
        estimator.validation_errors_ = None if errors is None else ValidationErrors(sizes, errors["rows"])
    estimator.history_ = History(fitted["history"])
    return estimator


def _check_belongs(estimator: Estimator, model: nn.Module) -> None:
    """Refuse a network whose inputs or outputs do not match the preprocessing and the classes or targets."""
    network: Any = networks_of(model)[0]
    made, taken = len(estimator.preprocessor_.feature_names), network.options["in_features"]
    columns = len(estimator.preprocessor_.columns)
    if made != taken or columns != estimator.n_features_in_:
        raise ValueError(
            f"{estimator.n_features_in_} columns instead of {columns}, or {made} inputs for a network with {taken}"
        )
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and names.tolist() != [column.name for column in estimator.preprocessor_.columns]:
        raise ValueError("feature_names_in differs from the columns of the preprocessing")
    classifies = isinstance(estimator, AdaptiveClassifier)
    outputs = len(estimator.classes_) if isinstance(estimator, AdaptiveClassifier) else len(estimator.target_mean_)
    if outputs != network.options["out_features"]:
        kind = "classes" if classifies else "targets"
        raise ValueError(f"{outputs} {kind} for a network with {network.options['out_features']} outputs")


def _plain(value: Any) -> Any:
    """A value in JSON's own types; a number that is none, such as the score of a single row, becomes null."""
    return to_plain(value, nonfinite="null", other=_without_numpy)


def _without_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    raise ArgumentError(
        f"{value!r} of type {type(value).__name__} cannot be saved: a folder holds only numbers and text."
    )
