"""`awn paper`: list, run and report, as typed."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from awn.cli.app import main
from awn.files.lock import LOCK, folder_lock
from awn.runs.workers import Workers, local_workers
from awn_paper.experiments import EXPERIMENTS
from paper_cases import tiny

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in this process, in a folder of its own, with tiny experiments."""
    monkeypatch.chdir(tmp_path)
    for name, (experiment, show) in EXPERIMENTS.items():
        monkeypatch.setitem(EXPERIMENTS, name, (replace(experiment, small=tiny(experiment.small)), show))

    def call(*words: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["awn", "paper", *map(str, words)])
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code or 0
        return (code, *capsys.readouterr())

    return call


def test_list_names_every_experiment(run):
    code, out, _ = run("list", "--json")
    assert code == 0
    assert list(json.loads(out)) == list(EXPERIMENTS)
    assert len(EXPERIMENTS) == 20
    assert all(name in run("list")[1] for name in EXPERIMENTS)


@pytest.mark.parametrize("name", ["truncate", "search", "retrain"])
def test_list_counts_the_runs_that_are_needed_and_there(run, name, monkeypatch):
    """A row of one kind of case each: one after the other, a search, and a width that others learned."""
    experiment, show = EXPERIMENTS[name]
    cases = tuple(case for case in experiment.small.cases if case.settings.dataset != "REDDIT-B")  # needs files
    here = replace(experiment, small=replace(experiment.small, cases=cases))
    monkeypatch.setitem(EXPERIMENTS, name, (here, show))
    before = json.loads(run("list", "--json", "--root", "found")[1])[name]
    assert before["there"] == 0 < before["runs"]
    made = json.loads(run("run", name, "--root", "found", "--json", "--quiet")[1])["runs"]
    after = json.loads(run("list", "--json", "--root", "found")[1])[name]
    assert (after["runs"], after["there"]) == (made, made)
    assert before["runs"] == pytest.approx(made, abs=2), "which widths a search tries depends on what it finds"
    assert f"{made} │" in run("list", "--root", "found")[1]
    next(Path("found").rglob("runs/**/*.json")).unlink()
    assert json.loads(run("list", "--json", "--root", "found")[1])[name]["there"] < made


def test_list_does_without_the_extra_of_a_search(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)  # not installed
    code, out, _ = run("list", "--json")
    assert code == 0
    runs = {name: facts["runs"] for name, facts in json.loads(out).items()}
    assert [name for name, number in runs.items() if number is None] == ["search"]
    assert "None" not in run("list")[1]


def test_run_and_report(run, tmp_path):
    code, out, err = run("run", "table1", "--only", "doublemoon", "--seeds", 2, "--json")
    assert code == 0, err
    assert json.loads(out) == {"experiment": "table1", "profile": "small", "cases": 2, "runs": 2 * (2 + 2)}
    assert "DoubleMoon, AWN: done" in err
    found = json.loads((tmp_path / "results/paper/table1/small/doublemoon-awn.json").read_text())
    assert found["details"].endswith("Final runs here: 2.")
    assert not any((tmp_path / "runs/paper").iterdir())  # nothing is left to resume
    code, out, _ = run("run", "table1", "--only", "DoubleMoon", "--seeds", 2, "--json", "--quiet", "--resume")
    assert json.loads(out)["runs"] == 0
    code, _, err = run("report", "--png")
    assert code == 0, err
    assert "## Table 1" in (tmp_path / "docs/paper.md").read_text()
    assert (tmp_path / "results/paper/report.html").is_file()


def test_run_all_runs_one_experiment_after_the_other(run, tmp_path, monkeypatch):
    few = ("start", "batch")
    monkeypatch.setattr("awn_paper.experiments.EXPERIMENTS", {name: EXPERIMENTS[name] for name in few})
    code, out, err = run("run", "all", "--json")
    assert code == 0, err
    found = {name: list((tmp_path / "results/paper" / name / "small").iterdir()) for name in few}
    assert json.loads(out)["cases"] == sum(map(len, found.values()))
    assert all(found.values())


def test_two_processes_do_not_write_the_same_files(run, tmp_path):
    """The runs of difficulty are those of table1; other data sets may be run meanwhile."""
    with folder_lock(tmp_path / "results/paper/table1/runs/doublemoon"):
        for name in ("table1", "difficulty"):
            code, _, err = run("run", name, "--only", "DoubleMoon", "--seeds", 1)
            assert code == 2
            assert "Another process is writing to" in err
            assert not (tmp_path / "results/paper" / name / "small").exists()
        assert run("run", "table1", "--only", "Spiral", "--seeds", 1)[0] == 0
    assert run("run", "table1", "--only", "DoubleMoon", "--seeds", 1)[0] == 0
    assert not list((tmp_path / "results").rglob(LOCK))


def test_run_gives_its_runs_to_ray(run, tmp_path, monkeypatch):
    """What Ray itself makes of them is tested in test_protocol.py, and for the command `awn fit` in test_many.py."""
    addresses = []

    @contextlib.contextmanager
    def cluster(address: str) -> Iterator[Workers]:
        addresses.append(address)
        with local_workers(1) as here:
            yield here

    monkeypatch.setattr("awn.runs.workers.ray_workers", cluster)
    code, out, err = run("run", "table1", "--only", "doublemoon", "--seeds", 1, "--ray", "local", "--json")
    assert code == 0, err
    assert addresses == ["local"]
    assert json.loads(out)["runs"] == 2 * (2 + 1)
    assert len(list((tmp_path / "results/paper/table1/runs/doublemoon").iterdir())) == 2 * (2 + 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "table2"], "no experiment is called 'table2'. There are: table1, retrain"),
        (["run", "table1", "--only", "ImageNet"], "no case has the data set 'ImageNet'. There are: DoubleMoon"),
        (["run", "all", "--only", "Spiral"], "--only and --case choose among the cases of one experiment"),
        (["run", "table1", "--case", "Wide*"], "no case has a label that matches 'Wide*'. There are: 'AWN', 'Fixed'."),
        (["run", "start", "--profile", "long"], "start has no long profile"),
        (["run", "table1", "--profile", "large"], "large"),
        (["run", "table1", "--seeds", "0"], "greater than or equal to 1"),
        (["run", "table1", "--ray", "local", "--workers", "2"], "--workers cannot be combined with --ray"),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(run, words, says):
    code, _, err = run(*words)
    assert code == 2
    assert says in err


def test_missing_data_is_said_and_ends_with_code_2(run, monkeypatch, tmp_path):
    monkeypatch.setenv("AWN_DATA", str(tmp_path / "nowhere"))
    code, _, err = run("run", "table1", "--only", "NCI1")
    assert code == 2
    assert "NCI1_node_labels.txt is missing" in err
