"""What surrounds a command: terminals, file names, other commands in the same folder, and the user's own files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from awn.files.lock import folder_lock
from awn.tabular.train_score import TrainScore
from awn.training import run as run_module
from cli_cases import Run, one_sentence

QUICK = ["--epochs", "2", "--no-compare", "--no-explain"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def table(rows: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    size = rng.normal(50, 20, rows).round(2)
    return pd.DataFrame({"size": size, "größe": rng.choice(["=1+1", "north"], rows), "price": (3 * size).round(1)})


def awn(*words: Any, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "awn", *words], env={**os.environ, **environment}, capture_output=True, check=False
    )


def test_a_terminal_of_ascii_shows_every_result() -> None:
    """R² and ± are written in ASCII; data and JSON lose nothing."""
    table().to_csv("houses.csv", index=False)
    plain = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    said = awn("fit", "houses.csv", "--target", "price", "--out", "run", *QUICK, **plain)
    assert said.returncode == 0, said.stderr
    assert said.stdout.isascii()
    assert b"R2" in said.stdout
    assert b"+/-" in said.stdout
    assert "größe".encode() in awn("predict", "run", "houses.csv", "--keep", "größe", **plain).stdout
    shown = awn("inspect", "run", "--json", **plain).stdout
    assert shown.isascii()
    assert "größe = north" in json.loads(shown)["inputs"]


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")
def test_paths_that_are_not_utf8_work_in_every_command(run: Run) -> None:
    command = run
    folder = os.fsencode(Path.cwd()) + b"/caf\xe9"
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("the file system takes UTF-8 alone")
    table().to_csv("houses.csv", index=False)
    file = folder + b"/h\xff.csv"
    os.rename("houses.csv", file)
    said = awn("fit", file, "--target", "price", "--out", folder + b"/run", "--members", "1", *QUICK)
    assert said.returncode == 0, said.stderr
    assert folder + b"/run/report.html" in said.stdout, "a path is shown as it is"
    here = {name: os.fsdecode(folder + b"/" + name.encode()) for name in ("run", "half", "all.html")}
    table_here = os.fsdecode(file)
    assert json.loads(command("inspect", here["run"], "--json").out)["table"] == r"h\xff.csv"
    assert command("report", here["run"], "--out", here["all.html"], "--quiet").code == 0
    cut = ("truncate", here["run"], "--keep", "0.5", "--data", table_here, "--out", here["half"], "--json")
    assert json.loads(command(*cut).out)["rows"] == "the validation rows"
    assert command("predict", here["half"], table_here).out.count("\n") == 81


def test_predictions_keep_all_columns_and_are_safe_for_spreadsheets(run: Run) -> None:
    frame = table()
    frame.to_csv("houses.csv", index=False)
    run("fit", "houses.csv", "--target", "price", "--out", "run", *QUICK)
    made = pd.read_csv(write_out(run("predict", "run", "houses.csv", "--all", "--safe").out))
    assert made.columns.tolist() == [*frame.columns, "predicted price"]
    assert made["size"].tolist() == frame["size"].tolist(), "numbers stay as they are"
    assert made["größe"].tolist() == [f"'{word}" if word[0] == "=" else word for word in frame["größe"]]
    plain = pd.read_csv(write_out(run("predict", "run", "houses.csv", "--all").out))
    assert plain["größe"].tolist() == frame["größe"].tolist()


def write_out(content: str) -> Path:
    Path("out.csv").write_text(content, encoding="utf-8")
    return Path("out.csv")


@pytest.mark.parametrize(
    ("more", "line"),
    [("", 12), ("\n\n", 14), ('"two\nlines",north,3\n', 14)],
    ids=["plain", "blank lines", "a field of two lines"],
)
def test_a_wrong_value_is_named_by_its_line_in_the_file(more: str, line: int, run: Run) -> None:
    lines = table().to_csv(index=False).splitlines(keepends=True)
    lines[5] += more.replace("two\nlines", "7\n")
    lines[11] = lines[11].replace(lines[11].split(",")[0], "seven")
    Path("houses.csv").write_text("".join(lines), encoding="utf-8")
    assert Path("houses.csv").read_text(encoding="utf-8").splitlines()[line - 1].startswith("seven")
    said = one_sentence(run("fit", "houses.csv", "--target", "price", "--out", "run"))
    assert f"Column 'size', line {line}: 'seven' is not a number" in said
    assert not Path("run").exists(), "a refused command leaves nothing"


def test_a_second_fit_in_the_same_folder_is_refused_at_once(run: Run) -> None:
    table().to_csv("houses.csv", index=False)
    words = ["fit", "houses.csv", "--target", "price", "--out", "run", *QUICK]
    with folder_lock("run"):
        for more in ([], ["--overwrite"]):
            assert "Another process is writing to run" in one_sentence(run(*words, *more))
    assert run(*words).code == 0, "the lock is released"
    assert not Path("run/.lock").exists()


def test_a_lock_ends_with_its_process() -> None:
    hold = "import sys, time; from awn.files.lock import folder_lock\n"
    hold += "with folder_lock('run'): print('held', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match="Another process"), folder_lock("run"):
            pass
        child.kill()
    with folder_lock("run"):
        pass


def test_an_import_that_fails_in_the_users_file_is_not_called_a_missing_extra() -> None:
    """A file here that is named like a package of awn's is imported in its place."""
    Path("rich.py").write_text("import a_module_of_the_user", encoding="utf-8")
    said = awn("--version")
    assert said.returncode == 1
    assert b"No module named 'a_module_of_the_user'" in said.stderr
    assert b"pip install" not in said.stderr


def test_after_a_resume_the_time_is_that_of_the_whole_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    table().to_csv("houses.csv", index=False)
    words = ["fit", "houses.csv", "--target", "price", "--out", "run", *QUICK, "--json"]
    monkeypatch.setattr(run_module, "_SECONDS_BETWEEN_CHECKPOINTS", -1.0)

    def stop_in_the_second_epoch(self: Any, progress: Any) -> None:
        progress.history[-1]["seconds"] = 1000.0  # as if the epoch had taken this long
        if progress.epoch == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TrainScore, "on_epoch_end", stop_in_the_second_epoch)
        assert run(*words).code == 1
    assert 1000 <= json.loads(run(*words, "--resume").out)["seconds"] < 1500
