"""The report in a browser: it draws, the slider moves the figures, and it fits a phone, the dark and paper."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from awn.report import ReportData, Residuals, write_comparison, write_report
from awn.report.server import RunServer
from report_cases import classified, regressed, tabled, vast

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the path")

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
MARKUP = "<b>bold</b><img src=x onerror='window.broken = true'>"


class Opened:
    """A page that is drawn, and whatever went wrong in it."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.wrong: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("requestfailed", lambda request: self.wrong.append(request.url))
        self.page.on("request", lambda request: self.requests.append(request.url[:60]))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn]", state="attached", timeout=30_000)

    def asks(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def becomes(self, expression: str) -> bool:
        """Whether an expression becomes true soon. Playwright's own way would evaluate text, which the page forbids."""
        for _ in range(100):
            if self.asks(expression):
                return True
            self.page.wait_for_timeout(100)
        return False


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("reports")
    write_report(made / "classification.html", classified())
    write_report(made / "table.html", tabled())
    write_report(made / "dense.html", dense())
    write_report(made / "vast.html", vast_with_markup())
    write_comparison(made / "comparison.html", [classified(), classified(), regressed()])
    return made


@pytest.fixture(scope="module")
def opened(browser: Any, folder: Path) -> Opened:
    return Opened(browser, folder / "classification.html")


def dense() -> ReportData:
    """More rows than dots can show, so that their plots are heat maps."""
    actual = [number / 9 for number in range(3000)]
    return ReportData("t", "regression", "R²", residuals=Residuals(actual, [value**0.99 for value in actual]))


DRAWN = "p => p.querySelector('.scatterlayer path, .heatmaplayer image')"


def every_plot_is_drawn(opened: Opened) -> bool:
    return bool(opened.asks(f"[...document.querySelectorAll('.plot')].every({DRAWN})"))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_a_report_on_a_table_is_drawn_whole_and_breaks_no_policy(
    browser: Any, folder: Path, width: int, scheme: str, tmp_path: Path
) -> None:
    """Without scrolling: a screenshot of the full page and a print have every plot."""
    opened = Opened(browser, folder / "table.html", width, scheme)
    assert opened.asks("scrollY") == 0
    assert every_plot_is_drawn(opened)
    assert opened.asks("document.querySelectorAll('.plot').length") == 16
    assert opened.asks("document.querySelectorAll('#columns svg').length") == 4  # two bars and two histograms
    assert fits(opened)
    assert opened.wrong == [], "the policy allows all that the page needs"
    opened.page.screenshot(path=tmp_path / "table.png", full_page=True)


def test_the_first_thing_on_the_page_is_the_answer_and_then_the_curve(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder / "table.html")
    answer, curve = (opened.page.locator(place).bounding_box() for place in (".answer", "[data-figure=sizes]"))
    assert answer is not None
    assert curve is not None
    assert answer["y"] < curve["y"] < 800, "both are on the first screen"
    assert "22 units are enough" in opened.page.locator(".answer").inner_text()


def test_heat_maps_of_many_rows_break_no_policy(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder / "dense.html")
    assert every_plot_is_drawn(opened)
    assert opened.wrong == []


def test_paper_has_every_plot(browser: Any, folder: Path, tmp_path: Path) -> None:
    opened = Opened(browser, folder / "table.html")
    opened.asks(
        f"addEventListener('beforeprint', () => {{ whole = [...document.querySelectorAll('.plot')].every({DRAWN}) }})"
    )
    opened.page.pdf(path=tmp_path / "table.pdf", format="A4", print_background=True)
    assert opened.asks("whole")


def test_runs_are_listed_opened_and_compared(browser: Any, tmp_path: Path) -> None:
    for seed in (0, 1):
        data = dataclasses.replace(tabled(), settings={**tabled().settings, "seed": seed})
        store(tmp_path / f"run-{seed}", data, seed)
    with RunServer(tmp_path, port=0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            page = browser.new_page(viewport={"width": 360, "height": 800})
            wrong: list[str] = []
            page.on("console", lambda message: wrong.append(message.text))
            page.goto(server.url)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            for box in page.get_by_role("checkbox").all():
                box.check()
            page.get_by_role("button").click()
            page.wait_for_selector("html[data-drawn]", state="attached", timeout=30_000)
            assert "0.966 ± 0.000" in page.locator("#means").inner_text()
            assert page.locator("#folders").inner_text().count("run-1") == 1
            page.go_back()
            page.get_by_role("link").first.click()
            page.wait_for_selector("html[data-drawn]", state="attached", timeout=30_000)
            assert page.locator(".answer").inner_text() == tabled().answer
            assert wrong == []
        finally:
            server.shutdown()
            thread.join()


def store(folder: Path, data: ReportData, seed: int) -> None:
    """A run's folder, as far as the list of runs reads it."""
    summary = {
        "table": "spiral.csv",
        "target": "arm",
        "score_name": "accuracy",
        "scores": {"adaptive": 0.966},
        "widths": {"hidden.0": 22},
        "parameters": 198,
        "seconds": 3.2,
        "from": {"date": "2026-01-01", "seed": seed},
    }
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(data.to_json()), encoding="utf-8")


def vast_with_markup() -> ReportData:
    data = vast(layers=200, epochs=20_000, classes=60)
    return dataclasses.replace(data, title=MARKUP, score_name=MARKUP, notes=[MARKUP])


def test_it_draws_every_figure_and_asks_for_nothing(opened: Opened, tmp_path: Path) -> None:
    opened.page.screenshot(path=tmp_path / "desktop.png", full_page=True)
    assert opened.wrong == []
    assert len(opened.requests) == 1  # the file itself
    assert opened.asks("document.querySelectorAll('.plot').length") == 11
    assert every_plot_is_drawn(opened)
    assert opened.asks("document.querySelectorAll('path[d*=NaN]').length") == 0


@pytest.mark.parametrize("key", ["Home", "End", "ArrowLeft", "PageDown"])
def test_the_slider_moves_the_figures(opened: Opened, key: str) -> None:
    slider = opened.page.get_by_label("Fraction of units to keep")
    slider.press(key)
    point = sorted(classified().truncation, key=lambda each: each.keep)[int(slider.input_value())]
    keep, parameters = f"{point.keep:.0%}", f"{point.parameters:,}"
    assert opened.page.locator("[data-shows=keep]").inner_text() == keep
    assert opened.page.locator("[data-shows=parameters]").inner_text() == parameters
    assert float(opened.page.locator("[data-shows=score]").inner_text()) == pytest.approx(point.score, rel=1e-3)
    latency = opened.page.locator("[data-shows=latency]").inner_text()
    assert float(latency.removesuffix(" ms")) == pytest.approx(point.latency_ms, rel=1e-2)
    units = opened.page.locator("#units td:last-child").all_inner_texts()
    assert units == [f"{number:,}" for number in point.units.values()]
    x, y = opened.asks("(({x, y}) => [x[0], y[0]])(document.querySelector('[data-figure=tradeoff]').data.at(-1))")
    assert (x, y) == (point.parameters, pytest.approx(point.score, rel=1e-5))
    heard = slider.get_attribute("aria-valuetext")
    assert heard is not None
    assert heard.startswith(f"{keep} of the units: accuracy ")
    assert f"{parameters} parameters" in heard


def test_home_is_the_smallest_and_end_the_whole(opened: Opened) -> None:
    shown = opened.page.locator("[data-shows=keep]")
    for key, keep in (("Home", "5%"), ("End", "100%")):
        opened.page.get_by_role("slider").press(key)
        assert shown.inner_text() == keep


def test_the_dark_scheme_recolours_page_and_plots(opened: Opened, tmp_path: Path) -> None:
    words = "getComputedStyle(document.querySelector('#confusion .xtitle')).fill"
    curve = "getComputedStyle(document.querySelector('#widths .js-line')).stroke"
    light = [opened.asks(each) for each in (BACKGROUND, words, curve)]
    opened.page.emulate_media(color_scheme="dark")
    assert opened.becomes(f"{words} !== {light[1]!r}")
    dark = [opened.asks(each) for each in (BACKGROUND, words, curve)]
    opened.page.screenshot(path=tmp_path / "dark.png", full_page=True)
    assert light[2] != dark[2]
    assert brightness(dark[0]) < 60 < 200 < brightness(light[0])
    assert brightness(light[1]) < 60 < 200 < brightness(dark[1])
    assert opened.wrong == []


def test_paper_is_light_and_has_pages(opened: Opened, tmp_path: Path) -> None:
    opened.page.emulate_media(color_scheme="dark")
    opened.asks("addEventListener('beforeprint', () => { printed = document.querySelector('.xtitle').style.fill })")
    opened.page.pdf(path=tmp_path / "report.pdf", format="A4", print_background=True)
    assert len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "report.pdf").read_bytes())) >= 3
    assert brightness(opened.asks("printed")) < 60
    assert opened.asks("document.querySelectorAll('details[open], html.print').length") == 0


def brightness(colour: str) -> float:
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def fits(opened: Opened) -> bool:
    plots = "[...document.querySelectorAll('.plot')].every(p => p.getBoundingClientRect().right <= innerWidth)"
    return bool(opened.asks("document.documentElement.scrollWidth <= innerWidth") and opened.asks(plots))


@pytest.mark.parametrize("name", ["classification", "comparison"])
def test_a_phone_needs_no_scrolling_sideways(browser: Any, folder: Path, name: str, tmp_path: Path) -> None:
    opened = Opened(browser, folder / f"{name}.html", width=360)
    opened.page.screenshot(path=tmp_path / "phone.png", full_page=True)
    assert fits(opened)
    assert opened.wrong == []


def test_a_vast_run_is_usable_and_its_words_are_not_run(browser: Any, folder: Path, tmp_path: Path) -> None:
    opened = Opened(browser, folder / "vast.html", width=360)
    opened.page.screenshot(path=tmp_path / "vast.png", full_page=True)
    assert fits(opened)
    opened.page.locator("#importance select").select_option(index=150)
    assert opened.asks("document.querySelector('#importance .plot').dataset.figure") == "importance-150"
    opened.page.get_by_role("slider").press("Home")
    assert opened.page.locator("#units td:last-child").nth(150).inner_text() == "10"  # 5 % of 210, to the even

    assert opened.asks("window.broken") is None
    assert opened.asks("document.images.length") == 0
    assert opened.page.locator("h1").inner_text() == MARKUP
    assert MARKUP in opened.page.locator("#notes").inner_text()
    assert opened.asks("document.querySelector('#learning .ytitle').textContent") == MARKUP
    assert opened.wrong == []
