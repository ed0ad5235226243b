"""What `soak.py` kills: trainings, saves and commands that continue where they were if they are started again.

Each task works in a folder, which is all that is left of it when it is killed. It takes about a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import plotly.graph_objects
import safetensors.torch
import torch
import torch._dynamo

import awn
import awn.cli.app
import awn.report
import awn.tabular.fitting
import awn_paper.experiments
import awn_paper.sweep
from awn.datasets import spiral, split
from awn.errors import AwnError
from awn.files.run_file import read_extra
from awn.files.write import json_file, tensor_file, write_files
from awn.tabular.folder import load_estimator
from awn.training import Data, FitOptions, Shrink, fit, run
from awn_paper.models import MLP, Fixed, Learned
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.settings import Settings, Training

# Imported here, before the processes fork, because each would otherwise spend most of its life importing them.
PRELOADED = (plotly.graph_objects, safetensors.torch, torch._dynamo, awn.report, awn.tabular.fitting, awn_paper.sweep)

EPOCHS = 40


@dataclass(frozen=True)
class Task:
    """Something to kill. `work` starts or continues it, `fault` looks for damage after a kill."""

    work: Callable[[Path], None]
    result: Callable[[Path], Any]
    fault: Callable[[Path], str | None]


# Trainings


def train(folder: Path, *, shrink: bool = False, **options: Any) -> None:
    """Train a network with a checkpoint after every epoch; its end is written to result.safetensors."""
    ordered = options.pop("ordered", 0.0)
    torch.manual_seed(0)
    model = awn.AdaptiveMLP(2, 2, hidden_layers=2, importance=awn.Exponential.for_units(24), ordered=ordered)
    samples = split(spiral(per_class=400))
    data, held_out = (Data(part.x, part.y) for part in (samples.train, samples.test))
    chosen = FitOptions(epochs=EPOCHS, batch_size=50, schedule="cosine", patience=None, **options)
    with mock.patch.object(run, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0):
        history = fit(
            model,
            data,
            held_out,
            loss=awn.likelihood.categorical,
            options=chosen,
            callbacks=[Shrink(0.05, patience=2, start=8)] if shrink else [],
            folder=folder,
            resume=True,
        )
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in history]
    description = {"rows": rows, "widths": awn.widths(model)}
    write_files({folder / "result.safetensors": tensor_file(dict(model.state_dict()), description)})


def choose(folder: Path, *, trained: Path) -> None:
    """Choose the width of a network whose training is finished; it takes most of the time."""
    for name in ("run.safetensors", "history.jsonl"):
        if not (folder / name).is_file():
            write_files({folder / name: (trained / name).read_bytes()})
    train(folder)


def fault_of_training(folder: Path) -> str | None:
    """The checkpoint must be whole, and at most one epoch behind the history."""
    lines = (folder / "history.jsonl").read_bytes().splitlines() if (folder / "history.jsonl").is_file() else []
    try:
        kept = read_extra(folder / "run.safetensors")["epoch"] if (folder / "run.safetensors").is_file() else 0
    except AwnError as error:
        return f"the checkpoint is damaged: {error}"
    whole = sum(_is_json(line) for line in lines)
    return f"{whole - kept} epochs are lost" if whole - kept > 1 else None


def _is_json(line: bytes) -> bool:
    with contextlib.suppress(ValueError):
        return bool(json.loads(line))
    return False


# Saving


def save(folder: Path) -> None:
    """Save two networks over each other, many times."""
    networks = two_networks()
    for number in range(60):
        awn.save(networks[number % 2], folder / "model")


def two_networks() -> list[awn.AdaptiveMLP]:
    torch.manual_seed(0)
    return [awn.AdaptiveMLP(3, 2, layers, importance=awn.Exponential.for_units(40 * layers)) for layers in (1, 2)]


def fault_of_saving(folder: Path) -> str | None:
    """The folder must hold one of the two networks, or nothing if the first save was killed."""
    model = folder / "model"
    if not (model / "model.safetensors").is_file():
        return None
    try:
        found = awn.load(model).state_dict()
    except AwnError as error:
        return str(error)
    states = [one.state_dict() for one in two_networks()]
    alike = [state for state in states if found.keys() == state.keys()]
    same = any(all(torch.equal(found[name], state[name]) for name in state) for state in alike)
    return None if same else "the folder holds neither of the two models"


# Commands


def fit_table(folder: Path) -> None:
    """`awn fit` on a table of 240 rows."""
    table = folder / "table.csv"
    if not table.is_file():
        generator = np.random.default_rng(0)
        x = generator.normal(size=(240, 3)).round(3)
        label = np.where(x[:, 0] * x[:, 1] > 0, "yes", "no")
        frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "sold": label})
        write_files({table: frame.to_csv(index=False).encode()})
        write_files({folder / "options.json": json_file({"units": 16, "members": 1, "batch_size": 40})})
    again = ["--resume"] if (folder / "out" / "run").is_dir() else ["--overwrite"]
    words = ["fit", table, "--target", "sold", "--out", folder / "out", "--epochs", 12, "--no-compare", "--quiet"]
    with mock.patch.object(run, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0):
        _command(*words, "--config", folder / "options.json", *again)


def run_experiment(folder: Path) -> None:
    """`awn paper run` on a tiny experiment: five runs of two networks."""
    os.chdir(folder)  # interrupted runs are in runs/paper
    with (
        mock.patch.object(awn_paper.experiments, "find_experiment", return_value=tiny_experiment()),
        mock.patch.object(run, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0),
    ):
        _command("paper", "run", "tiny", "--root", folder / "results", "--resume", "--quiet")


def tiny_experiment() -> Experiment:
    fixed = Settings("DoubleMoon", MLP(), Fixed(4), Training(6, 512))
    adaptive = fixed.change(widths=Learned(awn.Exponential.for_units(12)))
    cases = (Case("AWN", (adaptive,)), Case("Fixed", fixed.vary(units=(4, 8))))
    return Experiment("tiny", "", "", Protocol(cases, 1, ""), Protocol(cases, 1, ""))


def _command(*words: Any) -> None:
    with mock.patch.object(sys, "argv", ["awn", *map(str, words)]):
        try:
            awn.cli.app.main()
        except SystemExit as end:
            if end.code:
                raise


def _result_of_experiment(folder: Path) -> Any:
    """All records, without what is different in every run: times, and the name of the command."""
    found = {path.relative_to(folder): json.loads(path.read_bytes()) for path in folder.glob("results/**/*.json")}
    return {
        str(path): {name: value for name, value in record.items() if name not in ("seconds", "from")}
        for path, record in found.items()
    }


def _fault_of_experiment(folder: Path) -> str | None:
    faults = [fault_of_training(path) for path in (folder / "runs/paper").glob("*")]
    broken = [str(path) for path in folder.glob("results/**/*.json") if not _is_json(path.read_bytes())]
    return next((fault for fault in faults if fault), f"{broken[0]} is damaged" if broken else None)


def _fault_of_table(folder: Path) -> str | None:
    model = folder / "out" / "model"
    if (model / "model.safetensors").is_file():
        try:
            load_estimator(model)
        except AwnError as error:
            return str(error)
    return fault_of_training(folder / "out" / "run")


def _bytes_of(*names: str) -> Callable[[Path], Any]:
    return lambda folder: [(folder / name).read_bytes() for name in names]


def make_tasks(folder: Path) -> dict[str, Task]:
    """All tasks by name; `folder` is for what they share."""
    trained = folder / "trained"
    result = _bytes_of("result.safetensors")
    saved = ("out/model/model.safetensors", "out/model/config.json")
    return {
        "fit, by hand": Task(partial(train, by_hand=True, choose=None), result, fault_of_training),
        "fit, autograd": Task(partial(train, by_hand=False, choose=None), result, fault_of_training),
        "fit, ordered": Task(partial(train, ordered=0.5, choose=None), result, fault_of_training),
        "fit, Shrink": Task(partial(train, shrink=True), result, fault_of_training),
        "fit, then choose": Task(train, result, fault_of_training),
        "choose": Task(partial(choose, trained=trained), result, fault_of_training),
        "save": Task(save, _bytes_of("model/model.safetensors", "model/config.json"), fault_of_saving),
        "awn fit": Task(fit_table, _bytes_of(*saved), _fault_of_table),
        "awn paper run": Task(run_experiment, _result_of_experiment, _fault_of_experiment),
    }
