"""The report's file: what is in it, in which order, and that nothing in the data can break out of its place."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import json
import math
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from plotly.offline import get_plotlyjs

from awn.errors import ArgumentError, MissingExtraError
from awn.report import Confusion, LayerCurve, ReportData, Residuals, TruncationPoint, write_comparison, write_report
from report_cases import EPOCHS, KEEPS, classified, regressed, tabled, vast

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp; $title ${x} %{x}"
FACTS = ["settings", "environment"]
NETWORK = ["truncation", "importance", "activations"]


def in_order(errors: str) -> list[str]:
    """The sections of a run on the spiral."""
    return ["notes", "learning", "widths", errors, *NETWORK, *FACTS]


class Page(HTMLParser):
    """A page taken apart: its elements, its text by element, and the content for its program."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: dict[str, str] = {}
        self._script = self._style = False
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.content = json.loads(self.scripts["content"])
        self.figures: dict[str, Any] = self.content["figures"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._script, self._style = tag == "script", tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._script = self._style = False

    def handle_data(self, data: str) -> None:
        if self._script:
            key = self.elements[-1][1].get("id") or "program"
            self.scripts[key] = self.scripts.get(key, "") + data
        elif not self._style:
            self.words.append(data.strip())

    def ids(self, tag: str) -> list[str | None]:
        return [attributes["id"] for name, attributes in self.elements if name == tag]

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def page_of(data: ReportData, folder: Path) -> Page:
    write_report(folder / "report.html", data)
    return Page(folder / "report.html")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(classified(), tmp_path_factory.mktemp("report"))


def test_sections_stand_in_their_order(page: Page, tmp_path: Path) -> None:
    assert page.ids("section") == in_order("confusion")
    assert page_of(regressed(), tmp_path).ids("section") == in_order("residuals")


def test_a_report_on_a_table_answers_first(tmp_path: Path) -> None:
    """What to act on comes before the network: sizes, models, notes, columns, training, calibration, hard rows."""
    found = page_of(tabled(), tmp_path)
    first = ["sizes", "leaders", "notes", "columns", "learning", "widths", "calibration", "confusion", "hard-rows"]
    assert found.ids("section") == [*first, *NETWORK, *FACTS]
    headings = [name for name, attributes in found.elements if name == "h1" or attributes.get("class") == "answer"]
    assert headings == ["h1", "p"]
    assert tabled().answer in found.words


def test_score_against_size_shows_the_kept_point_and_the_others_with_intervals(tmp_path: Path) -> None:
    curve = tabled().size_curve
    assert curve is not None
    found = page_of(tabled(), tmp_path).figures["sizes"]
    named = {trace["name"]: trace for trace in found["data"] if trace.get("showlegend") is not False}
    assert named["cut to a size"]["x"] == [point.units for point in curve.points]
    assert named["cut to a size"]["y"] == pytest.approx([point.score for point in curve.points])
    assert named["kept"]["x"] == [curve.points[curve.chosen].units]
    assert named["kept"]["error_y"]["arrayminus"] == pytest.approx([0.03])
    assert set(named["gradient boosting"]["y"]) == {0.95}  # it has no units: a line across
    (mark,) = found["layout"]["shapes"]
    assert mark["x0"] == curve.points[curve.chosen].units


def test_names_of_columns_and_models_cannot_break_out(tmp_path: Path) -> None:
    data = tabled(NASTY)
    found = page_of(data, tmp_path)
    assert NASTY in found.words
    assert found.count("img") == 0
    assert {"content", "plotly", "program"} == set(found.scripts)


def test_the_policy_allows_the_pages_own_programs_and_style_by_their_hashes(page: Page) -> None:
    policy = next(str(a["content"]) for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    style = re.search("<style>(.*?)</style>", page.source, re.DOTALL)
    assert style is not None
    plotly = gzip.decompress(base64.b64decode(page.scripts["plotly"])).decode()
    wanted = {"script-src": [page.scripts["program"], plotly], "style-src": [style[1], ""]}
    for directive, contents in wanted.items():
        hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in contents]
        assert allowed[directive].split() == [f"'sha256-{one}'" for one in hashes]
    assert "'unsafe-inline'" not in policy
    assert allowed["default-src"] == "'none'"


def test_many_rows_are_all_counted(tmp_path: Path) -> None:
    actual = [number / 7 for number in range(5000)]
    residuals = Residuals(actual, [value + (place % 5) for place, value in enumerate(actual)])
    found = page_of(ReportData("t", "regression", "R²", residuals=residuals), tmp_path)
    for key in ("predicted", "residuals"):
        cells = found.figures[key]["data"][0]["text"]
        assert sum(int(cell.replace(",", "")) for row in cells for cell in row) == 5000
    assert any("All 5,000 rows" in words for words in found.words)


def test_every_figure_has_a_place_that_says_what_it_shows(page: Page) -> None:
    places = [attributes for _, attributes in page.elements if "data-figure" in attributes]
    assert [place["data-figure"] for place in places] == list(page.figures)
    assert all(place["role"] == "img" and place["aria-label"] for place in places)


def test_nothing_is_loaded_from_elsewhere(page: Page, tmp_path: Path) -> None:
    write_comparison(tmp_path / "comparison.html", [classified(), regressed()])
    for each in (page, Page(tmp_path / "comparison.html")):
        links = [
            value for _, attributes in each.elements for name, value in attributes.items() if name in ("src", "href")
        ]
        assert links
        assert all(value is not None and value.startswith(("#", "data:")) for value in links)
        assert "url(" not in each.source.split("</style>")[0]
        assert "@import" not in each.source
        policy = [a["content"] for t, a in each.elements if a.get("http-equiv") == "Content-Security-Policy"]
        assert policy[0] is not None
        assert policy[0].startswith("default-src 'none'")


def test_plotly_is_inside_once_and_packed(page: Page) -> None:
    assert gzip.decompress(base64.b64decode(page.scripts["plotly"])).decode() == get_plotlyjs()
    assert len(page.source) < 2.5e6


def test_headline_figures_are_shown(page: Page) -> None:
    assert classified().title in page.words
    for label, _ in classified().headline:
        assert label in page.words
    assert f"{dict(classified().headline)['parameters']:,}" in page.words


def nasty() -> ReportData:
    data = classified()
    assert data.confusion is not None
    return dataclasses.replace(
        data,
        title=NASTY,
        score_name=NASTY,
        headline=[(NASTY, NASTY)],
        history=[{**row, "widths": {NASTY: 3}} for row in data.history],
        layers=[dataclasses.replace(data.layers[0], name=NASTY)],
        truncation=[dataclasses.replace(point, units={NASTY: 3}) for point in data.truncation],
        activations={NASTY: data.activations["hidden.0"]},
        confusion=Confusion([NASTY, "other"], data.confusion.counts),
        settings={NASTY: NASTY},
        environment={NASTY: NASTY},
        notes=[NASTY],
    )


def test_data_cannot_break_out_of_its_place(page: Page, tmp_path: Path) -> None:
    found = page_of(nasty(), tmp_path)
    assert found.count("script") == page.count("script")
    assert found.count("img") == 0
    assert "<" not in found.scripts["content"]
    assert found.words.count(NASTY) >= 10
    write_comparison(tmp_path / "comparison.html", [nasty(), nasty()])
    assert Page(tmp_path / "comparison.html").count("img") == 0


def test_plotly_gets_words_in_which_it_reads_no_tags(tmp_path: Path) -> None:
    found = page_of(nasty(), tmp_path)
    words = re.findall(r'"([^"]*alert[^"]*)"', json.dumps(found.figures).replace('\\"', "'"))
    assert len(words) >= 5
    assert all("<" not in each for each in words)
    assert "&lt;script&gt;" in found.figures["widths"]["data"][0]["name"]


@pytest.mark.parametrize("run", [classified, regressed])
def test_json_gives_the_same_data_again(run: Callable[[], ReportData]) -> None:
    assert ReportData.from_json(json.loads(json.dumps(run().to_json(), allow_nan=False))) == run()


def test_json_keeps_what_is_no_number_and_names_that_look_like_one() -> None:
    data = ReportData(
        "nan",
        "classification",
        "inf",
        history=[{"epoch": 1, "total": math.inf, "data": -math.inf, "score": math.nan, "widths": {"nan": 3}}],
        layers=[LayerCurve("nan", [1.0, math.nan], 1, 0.9, math.inf)],
        confusion=Confusion(["nan", "inf"], [[1, 2], [3, 4]]),
        settings={"device": Path("a") / "b"},
    )
    again = ReportData.from_json(json.loads(json.dumps(data.to_json(), allow_nan=False)))
    assert again.confusion == data.confusion
    assert (again.title, again.score_name, again.layers[0].name) == ("nan", "inf", "nan")
    row = again.history[0]
    assert (row["total"], row["data"], row["widths"]) == (math.inf, -math.inf, {"nan": 3})
    assert math.isnan(row["score"])
    assert math.isnan(again.layers[0].importance[1])
    assert again.settings == {"device": str(Path("a") / "b")}


MISSING: dict[str, tuple[dict[str, Any], list[str]]] = {
    "history": ({"history": []}, ["widths", "learning"]),
    "layers": ({"layers": []}, ["importance"]),
    "truncation": ({"truncation": []}, ["truncation"]),
    "activations": ({"activations": {}}, ["activations"]),
    "confusion": ({"confusion": None}, ["confusion"]),
    "facts": ({"settings": {}, "environment": {}, "notes": []}, [*FACTS, "notes"]),
}


@pytest.mark.parametrize("case", MISSING)
def test_what_is_missing_leaves_its_section_out(case: str, tmp_path: Path) -> None:
    parts, gone = MISSING[case]
    found = page_of(dataclasses.replace(classified(), **parts), tmp_path)
    assert found.ids("section") == [key for key in in_order("confusion") if key not in gone]


def test_a_report_of_nothing_is_a_page(tmp_path: Path) -> None:
    found = page_of(ReportData("empty", "regression", "R²"), tmp_path)
    assert found.ids("section") == []
    assert found.figures == {}


@pytest.mark.parametrize(
    ("without", "names"),
    [(["score"], ["training"]), (["train_score"], ["validation"]), (["score", "train_score"], None)],
)
def test_without_a_score_there_is_no_curve_of_it(without: list[str], names: list[str] | None, tmp_path: Path) -> None:
    history = [{**row, **dict.fromkeys(without)} for row in classified().history]
    figures = page_of(dataclasses.replace(classified(), history=history), tmp_path).figures
    assert ([trace["name"] for trace in figures["score"]["data"]] if "score" in figures else None) == names


def test_numbers_that_are_not_finite_are_gaps_and_are_counted(tmp_path: Path) -> None:
    history = [dict(row) for row in classified().history]
    history[3]["total"], history[4]["score"], history[5]["score"] = math.nan, math.inf, None
    found = page_of(dataclasses.replace(classified(), history=history), tmp_path)
    total = next(trace for trace in found.figures["loss"]["data"] if trace["name"] == "total")
    score = next(trace for trace in found.figures["score"]["data"] if trace["name"] == "validation")
    assert [place for place, value in enumerate(total["y"]) if value is None] == [3]
    assert [place for place, value in enumerate(score["y"]) if value is None] == [4, 5]
    assert any("not finite: in 2 of the epochs, first in epoch 4." in words for words in found.words)


def test_the_last_best_epoch_is_marked(page: Page) -> None:
    best = max(row["epoch"] for row in classified().history if row["best"])
    for key in ("widths", "score"):
        assert page.figures[key]["layout"]["shapes"][0]["x0"] == best
    assert any(f"the best epoch, {best}." in words for words in page.words)


def test_curves_hold_the_data(page: Page) -> None:
    data = classified()
    assert [trace["name"] for trace in page.figures["widths"]["data"]] == [layer.name for layer in data.layers]
    for trace in page.figures["widths"]["data"]:
        assert trace["x"] == list(range(1, EPOCHS + 1))
        assert trace["y"] == [row["widths"][trace["name"]] for row in data.history]
    for i, layer in enumerate(data.layers):
        figure = page.figures[f"importance-{i}"]
        assert figure["layout"]["shapes"][0]["x0"] == layer.units - 0.5
        assert [len(trace["x"]) for trace in figure["data"]] == [layer.units, len(layer.importance) - layer.units]
    assert page.figures["activations-0"]["data"][2]["y"] == pytest.approx(
        data.activations["hidden.0"]["mean"], rel=1e-5
    )


def test_the_slider_has_a_place_for_every_truncation(page: Page) -> None:
    steps = page.content["steps"]
    assert [step["keep"] for step in steps] == [f"{keep:.0%}" for keep in sorted(KEEPS)]
    assert [step["x"] for step in steps] == [point.parameters for point in reversed(classified().truncation)]
    assert [share for _, share in steps[-1]["units"]] == [1, 1, 1]


def test_classes_have_recall_and_precision(tmp_path: Path) -> None:
    confusion = Confusion(["a", "b", "never"], [[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    found = page_of(ReportData("t", "classification", "accuracy", confusion=confusion), tmp_path)
    start = found.words.index("precision") + 1
    cells = [word for word in found.words[start:] if word][:12]
    assert cells == ["a", "10", "0.8", "0.8889", "b", "10", "0.9", "0.8182", "never", "0", "–", "–"]


def test_residuals_leave_out_what_is_not_finite(tmp_path: Path) -> None:
    residuals = Residuals([1.0, 2.0, math.nan], [1.5, 1.0, 3.0])
    found = page_of(ReportData("t", "regression", "R²", residuals=residuals), tmp_path)
    assert found.figures["residuals"]["data"][0]["y"] == [-0.5, 1.0]
    assert any("2 of 3 rows have finite values" in words for words in found.words)


def test_words_that_utf8_cannot_hold_are_replaced(tmp_path: Path) -> None:
    found = page_of(ReportData("caf\udce9", "regression", "R²"), tmp_path)
    assert "caf?" in found.words


def test_a_vast_run_stays_small(tmp_path: Path) -> None:
    data = vast(layers=200, epochs=20_000, classes=60)
    found = page_of(data, tmp_path)
    assert len(found.source) < 6e6
    for key in ("widths", "score", "loss"):
        assert all(len(trace["x"]) <= 1002 for trace in found.figures[key]["data"])
    assert len(found.figures["widths"]["data"]) < 12
    assert found.count("select") == 2
    assert found.count("option") == 400
    assert sum("data-figure" in attributes for _, attributes in found.elements) == 7
    best = max(row["epoch"] for row in data.history if row["best"])
    assert best in found.figures["score"]["data"][0]["x"]


def test_a_comparison_has_a_row_and_a_curve_for_every_run(tmp_path: Path) -> None:
    other = dataclasses.replace(classified(), title="Another", settings={**classified().settings, "lr": 0.5})
    runs = [classified(), classified(), other, regressed()]
    write_comparison(tmp_path / "comparison.html", runs)
    found = Page(tmp_path / "comparison.html")
    assert found.ids("section") == ["results", "score", "units-over-time", "tradeoff", "differences", "notes"]
    accuracies = ["Arms of a spiral (1)", "Arms of a spiral (2)", "Another"]
    assert [trace["name"] for trace in found.figures["score-0"]["data"]] == accuracies
    assert [trace["name"] for trace in found.figures["score-1"]["data"]] == [regressed().title]
    assert len(found.figures["units"]["data"]) == 4
    colours = [trace["line"]["color"] for trace in found.figures["units"]["data"]]
    assert len(set(colours)) == 4
    assert colours[3] == found.figures["score-1"]["data"][0]["line"]["color"]
    assert {"lr", "0.01", "0.5"} <= set(found.words)
    assert "batch_size" not in found.words  # the same in all runs


WRONG: dict[str, tuple[Any, str]] = {
    "task": (lambda: ReportData("t", "ranking", "x"), "'classification' or 'regression', got 'ranking'"),  # type: ignore[arg-type]
    "confusion": (lambda: Confusion(["a", "b"], [[1, 2]]), "each of the 2 labels"),
    "residuals": (lambda: Residuals([1.0], []), "there are 1 actual values but 0 predicted"),
    "keep": (lambda: TruncationPoint(0.0, {}, 1, 1.0, 1.0), "above 0 and at most 1, got 0.0"),
    "activations": (lambda: ReportData("t", "regression", "x", activations={"a": {"low": [1.0]}}), "layer 'a' need"),
    "epoch": (lambda: ReportData("t", "regression", "x", history=[{"total": 1.0}]), "needs an epoch"),
    "layers": (
        lambda: ReportData(
            "t", "regression", "x", truncation=[TruncationPoint(k, {str(k): 1}, 1, 1.0, 1.0) for k in (0.5, 1.0)]
        ),
        "the same layers",
    ),
    "no run": (lambda: write_comparison("never.html", []), "give at least one"),
    "json without title": (lambda: ReportData.from_json({"task": "regression"}), "not the data of a report"),
    "json no object": (lambda: ReportData.from_json(["title"]), "not the data of a report"),  # type: ignore[arg-type]
    "json text for a number": (
        lambda: ReportData.from_json({**classified().to_json(), "history": [{"epoch": "first"}]}),
        "Make it from the run again",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_data_that_cannot_be_used_is_refused(case: str) -> None:
    make, says = WRONG[case]
    with pytest.raises(ArgumentError, match=re.escape(says)):
        make()


def test_without_plotly_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(MissingExtraError, match=re.escape('pip install "awn[tabular]"')):
        write_report(tmp_path / "report.html", classified())
    assert not list(tmp_path.iterdir())
