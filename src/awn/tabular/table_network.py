"""Encoding, network and output as one module, for an export: over a matrix of numbers, or over columns of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from awn.tabular.encode.preprocess import NumericPieces
from awn.tabular.encode.scaling import FARTHEST
from awn.tabular.estimators import AdaptiveClassifier
from awn.tabular.folder import Estimator
from awn.tabular.read.values import words


class _Output(nn.Module):
    """The network, and from its outputs probabilities or predictions in the unit of the target."""

    target_mean: Tensor
    target_scale: Tensor

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        self.network = estimator.to_torch().eval()
        self.classifies = isinstance(estimator, AdaptiveClassifier)
        if isinstance(estimator, AdaptiveClassifier):
            self.temperature = estimator.temperature_
        else:
            self.register_buffer("target_mean", torch.as_tensor(estimator.target_mean_, dtype=torch.float32))
            self.register_buffer("target_scale", torch.as_tensor(estimator.target_scale_, dtype=torch.float32))

    def forward(self, encoded: Tensor) -> Tensor:
        """[rows, inputs] → [rows, classes or targets]."""
        out: Tensor = self.network(encoded.float())
        return (out / self.temperature).softmax(1) if self.classifies else out * self.target_scale + self.target_mean


class _Numbers(nn.Module):
    """The encoding of numbers: see `NumericPieces`."""

    medians: Tensor
    scales: Tensor
    bin_columns: Tensor
    bin_lows: Tensor
    bin_widths: Tensor
    code_columns: Tensor
    code_values: Tensor

    def __init__(self, pieces: NumericPieces) -> None:
        super().__init__()
        for name in ("medians", "scales", "bin_columns", "bin_lows", "bin_widths", "code_columns", "code_values"):
            self.register_buffer(name, torch.from_numpy(getattr(pieces, name)))
        self.indicators: list[int] = pieces.indicators.tolist()
        self.limit = pieces.limit

    def forward(self, x: Tensor) -> Tensor:
        """[rows, numbers] → [rows, inputs]."""
        missing = torch.isnan(x)
        filled = torch.where(missing, self.medians, x)
        scaled = ((filled - self.medians) / self.scales).clamp(-FARTHEST, FARTHEST)
        parts = [scaled / (1 + (scaled / self.limit).square()).sqrt()]
        if self.indicators:
            parts.append(missing[:, self.indicators].double())
        if len(self.bin_columns):
            parts.append(((filled[:, self.bin_columns] - self.bin_lows) / self.bin_widths).clamp(0.0, 1.0))
        if len(self.code_columns):
            parts.append((x[:, self.code_columns] == self.code_values).double())
        return torch.cat(parts, dim=1)


class MatrixNetwork(nn.Module):
    """The whole model over a matrix: the columns of a table of numbers, or the encoded columns of any other table."""

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        preprocessor = estimator.preprocessor_
        plain = all(column.kind in ("number", "boolean") for column in preprocessor.columns if column.used)
        self.output = _Output(estimator)
        self.pieces: NumericPieces | None = preprocessor.numeric_pieces() if plain else None
        self.input_names = preprocessor.feature_names if self.pieces is None else list(self.pieces.columns)
        if self.pieces is not None:
            self.numbers = _Numbers(self.pieces)
            self.booleans = [column.kind == "boolean" for column in preprocessor.columns if column.used]

    def forward(self, x: Tensor) -> Tensor:
        """[rows, columns] → [rows, classes or targets]."""
        out: Tensor = self.output(x if self.pieces is None else self.numbers(x.double()))
        return out

    def example_rows(self, rows: int) -> Tensor:
        """Random rows like those of the table, the first with missing values where the table has them."""
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(rows, len(self.input_names), generator=generator)
        if self.pieces is None:
            return noise
        example = noise.double() * self.numbers.scales + self.numbers.medians
        example[:, self.booleans] = (noise[:, self.booleans] > 0).double()
        example[0, self.numbers.indicators] = torch.nan
        return example


class ColumnNetwork(nn.Module):
    """The whole model over codes of categories and over numbers, of which a date is one: days since 1970-01-01."""

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        preprocessor = estimator.preprocessor_
        self._columns = [column for column in preprocessor.columns if column.used]
        self.categories = preprocessor.category_columns
        self.numbers = [column.name for column in self._columns if column.kind != "category"]
        self.dates = list(preprocessor.calendars)
        self._levels = preprocessor.category_codes()
        self._calendars = preprocessor.calendars
        pieces = preprocessor.numeric_pieces()
        self.pieces = pieces
        self.output = _Output(estimator)
        if pieces is not None:
            self.scaled = _Numbers(pieces)

    @staticmethod
    def takes(estimator: Estimator) -> bool:
        """Whether a table has other columns than numbers, and is not of a file of format 1."""
        preprocessor = estimator.preprocessor_
        mixed = bool(preprocessor.category_columns or preprocessor.calendars)
        return mixed and (not preprocessor.number_names or preprocessor.numeric_pieces() is not None)

    def forward(self, codes: Tensor | None = None, numbers: Tensor | None = None) -> Tensor:
        """[rows, categories] and [rows, numbers] → [rows, classes or targets]."""
        parts = [] if numbers is None else [self.scaled(self._with_calendars(numbers))]
        for place, levels in enumerate(self._levels if codes is not None else []):
            assert codes is not None
            parts.append((codes[:, place : place + 1] == torch.arange(levels.size)).double())
        out: Tensor = self.output(torch.cat(parts, dim=1))
        return out

    def _with_calendars(self, numbers: Tensor) -> Tensor:
        columns: list[Tensor] = []
        for place, name in enumerate(self.numbers):
            column = numbers[:, place : place + 1]
            if name not in self._calendars:
                columns.append(column)
                continue
            calendar = self._calendars[name]
            columns.append(column - _days(calendar.first))
            columns += [_PARTS[part](column) for part in calendar.parts]
        return torch.cat(columns, dim=1)

    def example(self, rows: int) -> dict[str, Tensor]:
        """Random codes and numbers, as the arguments of `forward`."""
        inputs = self.inputs_of(self.example_frame(rows))
        made = {}
        if self.categories:
            codes = [
                [levels.codes.get(word, levels.unknown) for word in inputs[name][:, 0]]
                for name, levels in zip(self.categories, self._levels, strict=True)
            ]
            made["codes"] = torch.tensor(codes).T.contiguous()
        if self.numbers:
            made["numbers"] = torch.from_numpy(np.hstack([inputs[name] for name in self.numbers]))
        return made

    def example_frame(self, rows: int) -> pd.DataFrame:
        """Rows like those of the table: known, unknown and missing levels, random numbers and dates."""
        rng = np.random.default_rng(0)
        frame, place = {}, 0
        levels = dict(zip(self.categories, self._levels, strict=True))
        for column in self._columns:
            if column.kind == "category":
                some = [*levels[column.name].codes, "a level that is not in the table"]
                frame[column.name] = pd.Series([some[number % len(some)] for number in range(rows)], dtype=object)
                continue
            assert self.pieces is not None
            middle, scale = self.pieces.medians[place], self.pieces.scales[place]
            values = rng.normal(middle, scale, rows)
            if place in self.pieces.indicators:
                values[0] = np.nan
            place += 1
            if column.kind == "boolean":
                values = np.where(np.isnan(values), values, (values > middle).astype(float))
            if column.kind == "date":
                place += len(self._calendars[column.name].parts)
                days = np.round((_days(self._calendars[column.name].first) + values) * 24) / 24
                frame[column.name] = pd.Series(pd.to_datetime(days, unit="D").round("h"))
            else:
                frame[column.name] = pd.Series(values)
        return pd.DataFrame(frame)

    def inputs_of(self, frame: pd.DataFrame) -> dict[str, Any]:
        """The columns of a table as the inputs of the exported file."""
        inputs: dict[str, Any] = {}
        for column in self._columns:
            series = frame[column.name]
            if column.kind == "category":
                inputs[column.name] = words(series).astype(object)[:, None]
            elif column.kind == "date":
                inputs[column.name] = ((series - pd.Timestamp(0)) / pd.Timedelta(days=1)).to_numpy(float)[:, None]
            else:
                inputs[column.name] = series.to_numpy(dtype=float)[:, None]
        return inputs


def _days(moment: str) -> float:
    """The days from 1970-01-01 to a moment."""
    return float(np.datetime64(moment, "us").astype("int64")) / 86_400e6


def _month(days: Tensor) -> Tensor:
    """The month of a day since 1970-01-01, from 1 to 12, by arithmetic in the Gregorian calendar.

    >>> _month(torch.tensor([0.0, 31.0, 59.5, 364.9]).double())
    tensor([ 1.,  2.,  3., 12.], dtype=torch.float64)
    """
    shifted = days.floor() + 719_468  # since 0000-03-01: years that begin in March end with the leap day
    of_era = shifted - (shifted / 146_097).floor() * 146_097
    leaps = (of_era / 1460).floor() - (of_era / 36_524).floor() + (of_era / 146_096).floor()
    year = ((of_era - leaps) / 365).floor()
    of_year = of_era - (365 * year + (year / 4).floor() - (year / 100).floor())
    month = ((5 * of_year + 2) / 153).floor()  # from March on
    return torch.where(month < 10, month + 3, month - 9)


def _weekday(days: Tensor) -> Tensor:
    """The weekday of a day since 1970-01-01, a Thursday, from 0 for Monday.

    >>> _weekday(torch.tensor([0.0, 3.0, 4.0]).double())
    tensor([3., 6., 0.], dtype=torch.float64)
    """
    shifted = days.floor() + 3
    return shifted - (shifted / 7).floor() * 7


def _hour(days: Tensor) -> Tensor:
    """The hour of a moment, which is rounded to milliseconds: a day is no multiple of an hour in binary.

    >>> _hour(torch.tensor([0.0, 13 / 24, 1 + 23 / 24]).double())
    tensor([ 0., 13., 23.], dtype=torch.float64)
    """
    return (((days - days.floor()) * 86_400_000).round() / 3_600_000).floor()


_PARTS = {"month": _month, "weekday": _weekday, "hour": _hour}
