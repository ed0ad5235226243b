"""Preprocessor: encodes a table as the inputs of a network, fitted to the training rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from awn.basics.names import listed, near
from awn.errors import ArgumentError, CheckpointError, TableError
from awn.tabular.encode.bins import Bins
from awn.tabular.encode.blocks import column_blocks, numpy_numbers
from awn.tabular.encode.codes import Codes
from awn.tabular.encode.columns import Column, ColumnKind, decide_columns
from awn.tabular.encode.dates import Calendar
from awn.tabular.encode.onehot import LevelCodes, OneHot
from awn.tabular.encode.preprocess_schema import FORMAT, read_preprocessing
from awn.tabular.encode.scaling import LIMIT, Scaling
from awn.tabular.read.names import with_names
from awn.tabular.read.values import LARGEST, Floats, booleans, dates, numbers

_NUMERIC = ("number", "boolean", "date")


@dataclass(frozen=True)
class NumericPieces:
    """The encoding of numbers as plain arrays, for programs without pandas and scikit-learn.

    For the columns in this order, of which a date has several, with booleans as 0 and 1: replace missing values by
    `medians`; subtract `medians`, divide by `scales`, and limit each result z to z / √(1 + (z / `limit`)²); append 1
    for missing or 0 for each column numbered in `indicators`; append the bins, for each of which the number in column
    `bin_columns`, minus `bin_lows`, over `bin_widths`, is clipped to the range from 0 to 1; append the codes, each 1 if
    the number in column `code_columns` is present and equals `code_values`, otherwise 0. Compute in double precision.
    """

    columns: tuple[str, ...]
    medians: Floats
    scales: Floats
    limit: float
    indicators: npt.NDArray[np.intp]
    bin_columns: npt.NDArray[np.intp]
    bin_lows: Floats
    bin_widths: Floats
    code_columns: npt.NDArray[np.intp]
    code_values: Floats


class Preprocessor:
    """Encodes tables as numbers, as fitted to a training table with the same columns.

    >>> table = pd.DataFrame({"age": [20, 30, None], "job": ["cook", "smith", "cook"]})
    >>> preprocessor = Preprocessor().fit(table)
    >>> preprocessor.feature_names
    ['age', 'age is missing', 'job = cook', 'job = smith']
    >>> preprocessor.transform(pd.DataFrame({"job": ["cook", "baker"], "age": [20, 25]})).round(2)
    array([[-1.23, 0. , 1. , 0. ],
           [ 0. , 0. , 0. , 0. ]], dtype=float32)

    Numbers, booleans and dates come first, then a mark for each column with missing values, then the bins and the codes
    of the numbers, then the categories. `kinds` sets the kinds of some columns, by name. Of more than `max_levels`
    levels, the rarest are grouped. `bins` is the largest number of bins per number, see `Bins`; 0 means none.
    """

    def __init__(self, *, kinds: Mapping[str, ColumnKind] | None = None, max_levels: int = 50, bins: int = 0) -> None:
        for name, number, least in (("max_levels", max_levels, 2), ("bins", bins, 0)):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise ArgumentError(f"{name} must be a whole number of at least {least}, got {number!r}.")
        self.kinds = dict(kinds or {})
        self.max_levels = max_levels
        self.bins = bins
        self._columns: tuple[Column, ...] = ()
        self._calendars: dict[str, Calendar] = {}
        self._scaling: Scaling | None = None
        self._bins: Bins | None = None
        self._codes: Codes | None = None
        self._onehot: OneHot | None = None

    def fit(self, frame: pd.DataFrame, targets: npt.NDArray[Any] | None = None) -> Preprocessor:
        """Fit to the training rows; returns the preprocessor itself.

        Given the rows' targets, classes [rows] or numbers [rows, targets], it finds the numbers that are codes; see
        `Codes`.
        """
        frame = with_names(frame)
        if len(frame) < 2:
            held = "1 row, and one sample is not enough" if len(frame) else "no rows"
            raise TableError(f"The table has {held}.")
        columns = decide_columns(frame, self.kinds, self.max_levels)
        calendars = {
            column.name: Calendar.fit(dates(frame[column.name], column.date_format))
            for column in columns
            if column.kind == "date"
        }
        scaling = bins = codes = onehot = None
        if any(column.kind in _NUMERIC for column in columns):
            sizes = [len(_number_names(column, calendars)) for column in columns if column.kind in _NUMERIC]
            first = [int(place) for place in np.cumsum([0, *sizes])[:-1]]  # one mark per date, not per part
            values = _number_matrix(frame, columns, calendars)
            scaling, bins = Scaling.fit(values, first), Bins.fit(values, self.bins)
            kinds = [column.kind for column in columns if column.kind in _NUMERIC]
            candidates = [place for place, kind in zip(first, kinds, strict=True) if kind == "number"]
            codes = Codes.fit(values, *((np.empty((len(values), 0)), []) if targets is None else (targets, candidates)))
        if any(column.kind == "category" for column in columns):
            onehot = OneHot.fit(_categories(frame, columns), self.max_levels)
        self._columns, self._calendars = columns, calendars
        self._scaling, self._bins, self._codes, self._onehot = scaling, bins, codes, onehot
        return self

    def transform(self, frame: pd.DataFrame) -> npt.NDArray[np.float32]:
        """Encode a table as [rows, features]. Columns may come in any order, and unknown ones are ignored."""
        self._check_fitted()
        frame = with_names(frame)
        self._check_columns(frame)
        out = np.empty((len(frame), len(self.feature_names)), dtype=np.float32)
        start = 0
        if self._scaling is not None and self._bins is not None and self._codes is not None and len(frame):
            values = _number_matrix(frame, self._columns, self._calendars)
            scaled = self._scaling.transform(values)
            binned = scaled.shape[1] + len(self._bins.columns)
            start = binned + len(self._codes.columns)
            out[:, : scaled.shape[1]] = scaled
            self._bins.transform(self._scaling.fill(values), out=out[:, scaled.shape[1] : binned])
            self._codes.transform(values, out=out[:, binned:start])
        if self._onehot is not None and len(frame):
            out[:, start:] = self._onehot.transform(_categories(frame, self._columns))
        return out

    def select(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The columns of the training table, in its order, and no others; unused ones may be missing."""
        self._check_fitted()
        frame = with_names(frame)
        self._check_columns(frame)
        return frame.reindex(columns=[column.name for column in self._columns])

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the training table, including the dropped ones."""
        self._check_fitted()
        return self._columns

    @property
    def notes(self) -> list[str]:
        """Notes for the user about single columns.

        >>> Preprocessor().fit(pd.DataFrame({"age": [20, 30], "land": ["at", "at"]})).notes
        ["'land': dropped: every value is 'at'"]
        """
        return [f"{column.name!r}: {column.note}" for column in self.columns if column.note]

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded features."""
        self._check_fitted()
        numeric = [column for column in self._columns if column.kind in _NUMERIC]
        names = [name for column in numeric for name in _number_names(column, self._calendars)]
        if self._scaling is not None:
            marked = dict(zip(self._scaling.marked, numeric, strict=True))
            more = [name for part in (self._bins, self._codes) if part is not None for name in part.names(names)]
            names += [f"{marked[place].name} is missing" for place in self._scaling.marks]
            names += more
        if self._onehot is not None:
            names += self._onehot.names(self.category_columns)
        return names

    @property
    def category_columns(self) -> list[str]:
        """The columns of categories.

        >>> Preprocessor().fit(pd.DataFrame({"age": [20, 30], "job": ["cook", "smith"]})).category_columns
        ['job']
        """
        self._check_fitted()
        return [column.name for column in self._columns if column.kind == "category"]

    @property
    def text_columns(self) -> list[str]:
        """The columns to read as strings from a file: categories, and numbers written in a format of their own.

        >>> Preprocessor().fit(pd.DataFrame({"job": ["cook", "smith"], "pay": ["$1,200", "$950"]})).text_columns
        ['job', 'pay']
        """
        return [column.name for column in self.columns if column.kind == "category" or column.number_format]

    @property
    def number_names(self) -> list[str]:
        """The names of the numbers, booleans and parts of dates, in the order of `numbers`."""
        numeric = [column for column in self.columns if column.kind in _NUMERIC]
        return [name for column in numeric for name in _number_names(column, self._calendars)]

    def numbers(self, frame: pd.DataFrame) -> Floats:
        """The numbers, booleans and parts of dates of a table as they are, NaN where missing: [rows, numbers].

        >>> table = pd.DataFrame({"age": [20, 30, None], "job": ["cook", "smith", "cook"]})
        >>> Preprocessor().fit(table).numbers(table)
        array([[20.], [30.], [nan]])
        """
        self._check_columns(with_names(frame))
        if not self.number_names:
            return np.empty((len(frame), 0))
        return _number_matrix(with_names(frame), self._columns, self._calendars)

    @property
    def inputs_of(self) -> dict[str, list[int]]:
        """The positions of the inputs that each used column is encoded as.

        >>> table = pd.DataFrame({"age": [20, 30, None], "job": ["cook", "smith", "cook"]})
        >>> Preprocessor().fit(table).inputs_of
        {'age': [0, 1], 'job': [2, 3]}
        """
        numeric = [column for column in self.columns if column.kind in _NUMERIC]
        owners = [column.name for column in numeric for _ in _number_names(column, self._calendars)]
        if self._scaling is not None and self._bins is not None and self._codes is not None:
            marked = dict(zip(self._scaling.marked, numeric, strict=True))
            more = [owners[place] for place in [*self._bins.columns.tolist(), *self._codes.columns.tolist()]]
            owners += [marked[place].name for place in self._scaling.marks]
            owners += more
        if self._onehot is not None:
            sizes = zip(self.category_columns, self._onehot.sizes, strict=True)
            owners += [name for name, size in sizes for _ in range(size)]
        places: dict[str, list[int]] = {column.name: [] for column in self.columns if column.used}
        for place, name in enumerate(owners):
            places[name].append(place)
        return places

    @property
    def unbinned_inputs(self) -> list[int]:
        """The positions of all inputs besides the bins of numbers."""
        first = 0 if self._scaling is None else len(self._scaling.medians) + len(self._scaling.marks)
        bins = 0 if self._bins is None else len(self._bins.columns)
        return [place for place in range(len(self.feature_names)) if not first <= place < first + bins]

    def numeric_pieces(self) -> NumericPieces | None:
        """The encoding of the numbers, booleans and dates; None if there are none, or in a file of format 1.

        >>> Preprocessor().fit(pd.DataFrame({"age": [20, 30, 40]})).numeric_pieces().medians
        array([30.])
        """
        self._check_fitted()
        if self._scaling is None or self._bins is None or self._codes is None or self._scaling.means is not None:
            return None
        return NumericPieces(
            columns=tuple(self.number_names),
            medians=self._scaling.medians.copy(),
            scales=self._scaling.scales.copy(),
            limit=LIMIT,
            indicators=np.array(self._scaling.marks, dtype=np.intp),
            bin_columns=self._bins.columns.copy(),
            bin_lows=self._bins.lows.copy(),
            bin_widths=self._bins.widths.copy(),
            code_columns=self._codes.columns.copy(),
            code_values=self._codes.values.copy(),
        )

    @property
    def calendars(self) -> Mapping[str, Calendar]:
        """The encodings of the columns of dates."""
        return dict(self._calendars)

    def category_codes(self) -> list[LevelCodes]:
        """The inputs of each column of categories: which one a level sets to 1.

        >>> Preprocessor().fit(pd.DataFrame({"job": ["cook", "smith", "cook"]})).category_codes()
        [LevelCodes(codes={'cook': 0, 'smith': 1}, unknown=-1, size=2)]
        """
        return [] if self._onehot is None else self._onehot.codes()

    def to_json(self) -> dict[str, Any]:
        """The fitted preprocessor as plain data for a JSON file."""
        self._check_fitted()
        return {
            "format": FORMAT,
            "kinds": dict(self.kinds),
            "max_levels": self.max_levels,
            "bins": self.bins,
            "columns": [dataclasses.asdict(column) for column in self._columns],
            "dates": {name: dataclasses.asdict(calendar) for name, calendar in self._calendars.items()},
            "numbers": self._scaling and self._scaling.to_json(),
            "edges": self._bins and self._bins.to_json(),
            "codes": self._codes and self._codes.to_json(),
            "categories": self._onehot and self._onehot.to_json(),
        }

    @classmethod
    def from_json(cls, data: Any) -> Preprocessor:
        """Restore a preprocessor exactly.

        >>> fitted = Preprocessor().fit(pd.DataFrame({"age": [20, 30, 40]}))
        >>> Preprocessor.from_json(fitted.to_json()).feature_names
        ['age']
        """
        data = read_preprocessing(data)
        try:
            one = cls(kinds=data["kinds"], max_levels=data["max_levels"], bins=data["bins"])
            one._columns = tuple(Column(**column) for column in data["columns"])
            one._calendars = {
                name: Calendar(calendar["first"], tuple(calendar["parts"])) for name, calendar in data["dates"].items()
            }
            if data["numbers"] is not None:
                one._scaling = Scaling.from_json(data["numbers"])
                one._bins = Bins.from_json(data["edges"], len(one._scaling.medians))
                one._codes = Codes.from_json(data["codes"], len(one._scaling.medians))
            if data["categories"] is not None:
                one._onehot = OneHot.from_json(data["categories"], one.max_levels)
            one._check_restored()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise CheckpointError(
                f"The preprocessing is damaged or was edited: {error!r}. Restore the file from a copy."
            ) from None
        return one

    def _check_fitted(self) -> None:
        if not self._columns:
            raise ArgumentError("This preprocessor is not fitted. Call fit(frame) first.")

    def _check_columns(self, frame: pd.DataFrame) -> None:
        names = list(frame.columns)
        missing = [column.name for column in self._columns if column.used and column.name not in frame]
        if missing:
            known = {column.name for column in self._columns}
            others = [name for name in names if name not in known]
            raise TableError(
                f"The table has no column {listed(missing)}, which the model needs."
                f"{near(missing[0], others)} It has {listed(names) or 'no columns'}."
            )

    def _check_restored(self) -> None:
        """Refuse parts that do not belong together."""
        sizes = [len(_number_names(column, self._calendars)) for column in self._columns if column.kind in _NUMERIC]
        scaled = 0 if self._scaling is None else len(self._scaling.medians)
        levels = [] if self._onehot is None else self._onehot.levels
        if not self._columns or sum(sizes) != scaled or len(self.category_columns) != len(levels):
            raise ValueError(f"{scaled} numbers and {len(levels)} categories for the columns {self._columns}")


def _number_names(column: Column, calendars: Mapping[str, Calendar]) -> list[str]:
    return calendars[column.name].names(column.name) if column.kind == "date" else [column.name]


def _number_matrix(frame: pd.DataFrame, columns: tuple[Column, ...], calendars: Mapping[str, Calendar]) -> Floats:
    """The numbers, booleans and dates of a table as one matrix, NaN where missing."""
    numeric = [column for column in columns if column.kind in _NUMERIC]
    ends = np.cumsum([len(_number_names(column, calendars)) for column in numeric]).tolist()
    matrix = np.empty((len(frame), ends[-1]))
    alone = {column.name: end - 1 for column, end in zip(numeric, ends, strict=True) if column.kind == "number"}
    copied = _copy_numbers_(matrix, frame, alone)
    for column, end in zip(numeric, ends, strict=True):
        if column.name in copied:
            continue
        series = frame[column.name]
        if column.kind == "date":
            parts = calendars[column.name].numbers(dates(series, column.date_format))
            matrix[:, end - parts.shape[1] : end] = parts
        else:
            matrix[:, end - 1] = booleans(series) if column.kind == "boolean" else numbers(series, column.number_format)
    return matrix


def _copy_numbers_(matrix: Floats, frame: pd.DataFrame, into: Mapping[str, int]) -> set[str]:
    """Copy columns of NumPy's numbers into those of a matrix, in blocks; returns their names."""
    where = dict(zip(frame.columns.get_indexer(list(into)).tolist(), into.values(), strict=True))
    plain = np.array(numpy_numbers(frame, list(where)), dtype=np.intp)
    for block in column_blocks(len(frame), len(plain)):
        chosen = frame.iloc[:, plain[block]]
        values = chosen.to_numpy(dtype=np.float64)
        for extreme in np.flatnonzero((np.abs(values) > LARGEST).any(0))[:1]:
            numbers(chosen.iloc[:, extreme])  # raises an error that names the row
        matrix[:, [where[place] for place in plain[block].tolist()]] = values
    return set(frame.columns[plain])


def _categories(frame: pd.DataFrame, columns: tuple[Column, ...]) -> list[pd.Series]:
    return [frame[column.name] for column in columns if column.kind == "category"]
