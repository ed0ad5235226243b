"""Estimator parameters from a file: names, types and ranges, checked before anything is read or trained."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from awn.basics.names import near
from awn.errors import ArgumentError
from awn.tabular.criterion import Course
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor

#: Parameters that a file cannot set, with the reason.
SET_ELSEWHERE = {
    "callbacks": "callbacks are Python objects",
    "fixed_widths": "the widths are learned",
    "random_state": "set the seed instead",
}


def check_options(estimator: type[AdaptiveClassifier | AdaptiveRegressor], options: Mapping[str, Any]) -> None:
    """Refuse a parameter that the estimator does not have, and a value of the wrong type or out of range.

    >>> check_options(AdaptiveClassifier, {"hiden_layers": 3})
    Traceback (most recent call last):
    awn.errors.ArgumentError: There is no option 'hiden_layers'. Did you mean 'hidden_layers'?
    """
    hints = get_type_hints(estimator, localns={"KW_ONLY": object})  # it is no type, to which Python 3.10 objects
    names = [field.name for field in dataclasses.fields(estimator) if field.name not in SET_ELSEWHERE]
    for name, value in options.items():
        if name in SET_ELSEWHERE:
            raise ArgumentError(f"The option {name!r} cannot be set here: {SET_ELSEWHERE[name]}.")
        if name not in names:
            known = near(name, names) or f" Options: {', '.join(names)}."
            raise ArgumentError(f"There is no option {name!r}.{known}")
        if not _fits(value, hints[name]):
            raise ArgumentError(f"The option {name!r} must be {_words(hints[name])}, got {value!r}.")
    estimator(**options)._options(seed=0, rows=1, usual=Course(1))  # checks the ranges, as training would


def _fits(value: Any, hint: Any) -> bool:
    if _is_union(hint):
        return any(_fits(value, each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    wanted = get_origin(hint) or hint
    if isinstance(value, bool) and wanted is not bool:
        return False
    return isinstance(value, (int, float) if wanted is float else wanted)


def _words(hint: Any) -> str:
    if _is_union(hint):
        return " or ".join(_words(each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false", types.NoneType: "null"}
    return names.get(hint, "an object of numbers")


def _is_union(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) or get_origin(hint) is Union
