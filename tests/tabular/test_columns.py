"""What a column holds: decided from its values, whatever way they are written, and said in words."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from awn.errors import ArgumentError, TableError
from awn.tabular.encode.columns import Column, decide_columns
from awn.tabular.read.values import numbers

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


@pytest.mark.parametrize(
    ("values", "number_format", "read"),
    [
        (["12.5%", "3%", "?"], "1,234.5", [12.5, 3, None]),
        (["$1,200", "$950", "-$3.50"], "1,234.5", [1200, 950, -3.5]),
        (["1,200", "1,000,000.5", "7"], "1,234.5", [1200, 1_000_000.5, 7]),
        (["1.200,50", "3,5", "7"], "1.234,5", [1200.5, 3.5, 7]),
        (["1,5", "2,25"], "1.234,5", [1.5, 2.25]),
        (["0,125", "1,250"], "1.234,5", [0.125, 1.25]),
        (["1\u202f200,5 €", "7 €"], "1.234,5", [1200.5, 7]),
        (["1'200.5", "7"], "1,234.5", [1200.5, 7]),
        (["١٢", "٣٫٥", "١٬٢٠٠"], "1,234.5", [12, 3.5, 1200]),
    ],
)
def test_numbers_are_read_however_a_column_writes_them(values: list[str], number_format: str, read: list[Any]) -> None:
    column = decide(values)
    assert (column.kind, column.number_format) == ("number", number_format)
    assert "is read as" in column.note
    assert numbers(pd.Series(values), column.number_format).tolist() == pytest.approx(
        [np.nan if value is None else value for value in read], nan_ok=True
    )
    assert decide(values, kinds={"x": "number"}) == Column("x", "number", number_format=column.number_format)


@pytest.mark.parametrize(
    "values",
    [["12%", "0.5"], ["1 kg", "2 kg"], ["1,2,3", "4,5,6"], ["192.168.001.001", "10.0.0.1"], ["$5", "€5"], ["1-2", "3"]],
)
def test_numbers_that_a_column_does_not_write_alike_are_categories(values: list[str]) -> None:
    assert decide(values).kind == "category"


def test_identifiers_are_left_out() -> None:
    column = decide(np.random.default_rng(0).permutation(np.arange(1000, 1100)))
    assert column.kind == "id"
    assert column.note == "left out as an identifier: a different integer in every row; --kind x=number uses it"
    assert decide([*range(99), 0]).kind == "number"
    assert decide(np.arange(100) + 0.5).kind == "number"
    assert decide(np.arange(100) * 1000).kind == "number"
    assert decide(np.arange(19)).kind == "number"
    assert decide(np.arange(100), kinds={"x": "number"}) == Column("x", "number")
    codes = decide([f"{i:03}-XY" for i in range(100)])
    assert codes.note.startswith("left out as an identifier: a different value in every row, such as '000-XY'; --kind")


@pytest.mark.parametrize("name", ["id", "ID", "PID", "user_id", "customerID", "shop id", "uuid"])
@pytest.mark.parametrize("other", ["paid", "bid", "humid", "idle", "grid"])
def test_different_integers_are_an_identifier_where_the_name_says_so(name: str, other: str) -> None:
    frame = pd.DataFrame({"x": [1.5, 2] * 50, name: np.arange(100) * 1000, other: np.arange(100) * 1000})
    assert [column.kind for column in decide_columns(frame)] == ["number", "id", "number"]


def test_a_row_number_is_used_where_there_is_nothing_else() -> None:
    assert decide_columns(pd.DataFrame({"t": range(100)})) == (Column("t", "number"),)


def test_free_text_is_left_out_and_an_option_uses_it() -> None:
    notes = [f"note {i}" for i in range(100)]
    frame = pd.DataFrame({"who's": notes, "n": [1, 2] * 50})
    text = decide_columns(frame)[0]
    assert (text.kind, text.used) == ("text", False)
    assert text.note == (
        "left out as text: 100 distinct values in 100 rows, such as 'note 0'; --kind 'who'\"'\"'s=category' uses it"
    )
    assert decide_columns(frame, {"who's": "category"})[0] == Column("who's", "category")


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
            "column (2 such values in 100 rows). Correct it, or leave the cell empty if the value is missing. If the "
            "column holds codes, use --kind x=category (in Python, kinds={'x': 'category'}).",
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
    ],
)
def test_bad_column_is_refused(values: Any, says: str) -> None:
    with pytest.raises(TableError) as caught:
        decide(values)
    assert says in str(caught.value)


def test_rows_are_named_by_their_label() -> None:
    frame = pd.DataFrame({"x": [1.0, np.inf], "y": [1, 2]}, index=["north", "south"])
    with pytest.raises(TableError, match="Column 'x', row 'south': the value is infinity"):
        decide_columns(frame)


def test_few_words_are_categories_however_different() -> None:
    assert decide([f"name {i}" for i in range(50)]).kind == "category"
    assert decide([f"name {i % 51}" for i in range(102)]).kind == "category"
    assert decide([f"name {i}" for i in range(51)]).kind == "text"


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


@pytest.mark.parametrize(
    ("usual", "stray", "says"),
    [
        ("{:02d}.12.2020", "soon", "row 3 (counting from 0): 'soon' is not a date, unlike nearly all values"),
        ("${:,}.00", "tba", "row 3 (counting from 0): 'tba' is not a number, unlike nearly all values"),
    ],
)
def test_one_word_among_dates_or_amounts_is_an_error(usual: str, stray: str, says: str) -> None:
    values = [usual.format(1 + place % 28) for place in range(60)]
    values[3] = stray
    with pytest.raises(TableError) as caught:
        decide(values)
    assert says in str(caught.value)
    assert decide(values, kinds={"x": "category"}).kind == "category"


def test_stated_kinds_must_exist() -> None:
    with pytest.raises(
        ArgumentError, match=r"The table has no column 'othr', whose kind is given\. Did you mean 'other'"
    ):
        decide([1, 2], kinds={"othr": "number"})
    with pytest.raises(ArgumentError, match=r"The table has no column 'othr' to leave out\. Did you mean 'other'"):
        decide([1, 2], kinds={"othr": "ignored"})
    with pytest.raises(ArgumentError, match=r"The kind of column 'x' must be number, boolean, .* got 'text'"):
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
