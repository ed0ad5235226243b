"""A model folder and a table file: predict the table, or truncate or compress the model and score it on the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from numpy.typing import NDArray

from awn.basics.names import listed, near
from awn.core.count import count_parameters
from awn.errors import ArgumentError, TableError
from awn.tabular.estimators import AdaptiveClassifier
from awn.tabular.folder import Estimator, load_estimator, read_about, save_estimator
from awn.tabular.members import networks_of
from awn.tabular.read.table import read_table
from awn.tabular.read.target import split_target
from awn.tabular.read.values import is_plain_number, numbers, words
from awn.tabular.split import TEST, TRAIN, VALIDATION, read_split, write_split

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")  # what a formula begins with, in some spreadsheet


def predict_table(
    model: Path, table: Path, *, proba: bool = False, keep: Sequence[str] | None = (), interval: float | None = None
) -> pd.DataFrame:
    """The predictions for the rows of a table: one column, or with `proba` the probability of every class.

    The columns of the table in `keep`, or all of them if it is None, come first. `interval` adds the ends of prediction
    intervals with this coverage, for a regressor.
    """
    estimator, about = load_estimator(model), read_about(model)
    frame = read_table(table, as_text=[*estimator.preprocessor_.text_columns, *(keep or ())], by_line=True)
    keep = frame.columns.tolist() if keep is None else list(dict.fromkeys(keep))
    for name in keep:
        if name not in frame:
            raise TableError(f"{table} has no column {name!r} to keep.{near(name, frame.columns.tolist())}")
    features = frame.drop(columns=[about["target"]], errors="ignore") if "target" in about else frame
    rows, target = _own_columns(estimator, features), about.get("target", "prediction")
    target = f"predicted {target}" if target in keep else target
    if proba and not isinstance(estimator, AdaptiveClassifier):
        raise ArgumentError("proba needs a classifier, and this model is a regressor.", argument="proba")
    if interval is not None and isinstance(estimator, AdaptiveClassifier):
        raise ArgumentError("interval needs a regressor, and this model is a classifier.", argument="interval")
    if proba:
        chances = estimator.predict_proba(rows)
        predicted = pd.DataFrame(chances, columns=[f"{target}={label}" for label in estimator.classes_])
    else:
        predicted = pd.DataFrame({target: estimator.predict(rows)})
    if interval is not None:
        low, high = estimator.predict_interval(rows, interval)
        predicted = predicted.assign(**{f"{target} low": low, f"{target} high": high})
    return pd.concat([frame[list(keep)].reset_index(drop=True), predicted], axis=1) if keep else predicted


def without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with a quote before every text that a spreadsheet would take for a formula.

    >>> without_formulas(pd.DataFrame({"=1+1": ["@SUM(A1)", "north"], "profit": [-5, 3]})).to_dict("list")
    {"'=1+1": ["'@SUM(A1)", 'north'], 'profit': [-5, 3]}
    """
    quoted = {name: frame[name] if is_plain_number(frame[name]) else frame[name].map(_quoted) for name in frame}
    return pd.DataFrame(quoted).rename(columns=_quoted)


def _quoted(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def truncate_model(
    model: Path,
    table: Path,
    out: Path,
    *,
    keep: float | None = None,
    units: int | None = None,
    max_params: int | None = None,
    repair: bool = True,
) -> dict[str, Any]:
    """Truncate a model as `awn.truncate` does, repair it on a table, score both there, and save the smaller one."""

    def truncated(estimator: Estimator, rows: _TableRows) -> Estimator:
        return estimator.truncate(keep=keep, units=units, max_params=max_params, repair=rows.X if repair else None)

    return _smaller(model, table, out, truncated)


def compress_model(model: Path, table: Path, out: Path, *, max_drop: float, repair: bool = True) -> dict[str, Any]:
    """Compress a model by its score on a table, on which every truncation is repaired, and save the smaller one."""

    def compressed(estimator: Estimator, rows: _TableRows) -> Estimator:
        return estimator.compress(*rows.held, max_drop=max_drop, repair=rows.X if repair else None)

    return _smaller(model, table, out, compressed)


class _TableRows(NamedTuple):
    """The rows to repair a network on, those to judge it by, and those for the last figure, if they are others.

    Of the table that a model was trained on, these are the training, validation and test rows. Of another table, all
    rows have the first two roles.
    """

    X: pd.DataFrame
    held: tuple[pd.DataFrame, pd.Series]
    held_name: str
    test: tuple[pd.DataFrame, pd.Series] | None
    parts: NDArray[Any] | None


def _smaller(model: Path, table: Path, out: Path, cut: Callable[[Estimator, _TableRows], Estimator]) -> dict[str, Any]:
    estimator, about = load_estimator(model), read_about(model)
    if "target" not in about:
        raise ArgumentError(
            f"The model {model} was saved without the name of its target. Truncate or compress it in Python."
        )
    rows = _table_rows(model, estimator, about, table)
    smaller = cut(estimator, rows)
    before, after = (_facts(each, rows) for each in (estimator, smaller))
    scored: dict[str, Any] = {"scores": {"adaptive": after["score"]}, "scored_on": str(table), "cut_from": before}
    if rows.test is not None:
        if _networks(estimator) == 1:  # of several, all but one were trained on the validation rows
            smaller.calibrate_(*rows.held)
        scored |= {"scores": {"adaptive": after["test_score"]}, "scored_on": None}
    save_estimator(smaller, out, about={**about, **scored})
    if rows.parts is not None:
        write_split(out, rows.parts)
    names = {"score_name": about.get("score_name", "score"), "rows": rows.held_name}
    return {**names, "before": before, "after": after, "model": str(out)}


def _table_rows(model: Path, estimator: Estimator, about: dict[str, Any], table: Path) -> _TableRows:
    frame = read_table(table, as_text=estimator.preprocessor_.text_columns, by_line=True)
    features, target, _ = split_target(frame, about["target"])
    X, y = _own_columns(estimator, features), _as_learned(estimator, target)
    parts = read_split(model, about, table, len(frame))
    own = None if parts is None else parts[frame.index.get_indexer(X.index)]
    if own is None or not {TRAIN, VALIDATION, TEST} <= set(own):
        return _TableRows(X, (X, y), f"all rows of {table}", None, None)
    train, held, test = ((X[own == part], y[own == part]) for part in (TRAIN, VALIDATION, TEST))
    seen = ", on which all networks but one were trained" if _networks(estimator) > 1 else ""
    return _TableRows(train[0], held, f"the validation rows{seen}", test, parts)


def _networks(estimator: Estimator) -> int:
    return len(networks_of(estimator.model_))


def _facts(estimator: Estimator, rows: _TableRows) -> dict[str, Any]:
    return {
        "score": float(estimator.score(*rows.held)),
        **({} if rows.test is None else {"test_score": float(estimator.score(*rows.test))}),
        "parameters": count_parameters(estimator.model_),
        "widths": estimator.widths_,
    }


def _as_learned(estimator: Estimator, target: pd.Series) -> pd.Series:
    """The target with the model's own labels: the class 1 in one file may be the string '1' in another."""
    if not isinstance(estimator, AdaptiveClassifier):
        return pd.Series(numbers(target), index=target.index, name=target.name)
    known = dict(zip(words(pd.Series(estimator.classes_)), estimator.classes_, strict=True))
    found = words(target)
    unknown = next((word for word in found if word not in known), None)
    if unknown is not None:
        raise TableError(
            f"The target {target.name!r} holds {unknown!r}, which is not a class of the model: {listed(known)}."
        )
    return pd.Series([known[word] for word in found], index=target.index, name=target.name)


def _own_columns(estimator: Estimator, features: pd.DataFrame) -> pd.DataFrame:
    """The columns that the model uses, in its order; other columns of the table are ignored."""
    return estimator.preprocessor_.select(features)
