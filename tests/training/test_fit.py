"""`awn.training.fit`: early stopping, schedules, callbacks, logs, seeds, and going on after a kill."""

from __future__ import annotations

import copy
import io
import json
import math
import random
import signal
import subprocess
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import awn
from awn.cli.display import LiveDisplay, PlainDisplay
from awn.core.resize import Resize
from awn.errors import ArgumentError, CheckpointError, MissingExtraError, NonFiniteError
from awn.training import (
    Callback,
    Cosine,
    Data,
    FitOptions,
    History,
    Milestones,
    MLflowLogger,
    Plateau,
    Progress,
    Schedule,
    TensorBoardLogger,
    Warmup,
    fit,
    flush_denormals,
)
from awn.training import run as run_module
from awn.training.evaluate import accuracy, all_outputs, mean_loss

SHORT = FitOptions(epochs=4, batch_size=16, lr=0.02, patience=None, choose=None)
TERMS = ("total", "data", "weights", "width", "budget")


def rings(samples: int = 64, seed: int = 0) -> Data:
    x = torch.randn(samples, 2, generator=torch.Generator().manual_seed(seed))
    return Data(x, (x.norm(dim=1) > 1.2).long())


def network(units: int = 12, **options: Any) -> awn.AdaptiveMLP:
    family = awn.Exponential.for_units(units)
    return awn.AdaptiveMLP(2, 2, importance=family, generator=torch.Generator().manual_seed(1), **options)


def train(model: nn.Module, options: FitOptions = SHORT, validation: Data | None = None, **more: Any) -> History:
    return fit(model, rings(), validation, loss=awn.likelihood.categorical, options=options, **more)


def scores(*values: float) -> Any:
    """A score that goes through these values, whatever the model is."""
    left = list(values)
    return lambda model, data: left.pop(0)


class Recorder(Callback):
    """Notes every call, and the state after every epoch."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.states: list[dict[str, Any]] = []
        self.widths: list[dict[str, int]] = []

    def on_fit_start(self, progress: Progress) -> None:
        self.calls.append("fit_start")

    def on_step_end(self, progress: Progress, resized: dict[str, Resize]) -> None:
        self.calls.append("step_end")

    def on_epoch_end(self, progress: Progress) -> None:
        self.calls.append("epoch_end")
        self.states.append(copy.deepcopy(progress.model.state_dict()))
        self.widths.append(awn.widths(progress.model) if progress.history[-1]["widths"] else {})

    def on_fit_end(self, progress: Progress) -> None:
        self.calls.append("fit_end")


class Force(Callback):
    """Moves the first layer to another width after each epoch."""

    def __init__(self, *units: int) -> None:
        self.units = list(units)

    def on_step_end(self, progress: Progress, resized: dict[str, Resize]) -> None:
        if progress.step % 4 == 0 and self.units:
            awn.advanced.set_units_(progress.model, {"hidden.0": self.units.pop(0)}, progress.optimizer)


def same_state(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# Early stopping


def test_the_best_state_comes_back_with_its_widths() -> None:
    recorder, model = Recorder(), network()
    options = replace(SHORT, epochs=9, patience=3, resize_every=10**6)
    history = train(
        model, options, rings(seed=1), score=scores(0.1, 0.9, 0.2, 0.9, 0.3), callbacks=[Force(9, 7, 14, 21), recorder]
    )
    assert (
        len(history) == 5
    )  # the best was the second, an equal one is no better, and three without a better one end it
    assert history.widths("hidden.0") == [9, 7, 14, 21, 21]
    assert awn.widths(model) == {"hidden.0": 7} == recorder.widths[1]
    assert same_state(dict(model.state_dict()), recorder.states[1])
    assert not model.training


def test_without_validation_the_last_state_stays_and_there_is_no_score() -> None:
    recorder, model = Recorder(), network()
    history = train(model, callbacks=[recorder])
    assert history.column("score") == [None] * 4
    assert history.column("best") == [False] * 4
    assert history.kept_epoch == 4
    assert same_state(dict(model.state_dict()), recorder.states[-1])


def test_without_patience_all_epochs_run_and_the_best_still_comes_back() -> None:
    recorder, model = Recorder(), network()
    train(model, SHORT, rings(seed=1), score=scores(0.9, 0.1, 0.2, 0.3), callbacks=[recorder])
    assert len(recorder.states) == 4
    assert same_state(dict(model.state_dict()), recorder.states[0])


def test_the_score_is_minus_the_loss_unless_given() -> None:
    model, validation = network(), rings(seed=1)
    history = train(model, SHORT, validation)
    best = max(history.column("score"))
    assert -awn.likelihood.categorical(model(validation.x), validation.y).item() == pytest.approx(best)


# Schedules and clipping


def learning_rates(schedule: Any, *, epochs: int, patience: int | None, reached: list[float]) -> list[float]:
    options = FitOptions(epochs=epochs, batch_size=64, lr=0.1, schedule=schedule, patience=patience, choose=None)
    return train(network(), options, rings(seed=1), score=scores(*reached)).column("lr")


def flushed() -> bool:
    return bool(torch.tensor(1e-40) * 1 == 0)


@pytest.mark.parametrize("before", [False, True])
def test_numbers_too_small_to_matter_are_zero_while_training_and_only_then(before: bool) -> None:
    seen = []

    class Look(Callback):
        def on_epoch_end(self, progress: Progress) -> None:
            seen.append(flushed())

    torch.set_flush_denormal(before)
    try:
        train(network(), replace(SHORT, epochs=1), callbacks=[Look()])
        assert seen == [True]
        assert flushed() == before
        with pytest.raises(NonFiniteError), flush_denormals():
            raise NonFiniteError("lost")
        assert flushed() == before
    finally:
        torch.set_flush_denormal(False)


def test_schedules() -> None:
    falling = [1.0 - 0.1 * epoch for epoch in range(6)]
    assert learning_rates("constant", epochs=3, patience=None, reached=falling[:3]) == [0.1] * 3
    cosine = learning_rates("cosine", epochs=4, patience=None, reached=falling[:4])
    expected = [0.001 + (0.1 - 0.001) * (1 + math.cos(math.pi * epoch / 4)) / 2 for epoch in range(4)]
    assert cosine == pytest.approx(expected)
    # With a patience of 8, more than two epochs without a better score halve it.
    plateau = learning_rates("plateau", epochs=6, patience=8, reached=falling)
    assert plateau == pytest.approx([0.1] * 4 + [0.05] * 2)
    milestones = learning_rates(Milestones((2, 3)), epochs=5, patience=None, reached=falling[:5])
    assert milestones == pytest.approx([0.1, 0.1, 0.01, 0.001, 0.001])
    warmup = learning_rates(Warmup(1, then=Cosine(2)), epochs=4, patience=None, reached=falling[:4])
    assert warmup == pytest.approx([0.05, 0.1, 0.0505, 0.001])


def test_a_schedule_multiplies_the_rate_that_every_group_starts_with() -> None:
    model = network()
    rates = {"fast": 0.4, "slow": 0.02}
    weights, others = (list(part) for part in (model.hidden.parameters(), model.output.parameters()))
    optimizer = torch.optim.Adam(
        [{"params": weights, "lr": rates["fast"]}, {"params": others, "lr": torch.tensor(rates["slow"])}],
        capturable=False,
    )
    seen = []

    class Look(Callback):
        def on_epoch_end(self, progress: Progress) -> None:
            seen.append([float(group["lr"]) for group in progress.optimizer.param_groups])

    train(model, replace(SHORT, epochs=3, schedule=Milestones((1,))), optimizer=optimizer, callbacks=[Look()])
    assert seen == [pytest.approx([0.4, 0.02]), *[pytest.approx([0.04, 0.002])] * 2]


def test_a_constant_schedule_leaves_the_rate_to_callbacks() -> None:
    class Halve(Callback):
        def on_epoch_end(self, progress: Progress) -> None:
            progress.optimizer.param_groups[0]["lr"] /= 2

    rates = train(network(), replace(SHORT, lr=0.08), callbacks=[Halve()]).column("lr")
    assert rates == pytest.approx([0.08, 0.04, 0.02, 0.01])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cosine(0),
        lambda: Cosine(3, end=-0.1),
        lambda: Plateau(0),
        lambda: Plateau(3, factor=0.0),
        lambda: Milestones((0,)),
        lambda: Milestones((1,), factor=math.nan),
        lambda: Warmup(0),
        lambda: Warmup(2, then="cosine"),  # type: ignore[arg-type]
        lambda: FitOptions(schedule=Cosine),  # type: ignore[arg-type]
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(ArgumentError, match="must be"):
        make()


def test_clip_bounds_the_step_of_plain_gradient_descent() -> None:
    model = nn.Linear(2, 2)
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    train(model, replace(SHORT, epochs=1, batch_size=64, clip=1e-3), optimizer=optimizer)
    moved = math.sqrt(sum(float((value - before[name]).square().sum()) for name, value in model.state_dict().items()))
    assert moved == pytest.approx(1e-3, rel=1e-3)


# Callbacks


def stand_in_mlflow(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    logged: list[tuple[Any, ...]] = []
    module = types.ModuleType("mlflow")
    module.log_params = lambda params: logged.append(("params", params))  # type: ignore[attr-defined]
    module.log_metrics = lambda numbers, step: logged.append(("metrics", numbers, step))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return logged


CALLBACKS: dict[str, Any] = {
    "base": lambda folder: Callback(),
    "tensorboard": lambda folder: TensorBoardLogger(folder / "board"),
    "mlflow": lambda folder: MLflowLogger(),
    "live": lambda folder: LiveDisplay(Console(file=io.StringIO(), force_terminal=True)),
    "plain": lambda folder: PlainDisplay(Console(file=io.StringIO())),
}


@pytest.mark.parametrize("name", CALLBACKS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_callback_keeps_the_contract(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be called through a whole run, for a plain model too, twice, and changes nothing."""
    stand_in_mlflow(monkeypatch)
    callback, recorder = CALLBACKS[name](tmp_path), Recorder()
    for callbacks, path in ([callback, recorder], "autograd"), ([callback], "by hand"):
        alone, watched = network(), network()
        train(alone, replace(SHORT, by_hand=path == "by hand"))
        assert train(watched, callbacks=callbacks).path == path  # the recorder looks at every step
        assert same_state(dict(alone.state_dict()), dict(watched.state_dict()))
    assert recorder.calls == ["fit_start", *(["step_end"] * 4 + ["epoch_end"]) * 4, "fit_end"]
    train(nn.Linear(2, 2), validation=rings(seed=1), callbacks=[callback])


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_loggers_can_be_copied_as_clone_does(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_mlflow(monkeypatch)
    assert isinstance(copy.deepcopy(CALLBACKS[name](tmp_path)), Callback)


def test_a_callback_may_stop_the_run() -> None:
    class StopAtTwo(Callback):
        def on_epoch_end(self, progress: Progress) -> None:
            progress.stop = progress.epoch == 2

    assert len(train(network(), callbacks=[StopAtTwo()])) == 2


def test_fit_end_is_not_called_after_an_error() -> None:
    recorder = Recorder()

    def failing(model: nn.Module, data: Data) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(network(), SHORT, rings(seed=1), score=failing, callbacks=[recorder])
    assert recorder.calls == ["fit_start", *["step_end"] * 4]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_every_number(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = train(network(), callbacks=[TensorBoardLogger(tmp_path)])
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.value for event in events.Scalars("widths/hidden.0")] == history.widths("hidden.0")
    assert [event.step for event in events.Scalars("total")] == [1, 2, 3, 4]


def test_mlflow_gets_the_options_and_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = stand_in_mlflow(monkeypatch)
    history = train(network(), callbacks=[MLflowLogger()])
    assert logged[0][0] == "params"
    assert logged[0][1]["batch_size"] == 16
    assert [entry[2] for entry in logged[1:]] == [1, 2, 3, 4]
    assert logged[-1][1]["nu/hidden.0"] == history[-1]["nu"]["hidden.0"]
    assert "score" not in logged[-1][1]


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("mlflow", MLflowLogger, "mlflow"),
        ("torch.utils.tensorboard", lambda: TensorBoardLogger("x"), "tensorboard"),
    ],
)
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, module: str, make: Any, extra: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf'pip install "awn\[{extra}\]"'):
        make()


# History


def test_a_row_has_the_loss_terms_the_score_and_every_layer(tmp_path: Path) -> None:
    model = network(hidden_layers=2)
    budget = awn.Budget(max_units=2)
    history = train(model, validation=rings(seed=1), budget=budget, folder=tmp_path)
    assert len(history) == 4
    for number, row in enumerate(history, start=1):
        assert row["epoch"] == number
        assert row["total"] == pytest.approx(sum(row[name] for name in TERMS[1:]))
        assert row["budget"] > 0
        assert row["seconds"] > 0
        assert list(row["widths"]) == list(row["nu"]) == ["hidden.0", "hidden.1"]
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == history.rows
    assert History.load(tmp_path / "history.jsonl") == history


def test_a_history_is_saved_and_a_damaged_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = History([{"epoch": 1, "score": 0.5}, {"epoch": 2, "score": None}])
    history.save(path)
    assert History.load(path) == history
    path.write_text(path.read_text()[:-5])
    with pytest.raises(CheckpointError, match=r"history.jsonl is not a readable history"):
        History.load(path)


# Plain models, weights, bad arguments


def test_a_model_without_learned_widths_is_trained_by_its_data_term() -> None:
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    history = train(model, replace(SHORT, epochs=30), rings(seed=1))
    assert history[-1]["data"] < 0.7 * history[0]["data"]
    assert history[-1]["widths"] == {}
    assert history[-1]["total"] == history[-1]["data"]


def test_samples_of_weight_zero_do_not_count() -> None:
    """Their targets may be anything."""
    data = rings()
    weight = (torch.arange(64) % 2 * 2).float()
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    models[1].load_state_dict(models[0].state_dict())
    for model, y in zip(models, (data.y, torch.where(weight == 0, 1 - data.y, data.y)), strict=True):
        fit(model, Data(data.x, y, weight), loss=awn.likelihood.categorical, options=SHORT)
    assert same_state(models[0].state_dict(), models[1].state_dict())


def test_bad_data_and_options_are_refused() -> None:
    model = network()
    with pytest.raises(ArgumentError, match="train needs as many targets"):
        fit(model, Data(torch.zeros(3, 2), torch.zeros(2).long()), loss=awn.likelihood.categorical)
    with pytest.raises(ArgumentError, match="validation needs"):
        train(model, validation=Data(torch.zeros(0, 2), torch.zeros(0).long()))
    with pytest.raises(ArgumentError, match="resume=True needs the folder"):
        train(model, resume=True)
    for options in ({"epochs": 0}, {"lr": 0.0}, {"clip": math.nan}, {"schedule": "step"}, {"weight_decay": -1.0}):
        with pytest.raises(ArgumentError, match=next(iter(options))):
            FitOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [network, lambda: nn.Linear(2, 2)], ids=["adaptive", "plain"])
def test_a_loss_that_is_no_number_ends_the_run(make: Any) -> None:
    data = Data(torch.full((8, 2), torch.nan), torch.zeros(8).long())
    with pytest.raises(NonFiniteError, match="not finite"):
        fit(make(), data, loss=awn.likelihood.categorical, options=SHORT)


# Seeds


def test_the_same_seed_gives_the_same_result_and_another_another() -> None:
    models = [network(dropout=0.5) for _ in range(3)]
    losses = []
    for seed, model in zip((3, 3, 4), models, strict=True):
        torch.manual_seed(random.randrange(1000))
        losses.append(train(model, replace(SHORT, seed=seed)).column("total"))
    assert losses[0] == losses[1] != losses[2]
    assert same_state(dict(models[0].state_dict()), dict(models[1].state_dict()))


class Disturb(Callback):
    """Uses all the global generators."""

    def on_epoch_end(self, progress: Progress) -> None:
        random.random()
        np.random.rand()
        torch.rand(1)


@pytest.mark.parametrize("resume", [False, True])
def test_the_global_random_generators_are_left_as_they_were(tmp_path: Path, resume: bool) -> None:
    if resume:
        train(network(), replace(SHORT, epochs=2), folder=tmp_path)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    train(network(dropout=0.5 if not resume else 0.0), folder=tmp_path, resume=resume, callbacks=[Disturb()])
    assert (random.random(), np.random.rand(), torch.rand(1)) == expected


# Resume

CHILD = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from test_fit import Callback, LONG, network, replace, rings, run_module, train

class Kill(Callback):
    def on_step_end(self, progress, resized):
        if progress.step == 22:                            # in the sixth epoch of four steps each
            os.kill(os.getpid(), signal.SIGKILL)

run_module._SECONDS_BETWEEN_CHECKPOINTS = float(sys.argv[3])
options = replace(LONG, by_hand=False)  # as Kill, which looks at every step, has it
train(network(dropout=0.2), options, rings(seed=1), folder=Path(sys.argv[2]), callbacks=[Kill()])
"""
LONG = FitOptions(epochs=9, batch_size=16, lr=0.05, schedule="plateau", patience=4, seed=7, choose=None)


def comparable(history: History) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


@pytest.mark.parametrize("pause", [-1.0, 1e9], ids=["with a checkpoint", "before the first checkpoint"])
def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path: Path, pause: float) -> None:
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(tmp_path), str(pause)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert len(History.load(tmp_path / "history.jsonl")) == 5
    assert (tmp_path / "run.safetensors").exists() == (pause < 0)

    whole, resumed = network(dropout=0.2), network(dropout=0.2)
    options = replace(LONG, by_hand=False)
    expected = train(whole, options, rings(seed=1))
    torch.rand(3)  # the state of the generators outside must not matter
    history = train(resumed, options, rings(seed=1), folder=tmp_path, resume=True)
    assert comparable(history) == comparable(expected)
    assert same_state(dict(whole.state_dict()), dict(resumed.state_dict()))
    assert History.load(tmp_path / "history.jsonl") == history
    assert history.widths("hidden.0")[0] != history.widths("hidden.0")[-1], "no width moved, so the test says little"


SCHEDULES: dict[str, Any] = {
    "constant": "constant",
    "cosine": "cosine",
    "plateau": Plateau(1, factor=0.3),
    "milestones": Milestones((2, 5)),
    "warmup": Warmup(4, then=Plateau(1)),
}


class Stop(Callback):
    def on_epoch_end(self, progress: Progress) -> None:
        if progress.epoch == 5:  # the checkpoint of the fourth epoch is written
            raise KeyboardInterrupt


@pytest.mark.parametrize("given", [False, True], ids=["own optimizer", "given optimizer"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_goes_on_as_if_the_run_had_not_been_stopped(
    name: str, given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(LONG, schedule=SCHEDULES[name], patience=None)

    def run(model: nn.Module, **more: Any) -> History:
        optimizer = torch.optim.SGD(awn.param_groups(model, lr=0.002), momentum=0.9) if given else None
        return train(model, options, rings(seed=1), score=accuracy, optimizer=optimizer, **more)

    whole, stopped, resumed = (network(dropout=0.2) for _ in range(3))
    expected = run(whole)
    monkeypatch.setattr(run_module, "_SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    with pytest.raises(KeyboardInterrupt):
        run(stopped, folder=tmp_path, callbacks=[Stop()])
    history = run(resumed, folder=tmp_path, resume=True)
    assert comparable(history) == comparable(expected)
    assert same_state(dict(whole.state_dict()), dict(resumed.state_dict()))
    if name != "constant":
        assert len(set(history.column("lr"))) > 1, "the rate never changed, so the test says little"


def test_a_run_with_another_schedule_is_not_resumed(tmp_path: Path) -> None:
    """Another class with the same fields is another schedule."""

    @dataclass(frozen=True)
    class Slow(Schedule):
        patience: int = 3
        factor: float = 0.5

        def relative_rate(self, merits: Sequence[float]) -> float:
            return 0.1

    train(network(), replace(SHORT, schedule=Plateau(3)), folder=tmp_path)
    for other in (Plateau(2), Slow(), "constant"):
        with pytest.raises(CheckpointError, match=r"other settings \(schedule\)"):
            train(network(), replace(SHORT, schedule=other), folder=tmp_path, resume=True)  # type: ignore[arg-type]
    train(network(), replace(SHORT, epochs=6, schedule=Plateau(3)), folder=tmp_path, resume=True)  # it has no end


def test_a_finished_run_that_is_resumed_gives_its_best_state_again(tmp_path: Path) -> None:
    first, second = network(), network()
    history = train(first, LONG, rings(seed=1), folder=tmp_path)
    assert train(second, LONG, rings(seed=1), folder=tmp_path, resume=True) == history
    assert same_state(dict(first.state_dict()), dict(second.state_dict()))


def test_a_run_may_be_prolonged(tmp_path: Path) -> None:
    whole, resumed = network(), network()
    expected = train(whole, replace(SHORT, epochs=6))
    train(resumed, SHORT, folder=tmp_path)
    history = train(network(), replace(SHORT, epochs=6), folder=tmp_path, resume=True)
    assert comparable(history) == comparable(expected)


OTHERS: dict[str, dict[str, Any]] = {
    "lr": {"options": replace(SHORT, lr=0.5)},
    "seed": {"options": replace(SHORT, seed=5)},
    "prior": {"prior": awn.Prior(weight_scale=3.0)},
    "budget": {"budget": awn.Budget(max_units=5)},
    "model": {"model": network(quantile=0.8)},
    "samples": {"data": rings(32)},
    "rows of the table": {"data": rings(seed=9)},
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_with_other_settings_is_not_resumed(name: str, tmp_path: Path) -> None:
    train(network(), replace(SHORT, epochs=2), folder=tmp_path)
    content = (tmp_path / "run.safetensors").read_bytes()
    other = {"model": network(), "data": rings(), "options": replace(SHORT, epochs=2), **OTHERS[name]}
    model, data = other.pop("model"), other.pop("data")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(CheckpointError, match=rf"other settings \({name}"):
        fit(model, data, loss=awn.likelihood.categorical, folder=tmp_path, resume=True, **other)
    assert same_state(before, dict(model.state_dict()))
    assert (tmp_path / "run.safetensors").read_bytes() == content


def test_a_cosine_run_is_not_prolonged(tmp_path: Path) -> None:
    cosine = replace(SHORT, schedule="cosine")
    train(network(), cosine, folder=tmp_path)
    with pytest.raises(
        CheckpointError, match=r"a run of 4 epochs .* cannot be continued to 8 .* new run with epochs=8"
    ):
        train(network(), replace(cosine, epochs=8), folder=tmp_path, resume=True)


def test_a_new_run_in_an_old_folder_starts_afresh(tmp_path: Path) -> None:
    """Neither the old rows nor the old checkpoint may come back."""
    train(network(), replace(SHORT, lr=0.1), folder=tmp_path)

    class Stop(Callback):
        def on_step_end(self, progress: Progress, resized: dict[str, Resize]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(network(), SHORT, folder=tmp_path, callbacks=[Stop()])
    history = train(network(), SHORT, folder=tmp_path, resume=True)
    assert len(History.load(tmp_path / "history.jsonl")) == len(history) == 4


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    train(network(), SHORT, folder=tmp_path)
    path = tmp_path / "run.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"run.safetensors cannot be read"):
        train(network(), SHORT, folder=tmp_path, resume=True)


def test_checkpoints_are_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One at the end, and none in between while the time for one has not come."""
    written = []
    monkeypatch.setattr(run_module, "save_run", lambda path, *_, **__: written.append(path))
    train(network(), SHORT, folder=tmp_path)
    assert written == [tmp_path / "run.safetensors"]


def test_batches_are_of_nearly_equal_size_and_hold_every_sample_once() -> None:
    seen: list[Tensor] = []

    class Look(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach())
            return super().forward(x)

    data = rings(65)
    fit(Look(2, 2), data, loss=awn.likelihood.categorical, options=replace(SHORT, epochs=1))
    assert sorted(map(len, seen)) == [13] * 5  # and not 16, 16, 16, 16, 1
    assert torch.equal(torch.cat(seen).sort(0).values, data.x.sort(0).values)


@pytest.mark.parametrize("by_hand", [None, False])
def test_an_epoch_of_two_passes_is_two_epochs_with_one_evaluation(by_hand: bool | None) -> None:
    options, data = replace(SHORT, by_hand=by_hand), rings(64)
    models = [network() for _ in range(2)]
    histories = [
        fit(model, data, loss=awn.likelihood.categorical, options=replace(options, epochs=epochs, passes=4 // epochs))
        for model, epochs in zip(models, (4, 2), strict=True)
    ]
    assert [len(history) for history in histories] == [4, 2]
    assert torch.allclose(*(model(data.x) for model in models), atol=1e-5)


@pytest.mark.parametrize(("ties", "kept"), [("first", 2), ("last", 4)])
def test_of_equally_good_epochs_the_first_or_the_last_is_kept_and_patience_counts_from_the_first(ties, kept):
    recorder = Recorder()
    options = replace(SHORT, epochs=9, patience=3, ties=ties)
    model = network()
    history = train(
        model, options, rings(seed=1), score=scores(0.1, 0.9, 0.5, 0.9, 0.2, 0.9, 0.9, 0.9, 0.9), callbacks=[recorder]
    )
    assert len(history) == 5
    assert history.kept_epoch == kept
    assert history.column("best") == [True, True, False, kept == 4, False]
    for name, value in recorder.states[kept - 1].items():
        assert torch.equal(model.state_dict()[name], value), name


def test_a_validation_loss_is_the_mean_over_all_rows_however_many():
    many = rings(samples=2500, seed=2)
    weighted = Data(many.x, many.y, torch.rand(2500, generator=torch.Generator().manual_seed(3)))
    model = network()
    history = train(model, replace(SHORT, epochs=1), weighted)
    with torch.no_grad():
        expected = awn.likelihood.categorical(model(weighted.x), weighted.y, weighted.weight)
    assert history[0]["validation_loss"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("samples", [1, 1024, 2500])
def test_evaluation_in_parts_finds_what_one_pass_over_all_samples_finds(samples: int, weighted: bool) -> None:
    x, y = rings(samples, seed=2)[:2]
    data = Data(x, y, torch.rand(samples, generator=torch.Generator().manual_seed(3)) if weighted else None)
    model = network().eval()
    with torch.no_grad():
        whole = model(x)
        expected = awn.likelihood.categorical(whole, y, data.weight).item()
    weight = torch.ones(samples, dtype=torch.float64) if data.weight is None else data.weight.double()
    right = whole.argmax(1) == y
    assert torch.allclose(all_outputs(model, x), whole, atol=1e-6)
    assert not all_outputs(model, x).requires_grad
    assert mean_loss(model, data, awn.likelihood.categorical) == pytest.approx(expected, rel=1e-5)
    assert accuracy(model, data) == pytest.approx((weight[right].sum() / weight.sum()).item(), rel=1e-12)


def test_evaluation_never_holds_the_outputs_of_more_than_1024_samples() -> None:
    seen = []

    class Look(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return super().forward(x)

    model, data = Look(2, 2), rings(2500)
    all_outputs(model, data.x)
    accuracy(model, data)
    mean_loss(model, data, awn.likelihood.categorical)
    assert seen == [1024, 1024, 452] * 3
