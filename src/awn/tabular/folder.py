"""Trained estimators as folders: the network as `awn.save` writes it, with the rest in its description. No pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from awn.basics.plain import to_plain
from awn.errors import ArgumentError, AwnError, CheckpointError
from awn.files.model_folder import describe, read_model, rebuild
from awn.files.write import json_file, tensor_file, write_files
from awn.tabular.encode.preprocess import Preprocessor
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.training import History
from awn.training.data import checksum

Estimator = AdaptiveClassifier | AdaptiveRegressor

FORMAT = 1
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
    write_files(
        {
            Path(folder) / "model.safetensors": tensor_file(tensors, config),
            Path(folder) / "config.json": json_file(config),
        }
    )


def load_estimator(folder: str | Path) -> Estimator:
    """The estimator of a folder that `save_estimator` wrote."""
    tensors, config = _read(Path(folder))
    content = config["estimator"]
    try:
        if content["checksum"] != checksum(tensors[name] for name in sorted(tensors)):
            raise CheckpointError(
                f"The weights in {folder} have changed since they were saved. Restore the folder from a copy."
            )
        estimator = _restored(content)
        estimator.model_ = rebuild(tensors, config)
        _check_belongs(estimator, estimator.model_)
        estimator._finish()
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, AwnError):
            raise
        raise CheckpointError(f"The description in {folder} was edited or is damaged: {error!r}.") from None
    return estimator


def read_about(folder: str | Path) -> dict[str, Any]:
    """The metadata that was passed to `save_estimator` as `about`."""
    about = _read(Path(folder))[1]["estimator"].get("about")
    if not isinstance(about, dict):
        raise CheckpointError(f"The description in {folder} was edited or is damaged: it has no entry 'about'.")
    return about


def _read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if folder.is_dir() and not (folder / "model.safetensors").is_file():
        raise CheckpointError(f"{folder} is not a model folder: `awn fit` and save_estimator write those.")
    tensors, config = read_model(folder)
    content = config.get("estimator")
    if not isinstance(content, dict) or content.get("type") not in _ESTIMATORS:
        raise CheckpointError(f"{folder} holds a network without an estimator. Load it with awn.load.")
    if content.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder} has format {content.get('format')!r}; this version of awn reads format {FORMAT}."
        )
    return tensors, config


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
        "history": estimator.history_.rows,
    }
    if isinstance(estimator, AdaptiveClassifier):
        fitted["classes"] = {"dtype": estimator.classes_.dtype.str, "labels": estimator.classes_.tolist()}
    else:
        fitted["target"] = {
            "mean": estimator.target_mean_.tolist(),
            "scale": estimator.target_scale_.tolist(),
            "one": estimator._one_target,
        }
    return fitted


def _restored(content: dict[str, Any]) -> Estimator:
    """The estimator without its network."""
    options, fitted = dict(content["options"]), content["fitted"]
    if isinstance(options.get("class_weight"), list):
        options["class_weight"] = dict(options["class_weight"])
    estimator = _ESTIMATORS[content["type"]](**options)
    estimator.preprocessor_ = Preprocessor.from_json(fitted["preprocessor"])
    estimator.n_features_in_ = fitted["n_features_in"]
    if fitted["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.asarray(fitted["feature_names_in"], dtype=object)
    if isinstance(estimator, AdaptiveClassifier):
        estimator.classes_ = np.asarray(fitted["classes"]["labels"], dtype=fitted["classes"]["dtype"])
    else:
        estimator.target_mean_ = np.asarray(fitted["target"]["mean"], dtype=np.float64)
        estimator.target_scale_ = np.asarray(fitted["target"]["scale"], dtype=np.float64)
        estimator._one_target = fitted["target"]["one"]
    estimator.history_ = History(fitted["history"])
    return estimator


def _check_belongs(estimator: Estimator, network: Any) -> None:
    """Refuse a network whose inputs or outputs do not match the preprocessing and the classes or targets."""
    made, taken = len(estimator.preprocessor_.feature_names), network.options["in_features"]
    columns = len(estimator.preprocessor_.columns)
    if made != taken or columns != estimator.n_features_in_:
        raise ValueError(
            f"{estimator.n_features_in_} columns instead of {columns}, or {made} inputs for a network with {taken}"
        )
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
