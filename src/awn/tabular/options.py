"""Options of an estimator that come from a file: checked by name and kind before anything is read or trained."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

from awn.basics.names import near
from awn.errors import ArgumentError
from awn.tabular.estimators import AdaptiveClassifier, AdaptiveRegressor

_ELSEWHERE = {
    "callbacks": "it is code",
    "fixed_widths": "the widths are learned",
    "random_state": "pass a seed",
}


def check_options(kind: type[AdaptiveClassifier | AdaptiveRegressor], options: Mapping[str, Any]) -> None:
    """Refuse an option that an estimator does not have, and a value of another kind or out of its range.

    >>> check_options(AdaptiveClassifier, {"hiden_layers": 3})
    Traceback (most recent call last):
    awn.errors.ArgumentError: there is no option 'hiden_layers'. Did you mean 'hidden_layers'?
    """
    hints = get_type_hints(kind.__init__)
    names = [name for name in hints if name not in (*_ELSEWHERE, "return")]
    for name, value in options.items():
        if name in _ELSEWHERE:
            raise ArgumentError(f"{name!r} cannot be set here: {_ELSEWHERE[name]}.")
        if name not in names:
            known = near(name, names) or f" Known: {', '.join(names)}."
            raise ArgumentError(f"there is no option {name!r}.{known}")
        if not _fits(value, hints[name]):
            raise ArgumentError(f"the option {name!r} must be {_words(hints[name])}, got {value!r}.")
    kind(**options)._options(seed=0, rows=1)  # refuses what the training would


def _fits(value: Any, hint: Any) -> bool:
    if _is_union(hint):
        return any(_fits(value, each) for each in get_args(hint))
    wanted = get_origin(hint) or hint
    if isinstance(value, bool) and wanted is not bool:
        return False
    return isinstance(value, (int, float) if wanted is float else wanted)


def _words(hint: Any) -> str:
    if _is_union(hint):
        return " or ".join(_words(each) for each in get_args(hint))
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", types.NoneType: "nothing"}
    return names.get(hint, "a table of numbers")


def _is_union(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) or get_origin(hint) is Union
