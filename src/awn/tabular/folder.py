"""A trained estimator as a folder: its network as `awn.save` writes it, and the rest as JSON. No pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from awn._version import __version__
from awn.checkpoint import describe, read_model, rebuild
from awn.errors import CheckpointError
from awn.files import json_file, tensor_file, write_files
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.preprocess import Preprocessor
from awn.training import History

Estimator = AdaptiveClassifier | AdaptiveRegressor

FORMAT = 1
_ESTIMATORS = {kind.__name__: kind for kind in (AdaptiveClassifier, AdaptiveRegressor)}
# How a class label is written in JSON and read back as the kind of value it was in the table.
_LABELS = {"b": bool, "i": int, "u": int, "f": float, "U": str, "O": str, "T": str}


def save_estimator(estimator: Estimator, folder: str | Path, *, about: dict[str, Any] | None = None) -> None:
    """Write a fitted estimator to a folder; `about` is kept beside it, such as the target's name and the scores.

    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> estimator = AdaptiveClassifier(epochs=2, random_state=0).fit(X, y)
    >>> folder = tempfile.mkdtemp()
    >>> save_estimator(estimator, folder)
    >>> bool((load_estimator(folder).predict_proba(X) == estimator.predict_proba(X)).all())
    True
    """
    model = estimator._adaptive()
    fitted: dict[str, Any] = {
        "preprocessor": estimator.preprocessor_.to_json(),
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": [str(name) for name in getattr(estimator, "feature_names_in_", [])] or None,
        "history": estimator.history_.rows,
    }
    if isinstance(estimator, AdaptiveClassifier):
        labels = estimator.classes_
        fitted["classes"] = {"kind": labels.dtype.kind, "labels": [_LABELS[labels.dtype.kind](x) for x in labels]}
    else:
        fitted["target"] = {
            "mean": estimator.target_mean_.tolist(),
            "scale": estimator.target_scale_.tolist(),
            "one": estimator._one_target,
        }
    options = {name: value for name, value in estimator.get_params().items() if name != "callbacks"}
    content = {
        "format": FORMAT,
        "awn": __version__,
        "estimator": type(estimator).__name__,
        "options": options,
        "fitted": fitted,
        "about": about or {},
    }
    config = describe(model)
    write_files(
        {
            Path(folder) / "model.safetensors": tensor_file(dict(model.state_dict()), config),
            Path(folder) / "config.json": json_file(config),
            Path(folder) / "estimator.json": json_file(content),
        }
    )


def load_estimator(folder: str | Path) -> Estimator:
    """The estimator of a folder that `save_estimator` wrote."""
    content = _read(Path(folder))
    estimator = _ESTIMATORS[content["estimator"]](**content["options"])
    fitted = content["fitted"]
    try:
        estimator.preprocessor_ = Preprocessor.from_json(fitted["preprocessor"])
        estimator.n_features_in_ = fitted["n_features_in"]
        if fitted["feature_names_in"] is not None:
            estimator.feature_names_in_ = np.asarray(fitted["feature_names_in"], dtype=object)
        if isinstance(estimator, AdaptiveClassifier):
            labels = fitted["classes"]
            estimator.classes_ = np.asarray(labels["labels"], dtype=object if labels["kind"] in "OT" else None)
        else:
            estimator.target_mean_ = np.asarray(fitted["target"]["mean"])
            estimator.target_scale_ = np.asarray(fitted["target"]["scale"])
            estimator._one_target = fitted["target"]["one"]
        estimator.history_ = History(fitted["history"])
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{Path(folder) / 'estimator.json'} lacks {error}: it was edited or is damaged."
        ) from None
    estimator.model_ = rebuild(*read_model(folder))
    estimator._finish()
    return estimator


def read_about(folder: str | Path) -> dict[str, Any]:
    """What `save_estimator` was given as `about`."""
    about: dict[str, Any] = _read(Path(folder))["about"]
    return about


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "estimator.json"
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}.")
    if not path.is_file():
        raise CheckpointError(
            f"{folder} is not a model that `awn fit` or save_estimator wrote: it has no estimator.json."
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT or content.get("estimator") not in _ESTIMATORS:
        raise CheckpointError(f"{path} was not written by this version of awn, or was edited.")
    return content
