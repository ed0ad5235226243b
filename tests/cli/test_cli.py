"""The command line: every command, its exit codes, pipes, interrupts, and what it says of bad input."""

from __future__ import annotations

import errno
import gzip
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris

import awn
import awn.files.read
import awn.files.write
from awn.cli.app import app
from awn.errors import ArgumentError
from awn.tabular.folder import load_estimator
from awn.training import run as run_module
from cli_cases import Run, one_sentence

COMMANDS = ["fit", "predict", "inspect", "truncate", "compress", "export", "report", "ui"]
QUICK = ["--epochs", "3", "--no-compare"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def mixed_table(rows: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"size": rng.normal(50, 20, rows).round(2), "shop": rng.choice(["north", "south"], rows), "open": "yes"}
    )
    frame.loc[::9, "size"] = np.nan
    frame.loc[::2, "open"] = "no"
    frame["[sales]"] = np.where(frame["size"] > 50, "high", "low")  # brackets are markup to some
    return frame


def write(path: str, frame: pd.DataFrame) -> Path:
    frame.to_csv(path, index=False)
    return Path(path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three tables and a run of each, made once."""
    folder = tmp_path_factory.mktemp("made")
    tables = {
        "iris": (load_iris(as_frame=True).frame, "target"),
        "diabetes": (load_diabetes(as_frame=True).frame.head(150), "target"),
        "mixed": (mixed_table(), "[sales]"),
    }
    before = sys.argv
    for name, (frame, target) in tables.items():
        path = write(str(folder / f"{name}.csv"), frame)
        sys.argv = ["awn", "fit", str(path), "--target", target, "--out", str(folder / name), *QUICK, "--quiet"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", "120")
            app(standalone_mode=False)
    sys.argv = before
    return folder


# In general


def test_version_and_help(run: Run) -> None:
    assert run("--version").out.strip() == f"awn {awn.__version__}"
    shown = run("--help")
    assert shown.code == 0
    assert all(name in shown.out for name in COMMANDS)
    assert "--install-completion" in shown.out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_shows_an_example_with_options_it_has(command: str, run: Run) -> None:
    shown = run(command, "--help")
    assert shown.code == 0
    example = re.search(rf"Example:\s+awn {command} (.*)", shown.out)
    assert example
    assert all(option in shown.out.replace(example[0], "") for option in re.findall(r"--[\w-]+", example[1]))


BUILT = """
import sys
import awn.__main__
from awn.cli.app import app
names = {command.name or command.callback.__name__ for command in app.registered_commands}
assert {"fit", "bench"} <= names and [group.name for group in app.registered_groups] == ["paper"]
print(*{name.split(".")[0] for name in sys.modules})
"""
# The rooms alone, without the package's front door and what that imports.
BARE = """
import sys, types
package = types.ModuleType("awn")
package.__path__ = [sys.argv[1]]
sys.modules["awn"] = package
"""


@pytest.mark.parametrize(
    ("first", "heavy"),
    [
        ("", {"pandas", "sklearn", "pyarrow", "plotly", "matplotlib", "lightning", "transformers", "onnx", "ray"}),
        (BARE, {"torch", "numpy", "pandas", "sklearn", "safetensors"}),
    ],
    ids=["package", "commands alone"],
)
def test_help_loads_no_heavy_library(first: str, heavy: set[str]) -> None:
    assert not heavy & _imported(first + BUILT)


HELPED = """
import sys
from awn.__main__ import main
sys.argv[1:] = ["--help"]
try:
    main()
finally:
    print("imported:", *{name.split(".")[0] for name in sys.modules})
"""


@pytest.mark.parametrize("early", ["", "numpy"])
def test_help_runs_without_the_libraries_of_a_training(early: str) -> None:
    heavy = {"torch", "numpy", "pandas", "sklearn", "pyarrow", "safetensors"}
    # An import that is there must be seen.
    assert heavy & _imported((f"import {early}" if early else "") + HELPED) == {early} - {""}


def _imported(script: str) -> set[str]:
    """The packages that a script has imported, as it prints them at its end."""
    command = [sys.executable, "-c", script, str(Path(awn.__file__).parent)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr
    packages = set(child.stdout.splitlines()[-1].split())
    assert "typer" in packages
    return packages


@pytest.mark.parametrize(
    ("option", "value"), [("hidden-layers", awn.AdaptiveClassifier().hidden_layers), ("max-units", 256)]
)
def test_the_help_of_fit_states_the_estimators_defaults(option: str, value: int, run: Run) -> None:
    default = re.search(rf"--{option} .*?Default: (\d+)\.", run("fit", "--help").out)
    assert default
    assert int(default[1]) == value


def test_shell_completion_is_offered(tmp_path: Path) -> None:
    environment = {**os.environ, "_AWN_COMPLETE": "complete_bash", "COMP_WORDS": "awn tr", "COMP_CWORD": "1"}
    child = subprocess.run(program(), env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert child.stdout.split() == ["truncate"], child.stderr


@pytest.mark.parametrize(
    "words", [["fit"], ["fit", "x.csv"], ["nonsense"], ["fit", "x.csv", "--target", "y", "--epochs", "many"]]
)
def test_a_wrong_call_is_code_2(words: list[str], run: Run) -> None:
    said = run(*words)
    assert said.code == 2
    assert "Traceback" not in said.err
    assert not said.out


def program(*words: Any) -> list[str]:
    return [sys.executable, "-m", "awn", *map(str, words)]


# fit


def test_fit_says_its_result_and_writes_a_model_and_a_report(run: Run) -> None:
    table = write("iris.csv", load_iris(as_frame=True).frame)
    said = run("fit", table, "--target", "target", "--epochs", 3)
    assert said.code == 0
    networks = ("adaptive", "fixed, same widths", "baseline (most frequent class)")
    for word in (*networks, "hidden.0", "parameters", "report:", "trained for all 3 epochs"):
        assert word in said.out
    assert all(word in run("inspect", "runs/iris").out for word in networks), "the same names"
    lines = said.err.splitlines()
    assert lines[:2] == [
        "classification of 'target' into '0', '1', '2' ('target' has 3 distinct integers from 0 to 2)",
        "120 training rows, 24 of them for validation, 30 test rows; 4 of 4 columns used, encoded as 68 inputs",
    ], "before anything is trained"
    assert (
        lines[2] == "the mean of 5 networks, each with other rows held out; numbers of units are those of all networks"
    )
    assert re.fullmatch(r"epoch 1  loss \d+\.\d+  validation accuracy \d\.\d+  widths \d+ \d+", lines[3]), "no terminal"
    assert "\x1b" not in said.err + said.out
    found = sorted(str(path.relative_to("runs/iris")) for path in Path("runs/iris").rglob("*") if path.is_file())
    assert found == [
        "model/config.json",
        "model/model.safetensors",
        "model/split.csv",
        "report.html",
        "report.json",
        "run/history.jsonl",
        "run/run.safetensors",
        "summary.json",
    ]


def test_json_is_the_only_thing_on_the_standard_output(run: Run, made: Path) -> None:
    said = run("fit", made / "diabetes.csv", "--target", "target", "--out", "d", *QUICK, "--json", "--hidden-layers", 1)
    result = json.loads(said.out)
    assert result["task"] == "regression"
    assert list(result["scores"]) == ["adaptive", "baseline"]
    assert (result["classes"], result["rows"]) == (None, {"train": 120, "validation": 24, "test": 30})
    assert result["columns"] == {"table": 10, "used": 10, "inputs": 215}
    assert (result["epochs"], result["stopped_early"]) == (3, False)
    assert list(result["widths"]) == ["hidden.0"]
    learned, chosen = result["learned_widths"]["hidden.0"], result["widths"]["hidden.0"]
    assert chosen < learned
    note = f"the layers learned {learned} units, of which {chosen} are as good on the validation rows"
    assert note in Path("d/report.html").read_text()
    assert json.loads(Path("d/summary.json").read_text())["scores"] == result["scores"]
    for words in (
        ["inspect", made / "iris"],
        ["predict", made / "iris", made / "iris.csv"],
        ["predict", made / "iris", made / "iris.csv", "--proba", "--out", "p.csv"],
        ["truncate", made / "iris", "--keep", 0.5, "--data", made / "iris.csv", "--out", "small"],
        ["compress", made / "iris", "--data", made / "iris.csv", "--out", "smaller"],
        ["export", made / "iris", "--format", "safetensors", "--out", "weights.safetensors"],
        ["report", made / "iris", made / "mixed"],
    ):
        said = run(*words, "--json")
        assert said.code == 0, said.err
        assert isinstance(json.loads(said.out), dict)


@pytest.mark.parametrize(("batch_norm", "path"), [("false", "by hand"), ("true", "autograd")])
def test_fit_says_which_training_path_it_took(run: Run, made: Path, batch_norm: str, path: str) -> None:
    Path("c.json").write_text(f'{{"batch_norm": {batch_norm}}}')
    said = run(
        "fit",
        made / "iris.csv",
        "--target",
        "target",
        "--out",
        "run",
        *QUICK,
        "--config",
        "c.json",
        "--json",
        "--quiet",
    )
    assert json.loads(said.out)["training_path"] == path
    assert json.loads(Path("run/summary.json").read_text())["training_path"] == path
    assert load_estimator("run/model").history_.path == path


def test_fit_says_how_the_training_ended(run: Run, made: Path) -> None:
    Path("c.json").write_text('{"patience": 2, "choose": null, "schedule": "constant"}')
    words = [
        "fit",
        made / "diabetes.csv",
        "--target",
        "target",
        "--no-compare",
        "--config",
        "c.json",
        "--max-units",
        20,
    ]
    said = run(*words, "--epochs", 80, "--out", "early")
    told = json.loads(Path("early/summary.json").read_text())
    losses = [row["validation_loss"] for row in awn_history("early")]
    best = losses.index(min(losses)) + 1
    assert (told["epochs"], told["kept_epoch"], told["stopped_early"]) == (best + 2, best, True)
    assert f"stopped early after {best + 2} epochs; the model is from epoch {best}, the best" in said.out
    assert "validation R² " in said.err
    whole = json.loads(run(*words, "--epochs", best + 1, "--out", "whole", "--json").out)
    assert (whole["epochs"], whole["kept_epoch"], whole["stopped_early"]) == (best + 1, best, False)
    assert "trained for all" in Path("whole/report.html").read_text()


@pytest.mark.parametrize(("cap", "at_cap"), [(20, {"hidden.0": 20}), (400, {})])
def test_fit_says_which_layers_ended_at_their_cap(cap: int, at_cap: dict[str, int], run: Run, made: Path) -> None:
    words = ["fit", made / "iris.csv", "--target", "target", *QUICK, "--hidden-layers", 1, "--config", "c.json"]
    Path("c.json").write_text('{"lr": 1e-9, "choose": null}')  # the width stays at its start, 64 units or the cap
    said = run(*words, "--max-units", cap, "--out", "run")
    assert json.loads(Path("run/summary.json").read_text())["at_cap"] == at_cap
    hint = f"hidden.0 reached the limit of {cap} units; a higher --max-units may help"
    for text in (said.out, Path("run/report.html").read_text()):
        assert (hint in text) == bool(at_cap)


def test_quiet_says_nothing_but_the_result(run: Run, made: Path) -> None:
    said = run("fit", made / "iris.csv", "--target", "target", "--out", "i", *QUICK, "--quiet")
    assert said.err == ""
    assert "adaptive" in said.out


def test_fit_takes_caps_and_the_task(run: Run, made: Path) -> None:
    words = ["fit", made / "iris.csv", "--target", "target", "--json", *QUICK]
    small = json.loads(run(*words, "--max-params", 800, "--out", "a").out)
    assert small["parameters"] <= 800
    narrow = json.loads(run(*words, "--max-units", 9, "--members", 1, "--out", "b").out)
    assert max(narrow["widths"].values()) <= 9
    assert json.loads(run(*words, "--task", "regression", "--out", "c").out)["score_name"] == "R²"


def test_numbers_with_decimals_may_be_classes(run: Run, made: Path) -> None:
    table = write("t.csv", pd.read_csv(made / "iris.csv").assign(target=lambda frame: frame["target"] / 2))
    assert run("fit", table, "--target", "target", "--task", "classification", *QUICK, "--out", "run").code == 0
    assert set(run("predict", "run", table).out.split()[1:]) <= {"0", "0.5", "1"}
    assert run("truncate", "run", "--keep", 0.5, "--data", table, "--json").code == 0


@pytest.mark.parametrize("ending", ["tsv", "parquet", "csv.gz"])
def test_fit_reads_every_kind_of_table(ending: str, run: Run) -> None:
    frame, path = load_iris(as_frame=True).frame, Path(f"iris.{ending}")
    if ending == "parquet":
        frame.to_parquet(path)
    elif ending == "tsv":
        frame.to_csv(path, sep="\t", index=False)
    else:
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    assert run("fit", path, "--target", "target", *QUICK, "--json").code == 0
    assert run("predict", "runs/iris", path).out.startswith("target\n")


def test_the_same_seed_gives_the_same_and_another_another(run: Run, made: Path) -> None:
    words = ["fit", made / "iris.csv", "--target", "target", *QUICK, "--json"]
    # The measures, among them the log-loss: accuracies on thirty rows may be the same by chance.
    first, second, third = (json.loads(run(*words, "--seed", seed).out)["measures"] for seed in (1, 1, 2))
    assert first == second != third
    assert sorted(path.name for path in Path("runs").iterdir()) == ["iris", "iris-2", "iris-3"]


def test_what_is_there_is_not_overwritten_unless_told_to(run: Run, made: Path) -> None:
    words = ["fit", made / "iris.csv", "--target", "target", "--out", "run", *QUICK]
    Path("run").mkdir()
    assert run(*words).code == 0, "an empty folder is free"
    before = Path("run/model/model.safetensors").read_bytes()
    said = run(*words, "--seed", 1)
    assert said.code == 2
    assert "run is not empty" in said.err
    assert Path("run/model/model.safetensors").read_bytes() == before
    assert run(*words, "--seed", 1, "--overwrite").code == 0
    assert Path("run/model/model.safetensors").read_bytes() != before
    assert len(Path("run/run/history.jsonl").read_text().splitlines()) == 3
    Path("file").write_text("mine")
    assert "--out file is a file" in run(*words[:5], "file", *QUICK).err
    cut = ["truncate", "run", "--keep", 0.5, "--data", made / "iris.csv"]
    assert run(*cut).code == 0
    assert "run/model-truncated is not empty" in run(*cut).err
    assert run(*cut, "--overwrite").code == 0
    assert "the model itself" in run(*cut, "--out", "run/model").err
    assert "is the input table itself" in run("predict", "run", made / "iris.csv", "--out", made / "iris.csv").err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("c.json", '{"hidden_layers": 1, "units": 9, "lr": 0.001, "choose": null, "members": 1}'),
        ("c.toml", "hidden_layers = 1\nunits = 9\nlr = 0.001\nchoose = 'epoch'\nmembers = 1"),
    ],
)
def test_options_come_from_a_file_and_the_command_line_goes_first(
    name: str, content: str, run: Run, made: Path
) -> None:
    if name.endswith("toml"):
        pytest.importorskip("tomllib")
    Path(name).write_text(content)
    words = ["fit", made / "iris.csv", "--target", "target", "--config", name, "--json", "--out"]
    result = json.loads(run(*words, "a", *QUICK).out)
    assert list(result["widths"]) == ["hidden.0"]
    assert result["widths"]["hidden.0"] == pytest.approx(9, abs=2)
    assert len(json.loads(run(*words, "b", *QUICK, "--hidden-layers", 3).out)["widths"]) == 3


@pytest.mark.parametrize(("words", "name"), [([], "epochs"), (["--epochs", "0"], "--epochs")])
def test_an_error_names_an_option_of_the_command_line_as_typed_and_one_of_a_file_as_written(
    words: list[str], name: str, run: Run, made: Path
) -> None:
    Path("c.json").write_text('{"epochs": 0}')
    said = run("fit", made / "iris.csv", "--target", "target", "--config", "c.json", *words)
    assert one_sentence(said) == f"error: {name} must be a whole number of at least 1, got 0."


def test_an_error_from_another_process_still_names_its_argument() -> None:
    error = pickle.loads(pickle.dumps(ArgumentError("epochs must be a number.", argument="epochs")))
    assert (str(error), error.argument) == ("epochs must be a number.", "epochs")


def test_class_weights_in_a_file_name_classes_by_words(run: Run, made: Path) -> None:
    Path("c.json").write_text('{"class_weight": {"0": 1, "1": 50, "2": 1}}')
    said = run("fit", made / "iris.csv", "--target", "target", "--config", "c.json", *QUICK, "--out", "a")
    assert said.code == 0, said.err


CONFIGS = {
    '{"hiden_layers": 3}': "There is no option 'hiden_layers'. Did you mean 'hidden_layers'?",
    '{"colour": 3}': "There is no option 'colour'. Options: hidden_layers",
    '{"epochs": "ten"}': "'epochs' must be a whole number or null, got 'ten'",
    '{"lr": true}': "'lr' must be a number or null, got True",
    '{"random_state": 3}': "'random_state' cannot be set here: set the seed instead",
    '{"fixed_widths": [3]}': "'fixed_widths' cannot be set here",
    '{"activation": "rleu"}': "unknown activation 'rleu'",
    '{"class_weight": {"z": 2}}': "class_weight",
    '{"device": "abacus"}': "device='abacus'",
    "[1, 2]": "c.json must hold a JSON object",
    "{": "c.json cannot be read",
}


@pytest.mark.parametrize("content", CONFIGS)
def test_options_that_cannot_be_used_are_named(content: str, run: Run, made: Path) -> None:
    Path("c.json").write_text(content)
    said = run("fit", made / "iris.csv", "--target", "target", "--config", "c.json", "--out", "a", "--no-compare")
    assert CONFIGS[content] in one_sentence(said)
    assert not Path("a").exists()


# predict, inspect, truncate, compress, export, report


def test_predict_writes_to_a_pipe_or_a_file(run: Run, made: Path) -> None:
    said = run("predict", made / "mixed", made / "mixed.csv")
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[0] == "[sales]"
    assert set(lines[1:]) <= {"high", "low"}
    assert len(lines) == 91
    said = run("predict", made / "mixed", made / "mixed.csv", "--proba", "--out", "p.csv")
    assert said.out == ""
    assert "Wrote 90 predictions to p.csv" in said.err
    chances = pd.read_csv("p.csv")
    assert list(chances) == ["[sales]=high", "[sales]=low"]
    assert chances.sum(axis=1).to_numpy() == pytest.approx(1.0)
    assert (chances.idxmax(axis=1).str.removeprefix("[sales]=") == lines[1:]).all()


def test_predict_handles_what_it_has_not_seen_and_names_what_it_lacks(run: Run, made: Path) -> None:
    frame = mixed_table().drop(columns="[sales]")
    strange = write("new.csv", frame.assign(shop="moon", extra=1, size=np.nan)[["extra", "open", "size", "shop"]])
    assert run("predict", made / "mixed", strange).code == 0
    lacking = write("lacking.csv", frame.rename(columns={"shop": "shops"}))
    said = one_sentence(run("predict", made / "mixed", lacking))
    assert "'shop'" in said
    assert "'shops'" in said
    assert "--proba needs a classifier" in run("predict", made / "diabetes", made / "diabetes.csv", "--proba").err


def test_a_pipe_that_closes_early_is_no_fault(made: Path) -> None:
    """As `head` closes it; the exit code shows that there was more to write."""
    table = write("many.csv", pd.concat([pd.read_csv(made / "iris.csv")] * 50))
    with subprocess.Popen(
        program("predict", made / "iris", table, "--proba"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        first = child.stdout.readline()
        child.stdout.close()
        error = child.stderr.read()
    assert first == b"target=0,target=1,target=2\n"
    assert error == b""
    assert child.returncode == 1


def test_inspect_shows_the_model(run: Run, made: Path) -> None:
    said = run("inspect", made / "mixed" / "model")
    for word in ("classification of [sales] from mixed.csv", "adaptive", "hidden.1", "total", "3 columns, 21 inputs"):
        assert word in said.out
    assert json.loads(run("inspect", made / "mixed", "--json").out)["inputs"][0] == "size"


def test_truncate_and_compress_show_what_it_costs(run: Run, made: Path) -> None:
    words = ["--data", made / "diabetes.csv", "--json"]
    half = json.loads(run("truncate", made / "diabetes", "--keep", 0.5, *words, "--out", "half").out)
    before, after = (half[when]["widths"]["hidden.0"] for when in ("before", "after"))
    assert before / 2 <= after < before / 2 + 5  # five networks, each of which rounds up
    assert json.loads(run("inspect", "half", "--json").out)["scores"]["adaptive"] == half["after"]["test_score"]
    few = json.loads(run("truncate", made / "diabetes", "--max-params", 2000, *words, "--out", "few").out)
    assert few["after"]["parameters"] <= 2000
    small = json.loads(run("compress", made / "diabetes", "--max-drop", 0.05, *words, "--out", "small").out)
    assert small["after"]["score"] >= small["before"]["score"] - 0.05 - 1e-6
    assert small["after"]["parameters"] < small["before"]["parameters"]
    cut = ["truncate", made / "diabetes", "--keep", 0.2, *words]
    repaired, plain = (json.loads(run(*cut, "--out", f"cut{more}", *more).out) for more in ([], ["--no-repair"]))
    assert repaired["after"]["widths"] == plain["after"]["widths"]
    assert repaired["after"]["score"] != plain["after"]["score"]
    shown = run("compress", made / "diabetes", *words[:2], "--out", "again")
    assert "before" in shown.out
    assert run("predict", "half", made / "diabetes.csv").code == 0


def test_a_cut_scores_classes_whatever_their_type_in_the_file(run: Run, made: Path) -> None:
    """The classes 0, 1, 2 of one file are words in another where a fourth is a word; that one is refused by name."""
    frame = pd.read_csv(made / "iris.csv")
    frame["target"] = frame["target"].astype(str)
    words = ["truncate", made / "iris", "--keep", 1.0, "--json", "--data"]
    assert json.loads(run(*words, write("text.csv", frame), "--out", "a").out)["after"]["score"] > 0.3
    frame.loc[3, "target"] = "rose"
    assert "'rose', which is not a class of the model" in one_sentence(run(*words, write("b.csv", frame)))
    assert "has no column 'target'" in one_sentence(run(*words, write("c.csv", frame.drop(columns="target"))))


def test_export_writes_beside_the_model_or_where_told(run: Run, made: Path) -> None:
    said = run("export", made / "iris")
    assert said.code == 0, said.err
    assert said.out == ""
    assert "Input: the table's columns" in said.err
    session = onnxruntime.InferenceSession(made / "iris" / "model.onnx")
    rows = pd.read_csv(made / "iris.csv").drop(columns="target").to_numpy(np.float64)
    predicted = [int(line) for line in run("predict", made / "iris", made / "iris.csv").out.splitlines()[1:]]
    assert session.run(None, {"input": rows})[0].argmax(1).tolist() == predicted
    assert run("export", made / "mixed", "--format", "safetensors", "--out", "w.safetensors", "--quiet").err == ""
    assert Path("w.safetensors").is_file()
    assert "onnx, torch, safetensors" in one_sentence(run("export", made / "iris", "--format", "pickle"))


@pytest.mark.parametrize("words", [["export"], ["predict"], ["report"]])
def test_an_output_never_replaces_a_folder_or_a_file_of_another_kind(words: list[str], run: Run, made: Path) -> None:
    more = [made / "iris.csv"] if words == ["predict"] else []
    Path("folder").mkdir()
    assert "--out folder is a folder" in one_sentence(run(*words, made / "iris", *more, "--out", "folder"))
    Path("notes.md").write_text("mine")
    assert "--out notes.md exists" in one_sentence(run(*words, made / "iris", *more, "--out", "notes.md"))
    assert Path("notes.md").read_text() == "mine"
    assert sorted(path.name for path in Path().iterdir()) == ["folder", "notes.md"]


@pytest.mark.parametrize("command", ["export", "predict"])
def test_an_output_never_replaces_the_model(command: str, run: Run, made: Path) -> None:
    inside = made / "iris" / "model" / "model.safetensors"
    before, more = inside.read_bytes(), [made / "iris.csv"] if command == "predict" else []
    said = run(command, made / "iris", *more, "--out", inside)
    assert "lies in the folder of the model" in one_sentence(said)
    assert inside.read_bytes() == before


def test_a_column_to_keep_is_kept_once(run: Run, made: Path) -> None:
    said = run("predict", made / "mixed", made / "mixed.csv", "--keep", "shop", "--keep", "shop")
    assert said.out.splitlines()[0] == "shop,[sales]"


@pytest.mark.parametrize("seed", range(3))
def test_a_rare_third_word_makes_a_category_whatever_the_split(seed: int, run: Run) -> None:
    frame = mixed_table()
    frame.loc[7, "open"] = "sometimes"
    table = write("rare.csv", frame)
    said = run("fit", table, "--target", "[sales]", "--out", "rare", "--seed", seed, *QUICK, "--epochs", "1", "--quiet")
    assert said.code == 0, said.err
    estimator = load_estimator(Path("rare/model"))
    assert {column.name: column.kind for column in estimator.preprocessor_.columns}["open"] == "category"


def test_line_breaks_in_cells_are_part_of_words(run: Run) -> None:
    frame = mixed_table()
    frame["shop"] = frame["shop"] + "\nstreet"
    said = run("fit", write("lines.csv", frame), "--target", "[sales]", "--out", "lines", *QUICK, "--quiet")
    assert said.code == 0, said.err
    assert run("predict", "lines", "lines.csv").code == 0


def test_report_compares_runs(run: Run, made: Path) -> None:
    assert run("report", made / "iris", made / "diabetes").code == 0
    page = Path("comparison.html").read_text()
    assert "iris.csv: target" in page
    assert "diabetes.csv: target" in page
    Path("empty").mkdir()
    assert "empty is not a finished run" in one_sentence(run("report", "empty"))
    Path("empty/report.json").write_text("[]")
    assert "empty is not a finished run" in one_sentence(run("report", "empty"))


# Interrupts

# Every epoch is saved, and none is so short that the run is over before the signal comes.
INTERRUPTED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background jobs ignore it
from awn.training import run
run._SECONDS_BETWEEN_CHECKPOINTS = 0.0
save = run.save_run
run.save_run = lambda *args, **kwargs: (time.sleep(0.2), save(*args, **kwargs))
from awn.cli.app import main
sys.argv = ["awn", *sys.argv[1:]]
main()
"""


def test_an_interrupted_run_is_completed_by_resume(run: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["fit", made / "iris.csv", "--target", "target", "--epochs", "30", "--out", "run"]
    command = [sys.executable, "-c", INTERRUPTED, *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # sums in the same order as here
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    history, deadline = Path("run/run/history.jsonl"), time.monotonic() + 90
    while not history.is_file() or history.read_bytes().count(b"\n") < 4:
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    out, error = child.communicate(timeout=60)
    assert child.returncode == 1
    assert out == ""
    assert "To resume, run the same command with --out run --resume." in error
    assert "Traceback" not in error
    assert Path("run/run/run.safetensors").is_file()
    assert 4 <= history.read_bytes().count(b"\n") < 30
    assert not Path("run/model").exists()
    assert "is not finished" in one_sentence(run("predict", "run", made / "iris.csv"))

    assert "other settings (seed" in one_sentence(run(*words, "--resume", "--seed", 3))
    other = write("other.csv", pd.read_csv(made / "iris.csv").head(140))
    assert "other settings" in one_sentence(run("fit", other, *words[2:], "--resume"))
    resumed = json.loads(run(*words, "--resume", "--json").out)
    whole = json.loads(run(*words[:-1], "whole", "--json").out)
    for part in ("scores", "widths", "parameters"):
        assert resumed[part] == whole[part]
    first, second = (Path(folder, "model/model.safetensors") for folder in ("run", "whole"))
    loss = [[row["total"] for row in awn_history(folder)] for folder in ("run", "whole")]
    assert loss[0] == loss[1]
    tensors = [awn.files.read.read_tensors(path)[0] for path in (first, second)]
    assert all((tensors[0][name] == tensors[1][name]).all() for name in tensors[0])


def awn_history(folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "run/history.jsonl").read_text().splitlines()]


def test_there_must_be_a_run_to_resume(run: Run, made: Path) -> None:
    said = run("fit", made / "iris.csv", "--target", "target", "--out", "nowhere", "--resume")
    assert "There is no run to resume in nowhere" in one_sentence(said)


# Bad input


NUMBERS = "a,b,y\n" + "".join(f"{i},{i * 7 % 11},{i % 2}\n" for i in range(40))

BAD: dict[str, tuple[bytes, list[str]]] = {
    "empty file": (b"", ["t.csv", "empty"]),
    "names alone": (b"a,b,y\n", ["t.csv", "no rows"]),
    "one row": (b"a,b,y\n1,2,3\n", ["1 row"]),
    "two rows": (b"a,b,y\n1,2,3\n2,3,5\n", ["2 rows"]),
    "four rows": (b"a,b,y\n1,2,3.5\n2,3,5\n4,4,5\n5,6,7\n", ["4 rows are too few"]),
    "one class": (b"a,b,y\n" + b"1,2,x\n3,4,x\n" * 9, ["'y'", "a single class"]),
    "target missing everywhere": (b"a,b,y\n" + b"1,2,\n3,4,\n" * 9, ["'y'", "missing in all 18 rows"]),
    "no such target": (NUMBERS.replace("y\n", "z\n", 1).encode(), ["no column 'y'", "'z'"]),
    "all columns missing": (b"a,y\n" + b",1\n,2\n" * 9, ["'a'"]),
    "duplicated names": (NUMBERS.replace("a,b", "a,a", 1).encode(), ["t.csv", "more than one column named 'a'"]),
    "wrong delimiter": (NUMBERS.replace(",", "~").encode(), ["t.csv"]),
    "binary": (bytes(range(256)) * 40, ["t.csv", "not a table"]),
    "parquet by the name of csv": (b"PAR1" + bytes(100), ["t.csv", "Parquet"]),
    "not UTF-8": (NUMBERS.replace("a,b", "größe,b", 1).encode("latin-1"), ["t.csv", "UTF-8"]),
    "infinity": (NUMBERS.replace("\n7,", "\ninf,", 1).encode(), ["'a'", "line 9", "infinity"]),
    "huge value": (NUMBERS.replace("\n7,", "\n1e200,", 1).encode(), ["'a'", "line 9", "1e+200"]),
    "a word among numbers": (NUMBERS.replace("\n7,", "\nseven,", 1).encode(), ["'a'", "line 9", "'seven'"]),
    "ragged": (NUMBERS.replace("\n7,", "\n7,7,7,", 1).encode(), ["t.csv", "9"]),
    "text": (
        b"a,y\n" + b"".join(b"once upon a time %d,%d\n" % (i, i % 2) for i in range(80)),
        ["'a'"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_refused_in_one_sentence(name: str, run: Run) -> None:
    content, words = BAD[name]
    Path("t.csv").write_bytes(content)
    said = one_sentence(run("fit", "t.csv", "--target", "y", "--out", "run", *QUICK))
    for word in words:
        assert word in said
    assert [path.name for path in Path().iterdir()] == ["t.csv"], "nothing half-written"


def test_thousands_of_columns_are_no_fault(run: Run) -> None:
    """The parts that take columns one by one, reading and encoding, have tests with ten thousand."""
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2000))).add_prefix("c")
    table = write("wide.csv", wide.assign(y=wide["c0"] > 0))
    said = run("fit", table, "--target", "y", "--out", "run", "--epochs", 1, "--no-compare", "--json")
    assert said.code == 0, said.err
    assert run("predict", "run", table).out.count("\n") == 31


def test_an_all_missing_column_among_others_is_dropped_and_said(run: Run, made: Path) -> None:
    table = write("t.csv", pd.read_csv(made / "iris.csv").assign(nothing=np.nan))
    said = run("fit", table, "--target", "target", "--out", "run", *QUICK)
    assert said.code == 0
    assert said.err.index("4 of 5 columns used") < said.err.index("'nothing'") < said.err.index("epoch 1")


WRONG_CALLS: dict[str, tuple[list[Any], str]] = {
    "no such table": (["fit", "nothing.csv", "--target", "y"], "no file nothing.csv"),
    "a folder": (["fit", ".", "--target", "y"], "is a folder"),
    "unknown ending": (["fit", "t.xlsx", "--target", "y"], "t.xlsx"),
    "task": (
        ["fit", "t.csv", "--target", "y", "--task", "ranking"],
        " --task must be 'classification' or 'regression', got 'ranking'",
    ),
    "task against the target": (["fit", "t.csv", "--target", "c", "--task", "classification"], "target 'c' has 40"),
    "regression of words": (["fit", "t.csv", "--target", "w", "--task", "regression"], "'w', line 2"),
    "test size": (["fit", "t.csv", "--target", "y", "--test-size", 1.5], " --test-size must lie"),
    "test size that leaves nothing": (["fit", "t.csv", "--target", "y", "--test-size", 0.001], "too few"),
    "seed": (["fit", "t.csv", "--target", "y", "--seed", -1], " --seed must be"),
    "epochs": (["fit", "t.csv", "--target", "y", "--epochs=0"], " --epochs must be"),
    "max params": (["fit", "t.csv", "--target", "y", "--max-params", 2], "--max-params=2 cannot be met"),
    "no config": (["fit", "t.csv", "--target", "y", "--config", "none.json"], "none.json"),
    "no model": (["predict", "none", "t.csv"], "there is no folder none"),
    "not a model": (["inspect", "folder"], "folder is not a model"),
    "keep": (["truncate", "iris", "--keep", 0, "--data", "iris.csv", "--out", "iris"], "--keep must be a fraction"),
    "units": (["truncate", "iris", "--units", 0, "--data", "iris.csv", "--out", "iris"], "--units must be"),
    "parameters": (
        ["truncate", "iris", "--max-params", -3, "--data", "iris.csv", "--out", "iris"],
        "--max-params must",
    ),
    "too few parameters": (
        ["truncate", "iris", "--max-params", 3, "--data", "iris.csv"],
        "--max-params=3 cannot be met",
    ),
    "nothing to cut to": (
        ["truncate", "iris", "--data", "iris.csv", "--out", "iris"],
        "exactly one of --keep, --units and",
    ),
    "two ways to cut": (
        ["truncate", "iris", "--keep", 0.5, "--units", 3, "--data", "iris.csv"],
        "exactly one of --keep,",
    ),
    "max drop": (["compress", "iris", "--data", "iris.csv", "--max-drop", -1, "--out", "iris"], "--max-drop must be"),
    "format": (["export", "iris", "--format", "pickle", "--out", "iris"], "--format must be one of onnx"),
    "no run": (["report", "none"], "none is not a finished run"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_call_that_cannot_be_answered_is_one_sentence(name: str, run: Run, made: Path) -> None:
    frame = pd.DataFrame({"a": range(40), "c": np.linspace(0, 1, 40), "w": ["x", "z"] * 20, "y": [0, 1] * 20})
    write("t.csv", frame)
    Path("t.xlsx").write_bytes(b"PK\x03\x04")
    Path("folder").mkdir()
    os.symlink(made / "iris", "iris")
    os.symlink(made / "iris.csv", "iris.csv")
    before = sorted(Path().rglob("*")) + sorted(made.rglob("*"))
    words, message = WRONG_CALLS[name]
    assert message in one_sentence(run(*words))
    assert sorted(Path().rglob("*")) + sorted(made.rglob("*")) == before, "nothing half-written"


@pytest.mark.parametrize("damage", ["truncated", "edited", "not ours"])
def test_a_bad_model_folder_is_refused_by_every_command(damage: str, run: Run, made: Path) -> None:
    folder = Path("model")
    folder.mkdir()
    weights, config = ((made / "iris" / "model" / name).read_bytes() for name in ("model.safetensors", "config.json"))
    if damage == "truncated":
        weights = weights[: len(weights) // 2]
    elif damage == "edited":
        config = config.replace(b'"epochs": 3', b'"epochs": 4')
    if damage == "not ours":
        (folder / "readme.txt").write_text("hello")
    else:
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "config.json").write_bytes(config)
    table = made / "iris.csv"
    for words in (
        ["predict", folder, table],
        ["inspect", folder],
        ["truncate", folder, "--keep", 0.5, "--data", table],
        ["compress", folder, "--data", table],
        ["export", folder],
    ):
        assert "model" in one_sentence(run(*words))
    assert [path.name for path in Path().iterdir()] == ["model"]


def test_a_full_disk_is_one_sentence_and_the_old_model_survives(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["fit", made / "iris.csv", "--target", "target", "--out", "run", *QUICK, "--quiet"]
    assert run(*words).code == 0
    before = run("predict", "run", made / "iris.csv").out

    def full(contents: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(next(iter(contents))))

    with monkeypatch.context() as patch:
        patch.setattr("awn.files.model_folder.write_files", full)
        said = one_sentence(run(*words, "--seed", 1, "--overwrite"))
    assert "No space left on device" in said
    assert "run/model/model.safetensors" in said
    assert run("predict", "run", made / "iris.csv").out == before


def test_a_fault_of_ours_is_no_bad_input(run: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceback is what a report of it needs."""
    monkeypatch.setattr(run_module, "find_groups", lambda model: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("fit", made / "iris.csv", "--target", "target", "--out", "run", *QUICK)
