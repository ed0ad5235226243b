"""What every room may use: plain values, text tables, thinning and timing."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from awn.basics.plain import short, to_numbers, to_plain
from awn.basics.text_table import as_table, markdown_table, text_table
from awn.basics.thin import thin
from awn.basics.timing import in_turns

lawful = settings(max_examples=100, deadline=None, derandomize=True)

# Plain values

NUMBERS = st.floats() | st.integers()
TREES = st.recursive(
    NUMBERS, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner)
)


@dataclass(frozen=True)
class Inner:
    rate: float


@dataclass(frozen=True)
class Outer:
    inner: Inner
    path: Path


def same(value: Any, other: Any) -> bool:
    """Equal, where tuples count as lists and NaN as equal to itself."""
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(same(value[key], other[key]) for key in value)
    if isinstance(value, list | tuple):
        return len(value) == len(other) and all(map(same, value, other))
    return value == other or (math.isnan(value) and math.isnan(other))


@lawful
@given(TREES)
def test_numbers_come_back_from_json_as_they_were(tree: Any) -> None:
    written = json.dumps(to_plain(tree), allow_nan=False)
    assert same(tree, to_numbers(json.loads(written)))


@lawful
@given(TREES)
def test_a_number_that_json_has_no_word_for_can_become_null(tree: Any) -> None:
    assert "null" in json.dumps(to_plain([math.nan, tree], nonfinite="null"), allow_nan=False)


@lawful
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 17))
def test_a_short_number_has_at_most_so_many_digits_and_is_as_near_as_they_allow(number: float, digits: int) -> None:
    shortened = short(number, digits)
    assert short(shortened, digits) == shortened
    if math.isfinite(shortened):  # the largest floats may round up to infinity
        assert math.isclose(shortened, number, rel_tol=0.501 * 10 ** (1 - digits), abs_tol=5e-324)


def test_values_of_other_types_are_put_into_those_of_json() -> None:
    value = {1: Outer(Inner(0.5), Path("a")), "x": (torch.tensor([[1.0, 2.0]]), torch.tensor(3), True, None)}
    assert to_plain(value) == {"1": {"inner": {"rate": 0.5}, "path": "a"}, "x": [[[1.0, 2.0]], 3, True, None]}
    assert to_plain(Outer(Inner(0.5), Path("a")), kinds=True, other=lambda _: 0) == {
        "kind": "Outer",
        "inner": {"kind": "Inner", "rate": 0.5},
        "path": 0,
    }


def test_numbers_of_numpy_become_those_of_python() -> None:
    plain = to_plain([np.float32(0.5), np.float64("inf"), np.int64(3)])
    assert plain == [0.5, "inf", 3]
    assert [type(entry) for entry in plain] == [float, str, int]


def test_digits_shorten_floats_and_leave_whole_numbers() -> None:
    assert to_plain({"a": [math.pi, 123456], "b": math.inf}, digits=3) == {"a": [3.14, 123456], "b": "inf"}


# Text tables

CELLS = st.text("ab–2.", min_size=1)


@lawful
@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1)))
def test_the_columns_of_a_text_table_end_at_the_same_place(lines: list[list[str]]) -> None:
    written = text_table(lines[0], lines[1:]).splitlines()
    assert [line.split() for line in written] == lines
    if len(lines[0]) > 1:
        assert len({len(line) for line in written}) == 1


def test_a_row_that_has_not_as_many_cells_as_the_head_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        text_table(["a", "b"], [["1"]])


def test_markdown_has_a_line_below_the_head() -> None:
    assert markdown_table(["a"], [["1"], ["2"]]).splitlines() == ["| a |", "| --- |", "| 1 |", "| 2 |"]


def test_a_table_of_records_has_a_column_for_every_key() -> None:
    assert as_table([{"a": 0}, {"b": None, "c": False}]) == (["a", "b", "c"], [["0", "–", "–"], ["–", "–", "False"]])


# Thinning


@lawful
@given(st.integers(0, 5000), st.integers(1, 300), st.data())
def test_thinned_places_are_few_in_order_and_hold_the_first_the_last_and_the_wanted(
    count: int, most: int, data: st.DataObject
) -> None:
    also = data.draw(st.lists(st.integers(0, count - 1), max_size=5)) if count else []
    places = thin(count, most, also)
    assert places == sorted(set(places))
    assert set(places) >= {*also, *range(min(count, 1)), *range(max(0, count - 1), count)}
    assert set(places) <= set(range(count))
    assert len(places) <= most + 1 + len(set(also))
    if count <= most:
        assert places == list(range(count))


# Timing


def test_works_take_turns() -> None:
    order: list[str] = []
    in_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repetitions=20, burst=0.0)
    turns = {"".join(order[-40:][place : place + 2]) for place in range(0, 40, 2)}
    assert turns == {"ab", "ba"}, "both in every turn, neither always first"


def test_without_a_burst_every_turn_is_one_call_after_three_to_warm_up() -> None:
    calls = [0, 0]

    def call(place: int) -> None:
        calls[place] += 1

    seconds = in_turns({"a": lambda: call(0), "b": lambda: call(1)}, repetitions=7, burst=0.0)
    assert calls == [10, 10]
    assert {name: len(own) for name, own in seconds.items()} == {"a": 7, "b": 7}
