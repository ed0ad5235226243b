"""The methods that `awn bench tables` compares: each takes training rows and returns a fitted model."""

from __future__ import annotations

import io
import pickle
import tempfile
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor
from awn.tabular.folder import save_estimator

WIDTHS = (16, 32, 64, 128, 256)


class Fitted(NamedTuple):
    """A fitted model, and its units if it is a network."""

    model: Any
    units: int | None = None


def plain_frame(X: pd.DataFrame) -> pd.DataFrame:
    """A table for methods without dates and words: dates as numbers of days, words as categories of pandas.

    >>> plain_frame(pd.DataFrame({"when": pd.to_datetime(["1970-01-03"]), "job": ["cook"]})).dtypes.astype(str).tolist()
    ['float64', 'category']
    """
    columns = {}
    for name, column in X.items():
        if pd.api.types.is_datetime64_any_dtype(column):
            columns[name] = (column - pd.Timestamp(0)) / pd.Timedelta(days=1)
        elif pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            columns[name] = column
        else:
            columns[name] = column.astype("category")
    return pd.DataFrame(columns)


def adaptive(X: pd.DataFrame, y: pd.Series, task: str, seed: int, **options: Any) -> Fitted:
    """The estimators with their defaults, which average five networks."""
    kind = AdaptiveClassifier if task == "classification" else AdaptiveRegressor
    model = kind(random_state=seed, **options).fit(X, y)
    return Fitted(model, sum(model.widths_.values()))


def one_network(X: pd.DataFrame, y: pd.Series, task: str, seed: int) -> Fitted:
    """The estimators without averaging."""
    return adaptive(X, y, task, seed, members=1)


def fixed(X: pd.DataFrame, y: pd.Series, task: str, seed: int) -> Fitted:
    """Ordinary networks of five widths with the same encoding and training; the best on the same validation rows."""
    kind = AdaptiveClassifier if task == "classification" else AdaptiveRegressor
    layers = kind().hidden_layers
    networks = {width: kind(random_state=seed, fixed_widths=[width] * layers, members=1).fit(X, y) for width in WIDTHS}
    best = min(WIDTHS, key=lambda width: min(row["validation_loss"] for row in networks[width].history_))
    return Fitted(networks[best], best * layers)


def boosting(X: pd.DataFrame, y: pd.Series, task: str, seed: int) -> Fitted:
    """scikit-learn's histogram gradient boosting with its defaults."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if task == "classification" else HistGradientBoostingRegressor
    return Fitted(kind(random_state=seed, categorical_features="from_dtype").fit(X, y))


def linear(X: pd.DataFrame, y: pd.Series, task: str, seed: int) -> Fitted:
    """Logistic regression, or ridge regression with its penalty cross-validated."""
    from sklearn.linear_model import LogisticRegression, RidgeCV

    model = LogisticRegression(max_iter=1000) if task == "classification" else RidgeCV([0.1, 1.0, 10.0, 100.0])
    return Fitted(_encoded(X, model).fit(X, y))


def sklearn_mlp(X: pd.DataFrame, y: pd.Series, task: str, seed: int) -> Fitted:
    """scikit-learn's multi-layer perceptron with early stopping, its other options at their defaults."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.preprocessing import StandardScaler

    options: dict[str, Any] = {"early_stopping": True, "random_state": seed}
    if task == "classification":
        return Fitted(_encoded(X, MLPClassifier(**options)).fit(X, y), 100)
    scaled = TransformedTargetRegressor(MLPRegressor(**options), transformer=StandardScaler())
    return Fitted(_encoded(X, scaled).fit(X, y), 100)


def catboost(X: pd.DataFrame, y: pd.Series, task: str, seed: int) -> Fitted:
    """CatBoost with its defaults."""
    from catboost import CatBoostClassifier, CatBoostRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    words = list(X.select_dtypes("category"))
    kind = CatBoostClassifier if task == "classification" else CatBoostRegressor
    model = kind(random_seed=seed, cat_features=words, thread_count=1, verbose=False, allow_writing_files=False)
    return Fitted(make_pipeline(FunctionTransformer(_words), model).fit(X, y))


def realmlp(X: pd.DataFrame, y: pd.Series, task: str, seed: int) -> Fitted:
    """RealMLP-TD-S of pytabkit with its defaults."""
    from pytabkit import RealMLP_TD_S_Classifier, RealMLP_TD_S_Regressor

    kind = RealMLP_TD_S_Classifier if task == "classification" else RealMLP_TD_S_Regressor
    return Fitted(kind(random_state=seed, n_threads=1, device="cpu", verbosity=0).fit(X, y), 3 * 256)


#: The methods by name. Those in `EXTRA` need a package that awn does not; those in `OWN` read any column themselves.
METHODS: dict[str, Callable[..., Fitted]] = {
    "adaptive": adaptive,
    "boosting": boosting,
    "linear": linear,
    "MLP of scikit-learn": sklearn_mlp,
    "one network": one_network,
    "best of five widths": fixed,
    "CatBoost": catboost,
    "RealMLP-TD-S": realmlp,
}
EXTRA = {"CatBoost": "catboost", "RealMLP-TD-S": "pytabkit"}
OWN = ("adaptive", "one network", "best of five widths")


def available(method: str) -> bool:
    """Whether the package of a method is installed."""
    return method not in EXTRA or find_spec(EXTRA[method]) is not None


def megabytes(model: Any) -> float:
    """The size of a model on disk: its folder, or its pickle if it is none of awn's."""
    if not isinstance(model, AdaptiveClassifier | AdaptiveRegressor) or model.fixed_widths is not None:
        return _pickled(model) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        save_estimator(model, folder)
        return sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6


def _pickled(model: Any) -> int:
    file = io.BytesIO()
    pickle.dump(model, file)
    return file.tell()


def _encoded(X: pd.DataFrame, model: Any) -> Any:
    """A model over standardised numbers and one-hot categories, with missing numbers imputed."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    words = list(X.select_dtypes("category"))
    numbers = [name for name in X if name not in words]
    encode = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
            ("words", OneHotEncoder(handle_unknown="ignore", min_frequency=5), words),
        ]
    )
    return make_pipeline(encode, model)


def _words(X: pd.DataFrame) -> pd.DataFrame:
    """Categories as strings, which CatBoost wants, missing ones included."""
    return X.assign(
        **{name: X[name].astype(object).fillna("missing").astype(str) for name in X.select_dtypes("category")}
    )


def quietly(fit: Callable[[], Fitted]) -> Fitted:
    """Without the warnings of scikit-learn about iterations and rare classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit()
