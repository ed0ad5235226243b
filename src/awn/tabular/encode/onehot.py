"""OneHot: categories as one-hot inputs, with rare and unseen levels in one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.preprocessing import OneHotEncoder

from awn.tabular.read.values import distinct

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LevelCodes:
    """The input of a column that each level sets to 1, that of unknown levels (-1 for none), and how many there are."""

    codes: dict[str, int]
    unknown: int
    size: int


@dataclass(frozen=True)
class OneHot:
    """At most `max_levels` inputs per column: the most frequent levels, and one for the others; missing is a level.

    >>> land = pd.Series(["at", "at", "de", "de", "fr", "it"], name="land")
    >>> encoding = OneHot.fit([land], max_levels=3)
    >>> encoding.names(["land"])
    ['land = at', 'land = de', 'land = (rare)']
    >>> encoding.transform([pd.Series(["de", "it", "es"])])
    array([[0., 1., 0.],
           [0., 0., 1.],
           [0., 0., 1.]], dtype=float32)

    An unseen level counts as rare; if the column has no rare levels, all of its inputs are zero.
    """

    levels: tuple[tuple[str, ...], ...]  # of each column; '' is missing
    encoder: OneHotEncoder  # of the levels' positions, since scikit-learn is slow with strings

    @classmethod
    def fit(cls, columns: Sequence[pd.Series], max_levels: int) -> OneHot:
        """Find the levels, and which of them are rare."""
        levels = tuple(_levels(column) for column in columns)
        return cls(levels, _encoder(max_levels).fit(_codes(columns, levels)))

    def transform(self, columns: Sequence[pd.Series]) -> npt.NDArray[np.float32]:
        """One input per level, 1 for the level of the row."""
        return np.asarray(self.encoder.transform(_codes(columns, self.levels)), dtype=np.float32)

    def codes(self) -> list[LevelCodes]:
        """The codes of each column's levels."""
        found = []
        for frequent, rare in self._frequent_and_rare():
            codes = {level: place for place, level in enumerate(frequent)}
            codes |= dict.fromkeys(rare, len(frequent))
            found.append(LevelCodes(codes, len(frequent) if rare else -1, len(frequent) + bool(rare)))
        return found

    @property
    def sizes(self) -> list[int]:
        """The number of inputs of each column."""
        return [len(frequent) + bool(rare) for frequent, rare in self._frequent_and_rare()]

    def names(self, columns: Sequence[str]) -> list[str]:
        """The names of the inputs."""
        names = []
        for column, (levels, rare) in zip(columns, self._frequent_and_rare(), strict=True):
            names += [f"{column} = {level}" if level else f"{column} is missing" for level in levels]
            names += [f"{column} = (rare)"] if rare else []
        return names

    def to_json(self) -> list[dict[str, list[str]]]:
        """The frequent and the rare levels of each column, as plain data."""
        return [{"levels": levels, "rare": rare} for levels, rare in self._frequent_and_rare()]

    @classmethod
    def from_json(cls, data: list[dict[str, list[str]]], max_levels: int) -> OneHot:
        """Restore an encoding.

        The encoder is fitted to a small table in which rare levels occur once and the others twice, so that it finds
        the same levels rare. This avoids private attributes of scikit-learn.
        """
        levels = tuple((*column["levels"], *column["rare"]) for column in data)
        columns = [
            [*range(len(column["levels"])), *range(len(all_))] for column, all_ in zip(data, levels, strict=True)
        ]
        most = max(map(len, columns))
        rows = [codes + codes[:1] * (most - len(codes)) for codes in columns]
        return cls(levels, _encoder(max_levels).fit(np.array(rows, dtype=np.int64).T))

    def _frequent_and_rare(self) -> list[tuple[list[str], list[str]]]:
        found: list[Any] = self.encoder.infrequent_categories_
        parts = []
        for levels, places in zip(self.levels, found, strict=True):
            rare = set() if places is None else {int(place) for place in places}
            frequent = [level for place, level in enumerate(levels) if place not in rare]
            parts.append((frequent, [levels[place] for place in sorted(rare)]))
        return parts


def _encoder(max_levels: int) -> OneHotEncoder:
    return OneHotEncoder(
        max_categories=max_levels, handle_unknown="infrequent_if_exist", sparse_output=False, dtype=np.float32
    )


def _levels(column: pd.Series) -> tuple[str, ...]:
    codes, words = distinct(column)
    return tuple(sorted({words[code] for code in np.unique(codes)}))


def _codes(columns: Sequence[pd.Series], levels: Sequence[Sequence[str]]) -> Codes:
    """The position of each value among the levels of its column, -1 if unseen: [rows, columns]."""
    places = []
    for column, known in zip(columns, levels, strict=True):
        place = {level: number for number, level in enumerate(known)}
        codes, words = distinct(column)
        places.append(np.array([place.get(word, -1) for word in words], dtype=np.int64)[codes])
    return np.column_stack(places)
