"""The benchmarks: they compare like with like, end in seconds at their quick size, and write what they found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import awn
from awn.basics.text_table import as_table
from awn.cli.app import app
from awn.errors import ArgumentError
from awn_paper.bench import answer, memory, resize
from awn_paper.bench.pairs import PAIRS, QUICK_PAIRS, NetworkPair, adam, adaptive_step, fixed_step
from awn_paper.bench.record import BENCHMARKS, markdown, record
from awn_paper.bench.searches import Task, five_widths, optuna_search, sklearn_search
from cli_cases import Run, one_sentence

every_pair = pytest.mark.parametrize("pair", [*PAIRS, *QUICK_PAIRS], ids=lambda pair: pair.name)


@every_pair
def test_both_networks_of_a_pair_are_the_same_but_for_the_learned_widths(pair: NetworkPair) -> None:
    fixed, adaptive = pair.fixed(), pair.adaptive()
    assert awn.widths(adaptive)
    assert awn.advanced.count_parameters(adaptive) == sum(p.numel() for p in fixed.parameters())


@every_pair
def test_no_width_takes_up_more_than_a_tenth_above_its_units(pair: NetworkPair) -> None:
    """A capacity far above the width would be measured in place of the width."""
    for group in awn.advanced.find_groups(pair.adaptive()):
        assert group.width.capacity <= max(32, 1.11 * group.width.units)


@pytest.mark.parametrize("pair", QUICK_PAIRS, ids=lambda pair: pair.name)
def test_a_changing_step_changes_every_width_and_a_steady_one_none(pair: NetworkPair) -> None:
    x, y = pair.batch()
    for changing in (False, True):
        model = pair.adaptive()
        start = awn.widths(model)
        step = adaptive_step(model, adam(model), x, y, changing=changing)
        seen = []
        for _ in range(3):
            step()
            seen.append(awn.widths(model))
        less = {name: units - 1 for name, units in start.items()}
        assert seen == ([less, start, less] if changing else [start] * 3)


def test_a_step_that_does_not_do_what_is_measured_is_not_measured() -> None:
    pair = QUICK_PAIRS[0]
    model, (x, y) = pair.adaptive(), pair.batch()
    step = adaptive_step(model, adam(model), x, y)
    awn.advanced.find_groups(model)[0].width.move_to_(5)
    with pytest.raises(AssertionError, match="widths"):
        step()


def test_the_peak_of_a_step_is_at_least_its_weights_gradients_and_moments() -> None:
    pair = PAIRS[2]
    x, y = pair.batch()
    model = pair.fixed()
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    peak = memory._peak(model, x, y, fixed_step)
    assert 4 * weights < peak < 5 * weights


def test_a_reallocation_holds_the_old_and_the_new_at_once() -> None:
    assert 2 < resize._peak(1024) < 2.2  # 1088 units after 1024


@pytest.mark.parametrize("name", ["step", "resize", "memory"])
def test_a_quick_benchmark_writes_its_rows_and_where_they_come_from(name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", name, "--quick", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / f"{name}.json").read_text())
    assert content["from"]["quick"]
    assert {"commit", "date", "cores", "torch", "machine"} <= content["from"].keys()
    assert len(content["rows"]) >= 2
    assert json.loads(result.stdout.splitlines()[0])[name] == content["rows"]
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.json"]


def test_the_benchmarks_after_training_and_to_the_answer_run(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("AWN_DATA", raising=False)
    monkeypatch.setattr("awn_paper.bench.searches.WIDTHS", (2, 3))
    monkeypatch.setattr("awn_paper.bench.searches.TRIALS", 2)
    found = record(tmp_path, ["answer", "after"], quick=True)
    assert {row["runtime"] for row in found["after"]} == {"torch", "onnxruntime"}
    measured = [row for row in found["answer"] if "score" in row]
    assert [row["method"] for row in measured] == list(answer.METHODS)
    assert all(0 <= row["score"] <= 1 for row in measured)
    own, *searches = measured
    assert own["adaptive / this"] == 1
    medians = {row["method"]: row["adaptive / this"] for row in found["answer"] if row["data"] == "median"}
    assert medians == {row["method"]: row["adaptive / this"] for row in searches}, "there is one data set"
    shown = markdown(tmp_path)
    assert shown.index("To the answer") < shown.index("Latency after training")


def test_tables_that_are_not_at_hand_are_said_to_be_left_out(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("AWN_DATA", str(tmp_path))
    monkeypatch.setattr("awn_paper.bench.answer.METHODS", {})
    left_out = {row["data"] for row in answer.run() if row["method"].startswith("not measured: AWN_DATA")}
    assert left_out == answer.DATA.keys() - {"SpiralHard"}


@pytest.mark.parametrize("classifies", [True, False])
@pytest.mark.parametrize("search", [five_widths, optuna_search, sklearn_search])
def test_a_search_finds_a_network_by_the_training_rows(search: Any, classifies: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr("awn_paper.bench.searches.WIDTHS", (8, 16))
    monkeypatch.setattr("awn_paper.bench.searches.TRIALS", 4)
    x = np.random.default_rng(0).normal(size=(3000, 2))
    frame, target = pd.DataFrame(x, columns=["a", "b"]), pd.Series(x[:, 0] + x[:, 1])
    rows = (frame, target > 0 if classifies else target)
    parts = [tuple(part[place] for part in rows) for place in (slice(2400), slice(2400, None))]
    found = search(Task(*parts, classifies, layers=1, epochs=5), seed=0)
    assert found.score > 0.9
    assert 8 <= found.units <= 16


def test_quick_results_do_not_replace_measured_ones(run: Run) -> None:
    for words in ([], ["--out", "results/bench"]):
        refused = run("bench", "memory", "--quick", *words)
        assert "--quick results must not replace measured ones" in one_sentence(refused)


def test_an_unknown_benchmark_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"no benchmark 'speed'\. There are: step, resize, answer, after, memory"):
        record(tmp_path, ["speed"])


def test_there_must_be_results_to_show(run: Run, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert f"no results of `awn bench` in {folder}" in one_sentence(run("bench", "--show", "--out", folder))
    assert not list(tmp_path.iterdir())


def test_the_document_shows_the_numbers_of_the_results() -> None:
    root = Path(__file__).parents[2]
    document = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    for name in BENCHMARKS:
        rows = json.loads((root / "results" / "bench" / f"{name}.json").read_text(encoding="utf-8"))["rows"]
        assert len(rows) >= 2
        for row in rows:  # each in a table with the columns that it has
            line = " | ".join(as_table([row])[1][0])
            assert line in document, f"{name}: {line}"


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
