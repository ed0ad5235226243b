"""Many runs of `awn fit`: tables × seeds, on processes and on Ray; what befalls one is nothing to the others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_iris, load_wine

from awn.tabular.many import plan_runs
from cli_cases import Run, Said, one_sentence

QUICK = ["--target", "target", "--epochs", 2, "--no-compare", "--out", "many"]
RUNS = [(table, seed) for table in ("iris", "wine") for seed in (0, 1)]


@pytest.fixture(autouse=True)
def two_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    load_iris(as_frame=True).frame.to_csv("iris.csv", index=False)
    load_wine(as_frame=True).frame.to_csv("wine.csv", index=False)


def summary(table: str, seed: int, out: str = "many") -> Path:
    return Path(out, table, f"seed-{seed}", "summary.json")


def check_all_made(said: Said) -> dict[str, Any]:
    """All four runs are there, told of, and as `awn fit` makes them one by one."""
    assert said.code == 0, said.err
    told: dict[str, Any] = json.loads(said.out)
    assert [(run["table"], run["seed"]) for run in told["runs"]] == [(f"{table}.csv", seed) for table, seed in RUNS]
    assert told["failed"] == []
    for (table, seed), run in zip(RUNS, told["runs"], strict=True):
        written = json.loads(summary(table, seed).read_text())
        assert written["scores"] == run["scores"]
        assert written["from"]["command"].startswith("awn fit iris.csv wine.csv")
        assert written["from"]["threads"] == 1
        assert (Path(run["folder"]) / "model" / "model.safetensors").is_file()
    for table, name in (("iris.csv", "iris"), ("wine.csv", "wine")):
        scores = [run["scores"]["adaptive"] for run in told["runs"] if run["table"] == table]
        assert told["tables"][table]["scores"]["adaptive"]["mean"] == pytest.approx(sum(scores) / 2)
        # of two numbers, the standard deviation is their distance over the root of two
        std = told["tables"][table]["scores"]["adaptive"]["std"]
        assert std == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)
        assert f"{name}.csv: target, seed 1" in Path("many/comparison.html").read_text()
    return told


def check_one_by_one(run: Run, told: dict[str, Any]) -> None:
    words = ["fit", "wine.csv", *QUICK[:-1], "alone", "--seed", 1, "--json"]
    alone = json.loads(run(*words).out)
    assert {name: told["runs"][-1][name] for name in ("scores", "widths")} == {
        name: alone[name] for name in ("scores", "widths")
    }


def test_tables_and_seeds_on_processes(run: Run) -> None:
    words = ["fit", "iris.csv", "wine.csv", *QUICK, "--seeds", 2, "--workers", 2]
    told = check_all_made(run(*words, "--json", "--quiet"))
    check_one_by_one(run, told)
    made = {entry: summary(*entry).stat().st_mtime_ns for entry in RUNS}
    said = run(*words, "--resume")
    assert said.code == 0
    assert said.err.count("finished before") == 4
    assert {entry: summary(*entry).stat().st_mtime_ns for entry in RUNS} == made
    mean = told["tables"]["iris.csv"]["scores"]["adaptive"]["mean"]
    std = told["tables"]["iris.csv"]["scores"]["adaptive"]["std"]
    assert f"{mean:.4f} ± {std:.4f}" in said.out
    assert all(name in said.out for name in ("adaptive", "fixed, same widths", "baseline"))
    assert said.err.startswith("iris.csv: classification of 'target' into '0', '1', '2' (")
    assert "many/<table>/seed-<n>" in said.out
    assert "many/comparison.html" in said.out


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_cluster_that_does_not_answer_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install awn[ray]")

    def nobody(**_: Any) -> None:
        raise ConnectionError("Failed to connect")

    monkeypatch.setattr(ray, "init", nobody)
    said = run("fit", "iris.csv", *QUICK, "--seeds", 2, "--ray", "10.0.0.1:6379")
    assert said.code == 2
    assert "no Ray cluster answers at 10.0.0.1:6379" in said.err
    assert "RAY_AUTH_MODE" in said.err


def test_tables_and_seeds_on_ray(run: Run) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install awn[ray]")
    said = run("fit", "iris.csv", "wine.csv", *QUICK, "--seeds", 2, "--ray", "local", "--json")
    check_one_by_one(run, check_all_made(said))
    assert "0 to go" in said.err


def test_a_run_that_fails_is_told_and_resume_makes_it_alone(run: Run) -> None:
    words = ["fit", "iris.csv", "wine.csv", *QUICK, "--seeds", 2]
    blocked = Path("many/iris/seed-1")
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder is to be")
    assert "many is not empty" in one_sentence(run(*words))
    said = run(*words, "--overwrite", "--json")
    assert said.code == 1
    told = json.loads(said.out)
    assert [(run["table"], run["seed"]) for run in told["failed"]] == [("iris.csv", 1)]
    assert "many/iris/seed-1" in told["failed"][0]["error"]
    assert told["tables"]["iris.csv"]["scores"]["adaptive"]["std"] is None
    assert told["tables"]["wine.csv"]["runs"] == 2
    assert "failed: iris.csv, seed 1: " in said.err
    assert "1 of 4 runs failed. To retry, add --out many --resume." in said.err
    blocked.unlink()
    before = {entry: summary(*entry).stat().st_mtime_ns for entry in RUNS if entry != ("iris", 1)}
    check_all_made(run(*words, "--resume", "--json", "--quiet"))
    assert {entry: summary(*entry).stat().st_mtime_ns for entry in before} == before


def test_what_is_finished_with_other_settings_is_not_what_is_asked_for(run: Run) -> None:
    Path("c.json").write_text('{"schedule": "constant"}')  # a cosine depends on the number of epochs
    words = ["fit", "iris.csv", *QUICK, "--config", "c.json", "--seeds", 2, "--json", "--quiet"]
    assert run(*words).code == 0
    longer = run(*words, "--epochs", 4, "--resume")
    assert longer.code == 0
    assert len(Path("many/iris/seed-0/run/history.jsonl").read_text().splitlines()) == 4, "gone on with"
    other = one_sentence(run(*words, "--hidden-layers", 3, "--resume"))
    assert "many/iris/seed-0/run/run.safetensors belongs to a run with other settings (model" in other
    assert "or start a new run in another folder. Other runs failed with similar errors." in other
    more = run(*words, "--hidden-layers", 3, "--resume", "--seeds", 3)
    assert more.code == 1
    assert [run["seed"] for run in json.loads(more.out)["runs"]] == [2], "the one that was not there"
    assert "2 of 3 runs failed. Retrying with --resume would fail again." in more.err
    assert json.loads(summary("iris", 0).read_text())["from"]["asked"]["options"] == {
        "schedule": "constant",
        "epochs": 4,
    }
    fewer = run(*words, "--epochs", 4, "--resume", "--seeds", 1)
    assert "There is no run to resume in many" in one_sentence(fewer), "one run is one run, in many itself"


def test_a_fault_of_ours_is_told_with_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("awn.tabular.many.fit_table", lambda *_, **__: 1 / 0)
    said = run("fit", "iris.csv", *QUICK, "--seeds", 2)
    assert said.code == 1
    assert "failed: iris.csv, seed 1: ZeroDivisionError: division by zero" in said.err
    assert "Traceback" in said.err
    assert not Path("many/comparison.html").exists()


def test_an_interrupt_says_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("awn.tabular.many.fit_table", interrupted)
    said = run("fit", "iris.csv", *QUICK, "--seeds", 2)
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines()[1:] == ["Interrupted. To resume, run the same command with --out many --resume."]


WRONG: dict[str, tuple[list[Any], list[str]]] = {
    "target of one": (["iris.csv", "wine.csv", "--target", "petal width (cm)"], ["wine.csv: The table has no column"]),
    "target of none": (["iris.csv", "wine.csv", "--target", "y"], ["iris.csv: The table", "wine.csv: The table"]),
    "no such table": (["iris.csv", "none.csv", "--target", "target"], ["no file none.csv"]),
    "twice": (["iris.csv", "./iris.csv", "--target", "target"], ["iris.csv is given twice"]),
    "option": (["iris.csv", "wine.csv", "--target", "target", "--epochs", 0], ["epochs must be"]),
    "test size": (["iris.csv", "wine.csv", "--target", "target", "--test-size", 2], ["--test-size must lie"]),
    "max params": (
        ["iris.csv", "--target", "target", "--seeds", 2, "--max-params", 2, "--quiet"],
        ["--max-params=2 cannot"],
    ),
    "seed": (["iris.csv", "--target", "target", "--seed", 2**32 - 1, "--seeds", 2], ["seed must be"]),
    "nothing to resume": (["iris.csv", "wine.csv", "--target", "target", "--resume"], ["no runs of these tables"]),
    "Ray": (["iris.csv", "--target", "target", "--ray", "local"], ['pip install "awn[ray]"']),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_done_is_said_before_anything_trains(
    name: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # not installed
    words, sentences = WRONG[name]
    said = one_sentence(run("fit", *words, "--out", "many"))
    assert all(sentence in said for sentence in sentences)
    assert not Path("many").exists()


def test_tables_of_one_name_have_folders_of_their_own() -> None:
    runs = plan_runs([Path("a/t.csv"), Path("t.tsv"), Path("t-2.csv")], [3], Path("many"))
    assert [str(run.folder) for run in runs] == ["many/t/seed-3", "many/t-2/seed-3", "many/t-2-2/seed-3"]
