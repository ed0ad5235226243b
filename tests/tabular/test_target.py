"""The target: taken out of the table by name, and the task that it makes."""

import numpy as np
import pandas as pd
import pytest

from awn.errors import ArgumentError, TableError
from awn.tabular.read.target import guess_task, split_target


def table(target: object, name: str = "y") -> pd.DataFrame:
    frame = pd.DataFrame({name: target})
    return pd.concat([frame, pd.DataFrame({"a": range(len(frame)), "b": 1.5})], axis=1)


def test_features_keep_their_order_and_rows() -> None:
    features, target, notes = split_target(table([1, 2, 3]), "y")
    assert list(features.columns) == ["a", "b"]
    assert features["a"].tolist() == [0, 1, 2]
    assert target.tolist() == [1, 2, 3]
    assert notes == []


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        pytest.param([1.5, None, 2.5, np.nan], [1.5, 2.5], id="numbers"),
        pytest.param([1.0, None, 2.0, None], [1, 2], id="whole numbers"),
        pytest.param(["x ", "?", "y", ""], ["x", "y"], id="words"),
        pytest.param(["1.5", "n/a", "2.5", " NULL"], [1.5, 2.5], id="numbers as text"),
        pytest.param(["1", "?", "2", None], [1, 2], id="whole numbers as text"),
        pytest.param([True, None, False, None], ["True", "False"], id="booleans"),
        pytest.param(pd.Categorical(["1", None, "2", None]), ["1", "2"], id="categorical"),
    ],
)
def test_rows_without_a_target_are_dropped_and_counted(values: object, kept: list[object]) -> None:
    features, target, notes = split_target(table(values), "y")
    assert target.tolist() == kept
    assert [type(value) for value in target.tolist()] == [type(value) for value in kept]
    assert features["a"].tolist() == [0, 2]
    assert target.index.tolist() == features.index.tolist() == [0, 2]
    assert notes == ["dropped 2 of 4 rows, because the target 'y' is missing"]


@pytest.mark.parametrize(
    ("frame", "name", "says"),
    [
        pytest.param(table([1, 2], "Income"), "incme", "no column 'incme'. Did you mean 'Income'?", id="near miss"),
        pytest.param(table([1, 2], "Income"), "zzz", "no column 'zzz'. It has 'Income', 'a', 'b'.", id="unknown"),
        pytest.param(
            pd.DataFrame([[1] * 30], columns=[f"c{i}" for i in range(30)]), "zzz", "and 10 more", id="unknown of many"
        ),
        pytest.param(table([None, None]), "y", "'y' is missing in all 2 rows", id="all missing"),
        pytest.param(table(["?", "NA"]), "y", "'y' is missing in all 2 rows", id="all missing words"),
        pytest.param(table([1]), "y", "has 1 row. At least two", id="one row"),
        pytest.param(table(["a", None, None]), "y", "1 row with a known target 'y'", id="one row left"),
        pytest.param(table([]), "y", "has no rows", id="no row"),
        pytest.param(table(["a", "a ", None]), "y", "is 'a' in all 2 rows. With a single class", id="one class"),
        pytest.param(table([3.5, 3.5]), "y", "is '3.5' in all 2 rows", id="one value"),
        pytest.param(table([1, 2])[["y"]], "y", "'y' is the only column", id="no features"),
        pytest.param(table([1.5, np.inf]), "y", "'y', row 1 (counting from 0): the value is infinity", id="infinite"),
        pytest.param(
            table(["1.5", "-inf"]), "y", "'y', row 1 (counting from 0): the value is minus inf", id="infinite word"
        ),
        pytest.param(table([1.5, 1e31]), "y", "row 1 (counting from 0): 1e+31 is beyond ±1e+30", id="huge"),
        pytest.param(
            table([1, 2]).set_axis(["y", "a", "a"], axis=1), "y", "more than one column named 'a'", id="twice"
        ),
    ],
)
def test_bad_target_is_refused(frame: pd.DataFrame, name: str, says: str) -> None:
    with pytest.raises(TableError) as caught:
        split_target(frame, name)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("values", "task", "reason"),
    [
        (["a", "b", "a"], "classification", "'y' has 2 distinct strings"),
        ([True, False, True], "classification", "'y' has booleans"),
        (pd.Categorical([1, 2, 1]), "classification", "'y' has 2 distinct strings"),
        ([0, 1, 1, 0], "classification", "'y' has two distinct values, 0 and 1"),
        ([0.5, 2.5, 0.5, 2.5], "classification", "'y' has two distinct values, 0.5 and 2.5"),
        ([1, 2, 3, 1, 2, 3], "classification", "'y' has 3 distinct integers from 1 to 3"),
        ([1.0, 2, 3, 5, 6, 7] * 2, "classification", "'y' has 6 distinct integers from 1 to 7"),
        ([1.5, 2.5, 3.5, 1.5], "regression", "'y' has decimal numbers"),
        ([1.5, 2.5], "regression", "'y' has decimal numbers"),
        ([*range(11)] * 9, "classification", "'y' has 11 distinct integers from 0 to 10"),
        ([*range(0, 101, 10)] * 9, "regression", "'y' has integers with gaps, from 0 to 100"),
        ([*range(100)] * 3, "regression", "'y' has 100 distinct integers in 300 rows"),
        ([3, 4, 5, 6], "regression", "'y' has 4 distinct integers in 4 rows"),
        (pd.array([1, 2, 3, 1, 2, 3], dtype="Int64"), "classification", "'y' has 3 distinct integers from 1 to 3"),
    ],
)
def test_task_is_guessed_with_a_reason(values: object, task: str, reason: str) -> None:
    assert guess_task(pd.Series(values, name="y")) == (task, reason)


def test_stated_task_wins_where_it_can() -> None:
    whole = pd.Series([1, 2, 3, 1, 2, 3], name="y")
    assert guess_task(whole, "regression") == ("regression", "as specified")
    assert guess_task(whole / 2, "classification") == ("classification", "as specified")
    assert guess_task(pd.Series(["a", "b"]), "classification") == ("classification", "as specified")
    assert guess_task(pd.Series(["1.5", "2"]), "regression") == ("regression", "as specified")
    with pytest.raises(TableError, match=r"Column 'y', row 1 \(counting from 0\): 'b' is not a number"):
        guess_task(pd.Series(["1", "b"], name="y"), "regression")
    with pytest.raises(ArgumentError, match="'classification' or 'regression', got 'ranking'"):
        guess_task(whole, "ranking")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            np.linspace(0, 1, 21),
            "'y' has 21 distinct numbers in 21 rows, too many for classes. Set the task to regression",
        ),
        (np.linspace(0, 1, 21).repeat(9), "'y' has 21 distinct numbers in 189 rows"),
        (np.arange(30).repeat([2, *[1] * 29]), "'y' has 30 distinct numbers in 31 rows"),
    ],
)
def test_a_quantity_is_no_class_whatever_is_stated(values: object, says: str) -> None:
    with pytest.raises(TableError, match=says):
        guess_task(pd.Series(values, name="y"), "classification")


@pytest.mark.parametrize("values", [np.linspace(0, 1, 20), np.arange(30).repeat(2), np.arange(20)])
def test_few_numbers_are_classes_where_stated(values: object) -> None:
    assert guess_task(pd.Series(values, name="y"), "classification").task == "classification"


def test_text_and_dates_make_no_task() -> None:
    names = pd.Series([f"person {i}" for i in range(100)], name="who")
    with pytest.raises(TableError, match=r"The target 'who' holds free text \(100 distinct values in 100 rows\)"):
        guess_task(names)
    with pytest.raises(TableError, match="The target 'when' holds dates"):
        guess_task(pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"]), name="when"))


def test_one_word_among_a_target_of_numbers_is_named() -> None:
    target = pd.Series([*(f"{number}.5" for number in range(60)), "12x"], name="price")
    with pytest.raises(TableError, match=r"'price', row 60 \(counting from 0\): '12x' is not a number"):
        guess_task(target)
