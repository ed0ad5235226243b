"""Checks of arguments: finite numbers, quantiles, shares, numbers of units."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from awn.errors import ArgumentError


def check_number(name: str, value: Any, *, above: float = 0.0, or_equal: bool = False) -> None:
    """Raise unless `value` is a finite number above a bound; with `or_equal`, the bound itself is allowed."""
    try:
        number = float(value) if isinstance(value, Real) else math.nan
    except OverflowError:  # a whole number beyond the range of floats
        number = math.inf
    if not (math.isfinite(number) and (number > above or (or_equal and number == above))):
        bound = f"of at least {above:g}" if or_equal else f"above {above:g}"
        raise ArgumentError(f"{name} must be a finite number {bound}, got {value!r}.", argument=name)


def check_quantile(quantile: float) -> None:
    """Raise unless a quantile lies in (0, 1)."""
    if not (isinstance(quantile, Real) and 0 < float(quantile) < 1):
        raise ArgumentError(
            f"quantile must lie strictly between 0 and 1, got {quantile}: "
            "an infinite list of units has no finite width at 1, and no width at 0."
        )


def check_share(name: str, value: Any) -> None:
    """Raise unless a share lies in [0, 1]."""
    if isinstance(value, bool) or not (isinstance(value, Real) and 0 <= float(value) <= 1):
        raise ArgumentError(f"{name} must be a share from 0 to 1, got {value!r}.", argument=name)


def check_units(name: str, units: int) -> None:
    """Raise unless a number of units is a whole number of at least 1."""
    if isinstance(units, bool) or not isinstance(units, Integral) or units < 1:
        raise ArgumentError(f"{name} must be a whole number of at least 1, got {units!r}.", argument=name)
