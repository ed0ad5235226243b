"""Calendar: dates as numbers of days since the first date, plus month, weekday and hour where they vary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from awn.tabular.read.values import Dates, Floats

PARTS: dict[str, Callable[[pd.DatetimeIndex], pd.Index]] = {
    "month": lambda when: when.month,
    "weekday": lambda when: when.day_of_week,
    "hour": lambda when: when.hour,
}


@dataclass(frozen=True)
class Calendar:
    """The encoding of one column of dates.

    >>> when = np.array(["2024-01-30", "2024-02-01", "NaT"], dtype="datetime64[us]")
    >>> calendar = Calendar.fit(when)
    >>> calendar
    Calendar(first='2024-01-30T00:00:00.000000', parts=('month', 'weekday'))
    >>> calendar.numbers(when)
    array([[ 0., 1., 1.],
           [ 2., 2., 3.],
           [nan, nan, nan]])
    """

    first: str
    parts: tuple[str, ...]

    @classmethod
    def fit(cls, when: Dates) -> Calendar:
        """Find the first date, and which of month, weekday and hour vary."""
        index = pd.DatetimeIndex(when)
        return cls(str(np.nanmin(when)), tuple(part for part, of in PARTS.items() if of(index).nunique() > 1))

    def numbers(self, when: Dates) -> Floats:
        """A row of numbers for each date, NaN where it is missing."""
        index = pd.DatetimeIndex(when)
        days = (when - np.datetime64(self.first)) / np.timedelta64(1, "D")
        return np.column_stack([days, *(np.asarray(PARTS[part](index), dtype=np.float64) for part in self.parts)])

    def names(self, column: str) -> list[str]:
        """The names of the numbers.

        >>> Calendar("2024-01-30", ("month",)).names("sold")
        ['sold: days', 'sold: month']
        """
        return [f"{column}: {part}" for part in ("days", *self.parts)]
