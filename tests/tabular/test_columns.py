"""What a column holds: decided from its values, whatever way they are written, and said in words."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from awn.errors import ArgumentError, TableError
from awn.tabular.encode.columns import Column, decide_columns

MANY = [f"level {i % 60}" for i in range(600)]


def decide(values: Any, **options: Any) -> Column:
    """The decision on one column, beside another that is always used."""
    frame = pd.DataFrame({"x": values})
    frame["other"] = np.linspace(0, 1, len(frame))
    return decide_columns(frame, **options)[0]


@pytest.mark.parametrize(
    ("values", "kind", "note"),
    [
        pytest.param([1, 2, 3], "number", "", id="whole numbers"),
        pytest.param([1.5, None, 3], "number", "", id="numbers with a gap"),
        pytest.param([5.0, None, 5.0], "number", "", id="one number, or missing"),
        pytest.param(pd.array([1, None, 3], dtype="Int64"), "number", "", id="nullable whole numbers"),
        pytest.param([Decimal("1.5"), Decimal(2), None], "number", "", id="decimals"),
        pytest.param([10**30, 2, 3], "number", "", id="very large whole numbers"),
        pytest.param(["1.5", " 2", "1e3"], "number", "", id="numbers as text"),
        pytest.param(
            ["1", "?", "n/a", "2"], "number", "numbers, with missing values written as '?', 'n/a'", id="markers"
        ),
        pytest.param([True, False, True], "boolean", "", id="booleans"),
        pytest.param([True, None, False], "boolean", "", id="booleans with a gap"),
        pytest.param(pd.array([True, None, False], dtype="boolean"), "boolean", "", id="nullable booleans"),
        pytest.param(["yes", "No", "?"], "boolean", "", id="yes and no"),
        pytest.param(["T", "F", "t"], "boolean", "", id="letters for booleans"),
        pytest.param(["a", "b", None], "category", "", id="words"),
        pytest.param(["yes", "no", "maybe"], "category", "", id="yes, no and maybe"),
        pytest.param(["+", "-", "+"], "category", "", id="a sign that also stands for missing"),
        pytest.param(pd.Categorical([1, 2, 1]), "category", "", id="categorical numbers"),
        pytest.param(["007", "012", "007"], "category", "", id="codes with leading zeros"),
        pytest.param(
            ["12", "13", "12a", "13b"],
            "category",
            "treated as categories: only 50% of the values are numbers",
            id="mixed",
        ),
        pytest.param(
            [1, "a", 2.0, "b"],
            "category",
            "treated as categories: only 50% of the values are numbers",
            id="mixed objects",
        ),
        pytest.param(MANY, "category", "60 levels: the rarest are grouped", id="many levels"),
        pytest.param(pd.to_datetime(["2024-01-01", None, "2024-02-01"]), "date", "", id="dates"),
        pytest.param(pd.to_datetime(["2024-01-01", "2024-02-01"], utc=True), "date", "", id="dates in a time zone"),
        pytest.param([datetime.date(2024, 1, 1), datetime.date(2024, 2, 1)], "date", "", id="dates of Python"),
        pytest.param([None, None, None], "empty", "dropped: every value is missing", id="all missing"),
        pytest.param([np.nan, np.nan], "empty", "dropped: every value is missing", id="all missing numbers"),
        pytest.param(["?", "NA", ""], "empty", "dropped: every value is missing", id="all missing words"),
        pytest.param(pd.to_datetime([None, None]), "empty", "dropped: every value is missing", id="all missing dates"),
        pytest.param([7, 7, 7], "constant", "dropped: every value is 7", id="constant number"),
        pytest.param(["7", "7.0"], "constant", "dropped: every value is 7", id="constant number as text"),
        pytest.param(["a", "a "], "constant", "dropped: every value is 'a'", id="constant word"),
        pytest.param([True, True], "constant", "dropped: every value is True", id="constant boolean"),
        pytest.param(
            pd.to_datetime(["2024-01-01"] * 2), "constant", "dropped: every value is 2024-01-01 00:00:00", id="date"
        ),
    ],
)
def test_kind_is_decided_from_the_values(values: Any, kind: str, note: str) -> None:
    column = decide(values)
    assert (column.kind, column.note) == (kind, note)
    assert column.used == (kind in ("number", "boolean", "category", "date"))


@pytest.mark.parametrize(
    ("values", "date_format", "note"),
    [
        (["2024-01-31", "?", "2023-12-01"], "ISO8601", ""),
        (["2024-01-31T10:15:00Z", "2024-02-01T00:00:00+02:00"], "ISO8601", ""),
        (["2024-01-31 10:15", "2024-02-01 00:00:01.5"], "ISO8601", ""),
        (["31.01.2024", "1.2.2024"], "%d.%m.%Y", ""),
        (["01/31/2024", "12/01/2023"], "%m/%d/%Y", ""),
        (["31/01/2024", "12/01/2023"], "%d/%m/%Y", ""),
        (["01/31/2024 10:15 PM", "12/01/2023 1:00 AM"], "%m/%d/%Y %I:%M %p", ""),
        (["1/2/2024", "3/4/2024"], "%m/%d/%Y", "ambiguous dates, read as %m/%d/%Y; %d/%m/%Y fits too"),
    ],
)
def test_written_dates_have_one_format(values: list[str], date_format: str, note: str) -> None:
    assert decide(values) == Column("x", "date", note, date_format)


@pytest.mark.parametrize("values", [["1.2.2024", "2024-02-01"], ["1-2", "3-4"], ["2024-13-45", "2024-01-01"]])
def test_words_that_only_look_like_dates_are_categories(values: list[str]) -> None:
    assert decide(values).kind == "category"


def test_row_numbers_are_noted_but_kept() -> None:
    column = decide(np.random.default_rng(0).permutation(np.arange(1000, 1100)))
    assert column.kind == "number"
    assert column.note.startswith("has a different integer in every row")
    assert decide([*range(99), 0]).note == ""
    assert decide(np.arange(100) + 0.5).note == ""
    assert decide(np.arange(100) * 1000).note == ""


@pytest.mark.parametrize(
    ("values", "says"),
    [
        pytest.param(
            ["1"] * 50 + ["2"] * 49 + ["two"],
            "Column 'x', row 99 (counting from 0): 'two' is not a number, unlike nearly all values of the column.",
            id="a word among numbers",
        ),
        pytest.param(
            ["1"] * 50 + ["2"] * 48 + ["two"] * 2,
            "column (2 such values in 100 rows). Correct it, or leave",
            id="two words",
        ),
        pytest.param([1.0, np.inf], "Column 'x', row 1 (counting from 0): the value is infinity", id="infinity"),
        pytest.param(
            [-np.inf, 1.0], "Column 'x', row 0 (counting from 0): the value is minus infinity", id="- infinity"
        ),
        pytest.param(["1", "inf"], "Column 'x', row 1 (counting from 0): the value is infinity", id="infinity as text"),
        pytest.param([1.0, -2e30], "row 1 (counting from 0): -2e+30 is beyond ±1e+30", id="huge"),
        pytest.param([10**31, 1], "row 0 (counting from 0): 1e+31 is beyond ±1e+30", id="huge whole number"),
        pytest.param([[1, 2], [3]], "Column 'x' holds values of type list", id="lists"),
        pytest.param([{"a": 1}, None], "Column 'x' holds values of type dict", id="dicts"),
        pytest.param(pd.to_timedelta([1, 2], unit="D"), "Column 'x' holds durations", id="durations"),
        pytest.param(
            [f"note {i}" for i in range(100)],
            "Column 'x' holds free text: 'x' has 100 distinct values in 100 rows, such as 'note 0'. "
            "A network cannot use it. Remove it, or turn it into numbers",
            id="text",
        ),
    ],
)
def test_bad_column_is_refused(values: Any, says: str) -> None:
    with pytest.raises(TableError) as caught:
        decide(values)
    assert says in str(caught.value)


def test_all_text_columns_are_named_at_once() -> None:
    text = [f"note {i}" for i in range(100)]
    with pytest.raises(TableError, match=r"^Columns 'who', 'where' hold free text"):
        decide_columns(pd.DataFrame({"who": text, "n": range(100), "where": text}))


def test_rows_are_named_by_their_label() -> None:
    frame = pd.DataFrame({"x": [1.0, np.inf], "y": [1, 2]}, index=["north", "south"])
    with pytest.raises(TableError, match="Column 'x', row 'south': the value is infinity"):
        decide_columns(frame)


def test_few_words_are_categories_however_different() -> None:
    assert decide([f"name {i}" for i in range(50)]).kind == "category"
    assert decide([f"name {i % 51}" for i in range(102)]).kind == "category"
    with pytest.raises(TableError, match="holds free text"):
        decide([f"name {i}" for i in range(51)])


def test_kinds_can_be_stated() -> None:
    assert decide([1, 2, 3], kinds={"x": "category"}) == Column("x", "category")
    assert decide(["1", "0", "?"], kinds={"x": "boolean"}) == Column("x", "boolean")
    assert decide(["007", "012"], kinds={"x": "number"}) == Column("x", "number")
    assert decide([f"note {i}" for i in range(100)], kinds={"x": "ignored"}) == Column("x", "ignored")
    assert decide(["31.01.2024", "01.02.2024"], kinds={"x": "date"}) == Column("x", "date", "", "%d.%m.%Y")
    assert decide([None, "?"], kinds={"x": "number"}).kind == "empty"


@pytest.mark.parametrize(
    ("values", "kind", "says"),
    [
        (["1", "b"], "number", "row 1 (counting from 0): 'b' is not a number. Write numbers like 1234.5"),
        (["yes", "b"], "boolean", "row 1 (counting from 0): 'b' is not true or false. Use true and false"),
        (["2024-01-31", "b"], "date", "row 1 (counting from 0): 'b' is not a date like 2024-01-31"),
    ],
)
def test_stated_kind_must_fit(values: list[str], kind: str, says: str) -> None:
    with pytest.raises(TableError) as caught:
        decide(values, kinds={"x": kind})
    assert says in str(caught.value)


def test_stated_kinds_must_exist() -> None:
    with pytest.raises(
        ArgumentError, match=r"kinds has an entry 'othr', but the table has no such column\. Did you mean 'other'"
    ):
        decide([1, 2], kinds={"othr": "number"})
    with pytest.raises(ArgumentError, match=r"kinds\['x'\] must be one of 'number', 'boolean', .* got 'text'"):
        decide([1, 2], kinds={"x": "text"})


def test_table_with_nothing_to_learn_from() -> None:
    with pytest.raises(TableError, match=r"no usable column: 'a' dropped: every value is 1; 'b' dropped"):
        decide_columns(pd.DataFrame({"a": [1, 1], "b": [None, None]}))
    with pytest.raises(TableError, match="it has no columns"):
        decide_columns(pd.DataFrame(index=[0, 1]))


def test_names_must_be_given_and_differ() -> None:
    with pytest.raises(TableError, match="more than one column named 'a'"):
        decide_columns(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(TableError, match="more than one column named '1'"):
        decide_columns(pd.DataFrame([[1, 2]], columns=[1, "1"]))
