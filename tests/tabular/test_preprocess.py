"""Laws of the preprocessing: what it learns, that it comes back from JSON to the last bit, and what it refuses."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn

from awn.errors import ArgumentError, CheckpointError, TableError
from awn.tabular.encode import bins as bins_file
from awn.tabular.encode import blocks
from awn.tabular.encode.bins import Bins
from awn.tabular.encode.preprocess import Preprocessor
from awn.tabular.encode.scaling import Scaling
from awn.tabular.read.table import read_table

ROWS = 200


def make_tables() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    number = rng.normal(size=ROWS) * 3 + 7
    gappy = np.where(rng.random(ROWS) < 0.2, np.nan, rng.lognormal(size=ROWS))
    flag = np.array([True, False] * (ROWS // 2), dtype=object)
    flag[::7] = None
    word = rng.choice(["red", "green", "blue", "?"], size=ROWS)
    many = [f"level {i}" for i in rng.geometric(0.02, size=ROWS) % 90]
    when = pd.Timestamp("2023-11-05") + pd.to_timedelta(rng.integers(0, 9999, ROWS), unit="h")
    written = pd.Series(when).dt.strftime("%d.%m.%Y").where(pd.Series(rng.random(ROWS) < 0.9), "?")
    return {
        "one number": pd.DataFrame({"a": number}),
        "numbers": pd.DataFrame({"a": number, "b": number**3, "c": rng.integers(0, 9, ROWS)}),
        "numbers with gaps": pd.DataFrame({"a": number, "b": gappy, "c": gappy[::-1], "flag": flag}),
        "one category": pd.DataFrame({"w": word}),
        "categories": pd.DataFrame({"w": word, "many": many, "v": word[::-1]}),
        "dates": pd.DataFrame({"when": when, "written": written}),
        "everything": pd.DataFrame(
            {
                "w": word,
                "a": number,
                "when": when,
                "b": gappy,
                "flag": flag,
                "written": written,
                "many": many,
                "one": 1.0,
            }
        ),
    }


TABLES = make_tables()


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest) -> pd.DataFrame:
    return TABLES[request.param]


def through_json(preprocessor: Preprocessor) -> Preprocessor:
    return Preprocessor.from_json(json.loads(json.dumps(preprocessor.to_json(), allow_nan=False)))


def features(frame: pd.DataFrame, new: pd.DataFrame | None = None, **options: Any) -> pd.DataFrame:
    """The numbers of a table under the names of the features."""
    fitted = Preprocessor(**options).fit(frame)
    return pd.DataFrame(fitted.transform(frame if new is None else new), columns=fitted.feature_names)


def median_and_scale(values: Any) -> tuple[float, float]:
    """Of one column, by definition: the interquartile range over 1.349, without values equal to the median."""
    known = np.asarray(values, dtype=float)
    known = known[~np.isnan(known)]
    other = known[known != np.median(known)]
    low, high = np.quantile(other, [0.25, 0.75]) if len(other) else (0.0, 0.0)
    return float(np.median(known)), float((high - low) / 1.349 if high > low else known.std() or 1.0)


def limited(z: Any) -> Any:
    return np.asarray(z) / np.sqrt(1 + (np.asarray(z) / 3) ** 2)


def scaled(values: Any) -> Any:
    """One column without gaps, scaled by definition."""
    median, scale = median_and_scale(values)
    return limited((np.asarray(values, dtype=float) - median) / scale)


def test_output_is_finite_single_precision_and_has_names(table: pd.DataFrame) -> None:
    fitted = Preprocessor(max_levels=20, bins=6).fit(table)
    out = fitted.transform(table)
    assert out.dtype == np.float32
    assert out.shape == (ROWS, len(fitted.feature_names))
    assert np.isfinite(out).all()
    assert np.abs(out).max() <= 3
    assert len(set(fitted.feature_names)) == len(fitted.feature_names)


def test_json_brings_it_back_to_the_last_bit(table: pd.DataFrame) -> None:
    fitted = Preprocessor(max_levels=20, bins=6).fit(table)
    restored = through_json(fitted)
    strange = table.iloc[::-1].assign(**dict.fromkeys(table.columns[:1]))
    for rows in (table, table.iloc[:1], strange):
        assert np.array_equal(restored.transform(rows), fitted.transform(rows))
    assert restored.feature_names == fitted.feature_names
    assert restored.columns == fitted.columns
    assert restored.to_json() == fitted.to_json()
    assert through_json(restored).to_json() == fitted.to_json()


def test_order_of_columns_rows_and_other_columns_do_not_matter(table: pd.DataFrame) -> None:
    fitted = Preprocessor().fit(table)
    out = fitted.transform(table)
    shuffled = table[list(table.columns[::-1])].assign(extra="never seen")
    assert np.array_equal(fitted.transform(shuffled), out)
    assert np.array_equal(fitted.transform(table.iloc[::-1]), out[::-1])
    assert np.array_equal(fitted.transform(table.iloc[3:4]), out[3:4])
    assert fitted.transform(table.iloc[:0]).shape == (0, out.shape[1])
    assert list(fitted.select(shuffled).columns) == list(table.columns)


def test_fit_leaves_the_table_as_it_is(table: pd.DataFrame) -> None:
    before = table.copy(deep=True)
    Preprocessor().fit(table).transform(table)
    pd.testing.assert_frame_equal(table, before)


def test_every_missing_value_is_handled_at_prediction(table: pd.DataFrame) -> None:
    fitted = Preprocessor().fit(table)
    out = fitted.transform(pd.DataFrame({name: [None, "?"] for name in table.columns}))
    assert np.isfinite(out).all()
    assert np.array_equal(out[0], out[1])


def test_numbers_have_median_0_and_the_spread_of_a_standard_normal() -> None:
    out = features(TABLES["numbers with gaps"].drop(columns="flag"))
    known = TABLES["numbers with gaps"]["b"].notna()
    assert list(out.columns) == ["a", "b", "c", "b is missing", "c is missing"]
    assert out["a"].median() == pytest.approx(0, abs=1e-2)
    assert out["a"].quantile(0.75) - out["a"].quantile(0.25) == pytest.approx(1.349, abs=0.1)
    assert out.loc[known, "b"].median() == pytest.approx(0, abs=1e-2)
    assert np.array_equal(out["b is missing"] == 1, ~known)


def test_missing_number_is_the_median() -> None:
    out = features(pd.DataFrame({"x": [0, 1, 2, 3, 14, None]}))  # median 2; of the others, quartiles 0.75 and 5.75
    assert out["x"].tolist() == pytest.approx(limited(np.array([-2, -1, 0, 1, 12, 0]) * 1.349 / 5))
    assert out["x is missing"].tolist() == [0, 0, 0, 0, 0, 1]


def test_missing_for_the_first_time_at_prediction() -> None:
    out = features(pd.DataFrame({"x": [0, 1, 2, 3, 14]}), pd.DataFrame({"x": [None, 2]}))
    assert list(out.columns) == ["x"]
    assert out["x"][0] == out["x"][1]


def test_far_values_are_limited_and_do_not_flatten_the_others() -> None:
    values = np.append(np.linspace(-1, 1, 999), 1e29)
    out = features(pd.DataFrame({"x": values}))["x"]
    assert out[999] == pytest.approx(3)
    assert out[998] - out[0] > 2
    assert out[:999].is_monotonic_increasing
    few = features(pd.DataFrame({"x": [18, 25, 31, 40, 52, 60, 999_999_999]}))["x"]
    assert few[5] - few[0] > 0.2
    sparse = features(pd.DataFrame({"x": [0] * 90 + [1, 2, 3, 4, 5, 6, 7, 8, 9, 1e12]}))["x"]
    assert sparse[98] - sparse[0] > 0.2


def test_booleans_in_any_writing() -> None:
    fitted = Preprocessor().fit(pd.DataFrame({"x": ["yes", "no", "no", "no"]}))
    new = [["YES", "no"], [True, False], [1, 0], [1.0, 0.0], ["true", "F"]]
    outs = [fitted.transform(pd.DataFrame({"x": values})) for values in new]
    expected = limited(np.array([[1.0], [0.0]]) / np.sqrt(3 / 16))
    for out in outs:
        assert out == pytest.approx(expected)


def test_categories_missing_unseen_and_rare() -> None:
    frame = pd.DataFrame({"x": ["a", "b ", "a", None, "?", "b", "a", "c", "d"]})
    new = pd.DataFrame({"x": ["a", "b", "", "c", "never seen"]})
    out = features(frame, new)
    assert list(out.columns) == ["x is missing", "x = a", "x = b", "x = c", "x = d"]
    rows = [[0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]
    assert out.to_numpy().tolist() == rows
    grouped = features(frame, new, max_levels=4)
    assert list(grouped.columns) == ["x is missing", "x = a", "x = b", "x = (rare)"]
    assert grouped.to_numpy().tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1]]


def test_categories_of_whole_numbers_are_the_same_with_and_without_gaps() -> None:
    fitted = Preprocessor(kinds={"x": "category"}).fit(pd.DataFrame({"x": [1, 2, 3, 1]}))
    assert fitted.feature_names == ["x = 1", "x = 2", "x = 3"]
    for values in ([2], [2.0, None], ["2"], pd.array([2, None], dtype="Int64")):
        assert fitted.transform(pd.DataFrame({"x": values}))[0].tolist() == [0, 1, 0]


def test_codes_in_a_file_of_few_rows(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("code,n\n007,1\nA12,2\n007,3\n")
    (tmp_path / "new.csv").write_text("code,n\n007,1\n")
    fitted = Preprocessor().fit(read_table(tmp_path / "train.csv"))
    new = read_table(tmp_path / "new.csv", as_text=fitted.category_columns)
    assert fitted.transform(new)[0, 1:].tolist() == [1, 0]


def test_dates_become_days_and_the_parts_that_vary() -> None:
    when = ["2024-01-29 06:00", "2024-02-28 06:00", "2024-03-04 06:00"]
    fitted = Preprocessor().fit(pd.DataFrame({"t": when}))
    assert fitted.feature_names == ["t: days", "t: month", "t: weekday"]
    days, month, weekday = np.array([0, 30, 35.0]), np.array([1, 2, 3.0]), np.array([0, 2, 0.0])
    expected = np.column_stack([scaled(part) for part in (days, month, weekday)])
    assert fitted.transform(pd.DataFrame({"t": when})) == pytest.approx(expected, abs=1e-6)
    assert fitted.transform(pd.DataFrame({"t": pd.to_datetime(when)})) == pytest.approx(expected, abs=1e-6)
    zoned = pd.to_datetime(when, utc=True).tz_convert("America/New_York")
    assert fitted.transform(pd.DataFrame({"t": zoned})) == pytest.approx(expected, abs=1e-6)
    hours = Preprocessor().fit(pd.DataFrame({"t": pd.to_datetime(["2024-01-01 01:00", "2024-01-01 02:00", None])}))
    assert hours.feature_names == ["t: days", "t: hour", "t is missing"]


def test_dropped_columns_are_said_and_not_needed() -> None:
    frame = pd.DataFrame({"a": [1, 2], "one": [3, 3], "none": [None, None]})
    fitted = Preprocessor().fit(frame)
    assert fitted.feature_names == ["a"]
    assert fitted.notes == ["'one': dropped: every value is 3", "'none': dropped: every value is missing"]
    assert fitted.transform(frame[["a"]])[:, 0] == pytest.approx(scaled([1, 2]))
    assert list(fitted.select(frame[["a"]]).columns) == ["a", "one", "none"]


def test_names_that_are_no_strings() -> None:
    fitted = Preprocessor().fit(pd.DataFrame(np.arange(6.0).reshape(3, 2)))
    assert fitted.feature_names == ["0", "1"]
    assert through_json(fitted).transform(pd.DataFrame({1: [1.0], 0: [0.0]})).shape == (1, 2)


@pytest.mark.parametrize("name", ["one number", "numbers", "numbers with gaps"])
def test_numeric_pieces_are_the_whole_preprocessing(name: str) -> None:
    frame = TABLES[name]
    fitted = Preprocessor(bins=6).fit(frame)
    pieces = fitted.numeric_pieces()
    assert pieces is not None
    assert list(pieces.columns) == list(frame.columns)
    x = frame[list(pieces.columns)].astype(float).to_numpy()
    filled = np.where(np.isnan(x), pieces.medians, x)
    z = (filled - pieces.medians) / pieces.scales
    z /= np.sqrt(1 + (z / pieces.limit) ** 2)
    bins = ((filled[:, pieces.bin_columns] - pieces.bin_lows) / pieces.bin_widths).clip(0, 1)
    by_hand = np.hstack([z, np.isnan(x)[:, pieces.indicators], bins]).astype(np.float32)
    assert np.array_equal(by_hand, fitted.transform(frame))
    again = through_json(fitted).numeric_pieces()
    assert again is not None
    for field in dataclasses.fields(pieces):
        assert np.array_equal(getattr(pieces, field.name), getattr(again, field.name))


@pytest.mark.parametrize("name", list(TABLES))
def test_numeric_pieces_have_all_numbers_and_parts_of_dates(name: str) -> None:
    fitted = Preprocessor().fit(TABLES[name])
    pieces = fitted.numeric_pieces()
    assert (list(pieces.columns) if pieces is not None else []) == list(fitted.number_names)


@pytest.mark.parametrize(
    ("new", "says"),
    [
        pytest.param({"age": [1, "old"]}, "'age', row 1 (counting from 0): 'old' is not a number. Write", id="word"),
        pytest.param({"age": ["12%", 3]}, "'12%' is not a number. Write numbers like 1234.5", id="percent"),
        pytest.param({"age": [1, np.inf]}, "'age', row 1 (counting from 0): the value is infinity", id="infinity"),
        pytest.param({"age": [-1e31, 1]}, "'age', row 0 (counting from 0): -1e+31 is beyond", id="huge"),
        pytest.param({"when": ["?", "soon"]}, "'when', row 1 (counting from 0): 'soon' is not a date like", id="date"),
        pytest.param({"when": ["?", "2024-01-31"]}, "'2024-01-31' is not a date like 31.01.2024", id="other format"),
        pytest.param({"member": ["yes", "2"]}, "row 1 (counting from 0): '2' is not true or false", id="boolean"),
    ],
)
def test_value_of_the_wrong_kind_at_prediction(new: dict[str, Any], says: str) -> None:
    frame = pd.DataFrame({"age": [1, 2], "when": ["31.01.2024", "01.02.2024"], "member": ["yes", "no"]})
    with pytest.raises(TableError) as caught:
        Preprocessor().fit(frame).transform(frame.assign(**new))
    assert says in str(caught.value)


def test_missing_columns_are_named_with_near_misses() -> None:
    frame = pd.DataFrame({"age": [1, 2], "job": ["x", "y"], "pay": [3, 4]})
    fitted = Preprocessor().fit(frame)
    with pytest.raises(
        TableError, match=r"no column 'age', 'pay', which the model needs\. Did you mean 'Age'\? It has 'Age', 'job'\."
    ):
        fitted.transform(pd.DataFrame({"Age": [1], "job": ["x"]}))
    with pytest.raises(TableError, match=r"no column 'age', 'job', 'pay', .* It has no columns\."):
        fitted.select(pd.DataFrame())


def test_bad_calls() -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    with pytest.raises(ArgumentError, match=r"not fitted\. Call fit\(frame\) first"):
        Preprocessor().transform(frame)
    with pytest.raises(ArgumentError, match="must be a pandas DataFrame, got ndarray"):
        Preprocessor().fit(frame.to_numpy())
    with pytest.raises(ArgumentError, match="max_levels must be a whole number of at least 2, got 1"):
        Preprocessor(max_levels=1)
    with pytest.raises(TableError, match="has 1 row, and one sample is not enough"):
        Preprocessor().fit(frame[:1])
    with pytest.raises(TableError, match="has no rows"):
        Preprocessor().fit(frame[:0])
    with pytest.raises(TableError, match="more than one column named 'b'"):
        Preprocessor().fit(frame).transform(pd.DataFrame([[1, 2, 3]], columns=["a", "b", "b"]))


def test_failed_fit_keeps_what_was_learned() -> None:
    fitted = Preprocessor().fit(pd.DataFrame({"a": [1, 2]}))
    with pytest.raises(TableError, match=r"'b', row 1 .*infinity"):
        fitted.fit(pd.DataFrame({"b": [1, np.inf]}))
    assert fitted.transform(pd.DataFrame({"a": [1, 2]}))[:, 0] == pytest.approx(scaled([1, 2]))


def damage(data: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "no dict", [1]
    yield "empty", {}
    yield "later format", {**data, "format": 4}
    for key in sorted(set(data) - {"format"}):
        yield f"without {key}", {name: value for name, value in data.items() if name != key}
    yield "numbers lost", {**data, "numbers": None}
    yield "categories lost", {**data, "categories": None}
    yield "dates lost", {**data, "dates": {}}
    yield "a column lost", {**data, "columns": data["columns"][1:]}
    yield "no columns", {**data, "columns": []}
    yield "strange column", {**data, "columns": [{"title": "a"}]}
    yield "words for numbers", {**data, "numbers": {**data["numbers"], "medians": ["a"]}}
    yield "medians cut", {**data, "numbers": {**data["numbers"], "medians": data["numbers"]["medians"][:1]}}
    yield "scales cut", {**data, "numbers": {**data["numbers"], "scales": []}}
    yield "no scale", {**data, "numbers": {**data["numbers"], "scales": [0.0] * len(data["numbers"]["scales"])}}
    yield "edges cut", {**data, "edges": {**data["edges"], "lows": data["edges"]["lows"][1:]}}
    yield "a bin without width", {**data, "edges": {**data["edges"], "widths": [0.0] * len(data["edges"]["widths"])}}
    yield "codes cut", {**data, "codes": {"columns": [0], "values": []}}
    yield "a bin of no column", {**data, "edges": {**data["edges"], "columns": [99] * len(data["edges"]["columns"])}}


DAMAGED = dict(damage(Preprocessor(bins=4).fit(TABLES["everything"]).to_json()))


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_json_is_refused(case: str) -> None:
    with pytest.raises(CheckpointError, match=r"damaged or was edited|this version of awn reads formats 1 to 3"):
        Preprocessor.from_json(DAMAGED[case])


def test_settings_of_scikit_learn_do_not_matter() -> None:
    frame = TABLES["everything"]
    expected = Preprocessor().fit(frame).transform(frame)
    with sklearn.config_context(transform_output="pandas"):
        assert np.array_equal(Preprocessor().fit(frame).transform(frame), expected)


def test_numbers_are_the_same_in_every_kind_of_column() -> None:
    """Columns of NumPy's numbers are encoded many at once, those of pandas' own types one by one."""
    rng = np.random.default_rng(0)
    spread = 10.0 ** rng.integers(-3, 4, size=60)
    values = (rng.normal(size=(ROWS, 60)) * spread).round(2)
    values[:, ::3][rng.random((ROWS, 20)) < 0.2] = np.nan
    values[:, 5], values[:, 7], values[:, 8] = 4.0, np.nan, np.arange(ROWS)
    frame = pd.DataFrame(values, columns=[f"c{i}" for i in range(60)]).assign(when=TABLES["dates"]["when"])
    single = frame.astype({name: "Float64" for name in frame.columns if name != "when"})
    at_once, one_by_one = (Preprocessor().fit(table) for table in (frame, single))
    assert at_once.to_json() == one_by_one.to_json()
    assert np.array_equal(at_once.transform(frame), one_by_one.transform(single))
    assert {column.kind for column in at_once.columns} == {"number", "constant", "empty", "date", "id"}
    frame.loc[17, "c9"] = np.inf
    with pytest.raises(TableError, match=r"Column 'c9', row 17 .*the value is infinity"):
        at_once.transform(frame)
    with pytest.raises(TableError, match=r"Column 'c9', row 17 .*the value is infinity"):
        Preprocessor().fit(frame)


@pytest.mark.parametrize(
    "column",
    [
        pytest.param([1.0, 2.0], id="two values"),
        pytest.param([3.0, 3.0, 3.0], id="one value"),
        pytest.param([3.0, np.nan, 3.0], id="one value and a gap"),
        pytest.param([5.0, 0.0, 0.0, 0.0, np.nan, 2.0, 0.0], id="mostly the median"),
        pytest.param([0.0, 0.0, 0.0, 0.0, 7.0], id="one value beside the median"),
        pytest.param([*range(10), 999999999.0], id="a mistake"),
        pytest.param([np.nan, 4.0, -1.5, 8.0, 2.5, np.nan, 1e6], id="gaps"),
    ],
)
def test_scaling_of_one_column_by_its_definition(column: list[float]) -> None:
    values = np.array(column)
    scaling = Scaling.fit(np.column_stack([values, np.zeros_like(values), values]), marked=[0, 1, 2])
    for place in (0, 2):
        median, scale = median_and_scale(values)
        assert scaling.medians[place] == median
        assert scaling.scales[place] == pytest.approx(scale, rel=1e-12)
    assert scaling.marks == ((0, 2) if np.isnan(values).any() else ())


# Bins


@pytest.mark.parametrize(
    ("column", "bins", "edges"),
    [
        pytest.param([1.0, 2.0, 2.0], 4, [], id="two values"),
        pytest.param([3.0, 1.0, 2.0, 2.0], 4, [1, 2, 3], id="a bin between all distinct values"),
        pytest.param(np.arange(101.0), 4, [0, 25, 50, 75, 100], id="quartiles"),
        pytest.param([0.0] * 900 + [*range(1, 101)], 2, None, id="mostly one value"),
        pytest.param([*range(50), np.nan, np.nan], 0, [], id="no bins"),
    ],
)
def test_edges_of_the_bins_of_one_column(column: Any, bins: int, edges: list[float] | None) -> None:
    values = np.asarray(column, dtype=float)
    found = Bins.fit(values[:, None], bins)
    if edges is None:  # nine tenths are 0, but the edges still divide the other values
        assert len(found.columns) == bins
        assert 0 < found.lows[-1] < 100
    else:
        assert found.lows == pytest.approx(edges[:-1])
        assert found.lows + found.widths == pytest.approx(edges[1:])


def test_bins_sum_to_a_monotone_function_that_meets_the_column_at_the_edges() -> None:
    values = np.sort(np.random.default_rng(0).lognormal(size=300))[:, None]
    bins = Bins.fit(values, 8)
    rebuilt = bins.lows[0] + bins.transform(values) @ bins.widths
    assert rebuilt == pytest.approx(values[:, 0], rel=1e-5)
    assert bins.transform(np.array([[-9.0], [1e9]])).tolist() == [[0.0] * 8, [1.0] * 8]


def test_many_columns_and_many_rows_get_fewer_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(100, 20))
    assert len(Bins.fit(values, 16).columns) == 20 * 16
    monkeypatch.setattr(bins_file, "_MOST_INPUTS", 100)
    assert len(Bins.fit(values, 16).columns) == 20 * 5
    monkeypatch.setattr(bins_file, "_MOST_NUMBERS", 8000)
    assert len(Bins.fit(values, 16).columns) == 20 * 4
    monkeypatch.setattr(bins_file, "_MOST_INPUTS", 59)
    assert len(Bins.fit(values, 16).columns) == 0


def test_a_long_table_is_scaled_in_blocks_as_if_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = TABLES["numbers with gaps"]
    expected = Preprocessor(bins=4).fit(frame)
    monkeypatch.setattr(blocks, "_VALUES", 2 * ROWS)
    one = Preprocessor(bins=4).fit(frame)
    assert one.columns == expected.columns
    np.testing.assert_allclose(one.transform(frame), expected.transform(frame), rtol=1e-6)


def test_ten_thousand_columns() -> None:
    values = np.random.default_rng(0).normal(size=(20, 10_000))
    values[3, ::2] = np.nan
    frame = pd.DataFrame(values, columns=[f"c{i}" for i in range(10_000)])
    assert through_json(Preprocessor().fit(frame)).transform(frame).shape == (20, 15_000)


def test_formatted_numbers_are_read_at_prediction_as_in_training() -> None:
    """1.200 is 1200 in a column of decimal commas, also in a table where it is the only number."""
    fitted = Preprocessor().fit(pd.DataFrame({"pay": ["1.200,50", "800", "900,25"], "n": [1, 2, 4]}))
    restored = Preprocessor.from_json(json.loads(json.dumps(fitted.to_json())))
    assert restored.text_columns == ["pay"]
    new, same = (pd.DataFrame({"pay": pay, "n": 1}) for pay in (["1.200"], [1200.0]))
    assert np.array_equal(restored.transform(new), fitted.transform(same))
    plain = Preprocessor().fit(pd.DataFrame({"pay": [1200, 800]}))
    assert plain.transform(pd.DataFrame({"pay": ["1,200"]})) == plain.transform(pd.DataFrame({"pay": [1200]}))
