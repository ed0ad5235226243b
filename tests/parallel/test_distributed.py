"""Several processes train one model: as one process would, and never silently otherwise."""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import awn
import rank_cases
from awn.tabular import load_estimator
from cli_cases import Run
from rank_cases import Ranks


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    three = Ranks()
    yield three
    three.stop()


def close(one: Any, other: Any) -> bool:
    """Equal up to the order of sums."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return one == pytest.approx(other, rel=1e-7, abs=1e-9) if isinstance(one, float) else one == other


TRAININGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "SGD": {"optimizer": "SGD"},
    "accumulated": {"accumulate": True},
    "static graph": {"options": {"static_graph": True}},
    "gradients as views": {"options": {"gradient_as_bucket_view": True}},
    "unused are searched": {"options": {"find_unused_parameters": True}},
    "small buckets": {"options": {"bucket_cap_mb": 0.001}},
    "communication hook": {"hook": True},
    "shared width": {"model": {"hidden_layers": 3, "shared_width": True}},
    "ordered": {"model": {"ordered": 0.7}},
    "ordered, accumulated": {"model": {"ordered": 0.7}, "accumulate": True},
    "ordered, unused are searched": {"model": {"ordered": 0.7}, "options": {"find_unused_parameters": True}},
}


# Options of DDP itself: one process has none, and so is trained once for all of them.
OF_DDP = ("options", "hook")


def train_alone(case: str) -> dict[str, Any]:
    own = {name: value for name, value in TRAININGS[case].items() if name not in OF_DDP}
    return _train_alone(json.dumps(own))


@functools.cache
def _train_alone(own: str) -> dict[str, Any]:
    return rank_cases.train(0, **json.loads(own))


@pytest.mark.parametrize(("number", "case"), [(2, case) for case in TRAININGS] + [(3, "plain"), (3, "accumulated")])
def test_ranks_train_as_one_process_on_all_their_batches(ranks: Ranks, number: int, case: str) -> None:
    """Gradients and widths at every step, the weights and the optimizer's state at the end."""
    alone = train_alone(case)
    assert sum(bool(step["resized"]) for step in alone["steps"]) >= 50
    assert alone["replaced"] >= 10
    together = ranks.run(rank_cases.train, number, number, **TRAININGS[case])
    for told in together:
        assert not isinstance(told, Exception), told
        for step, (here, there) in enumerate(zip(told["steps"], alone["steps"], strict=True)):
            assert here["widths"] == there["widths"], step
            assert here["prefix"] == there["prefix"], step
            assert close(here["gradients"], there["gradients"]), step
        assert told["replaced"] == alone["replaced"]
        assert close(told["parameters"], alone["parameters"])
        assert close(told["state"], alone["state"])
        assert told["parameters"] == together[0]["parameters"], "to the last bit"
        assert bool(told["hook"]) == (case == "communication hook")
        if told["hook"]:  # at every step, those after a reallocation among them
            assert told["hook"] >= len(told["steps"])


# Ranks that do not do the same


@pytest.mark.parametrize("number", [2, 3])
def test_a_rank_that_drifts_is_named_on_every_rank(ranks: Ranks, number: int) -> None:
    for told in ranks.run(rank_cases.drift, number):
        assert "RankError" in told["error"]
        assert "layer 'hidden.1' has 12 units and goes to 20 on rank 1, but 12 and 12 on rank 0" in told["error"]
        assert told["untouched"]


def test_ranks_that_start_from_other_widths_are_told(ranks: Ranks) -> None:
    """In one capacity: DDP itself sees the same shapes, and nothing to complain of."""
    for told in ranks.run(rank_cases.built_apart, 2):
        assert isinstance(told, awn.AwnError)
        assert "has 20 units" in str(told)


def test_a_rank_that_is_left_alone_says_so(ranks: Ranks) -> None:
    left, gone = ranks.run(rank_cases.leaves, 2)
    assert gone is None
    assert isinstance(left, awn.AwnError)
    assert "rank 0 of 2 cannot reach the others" in str(left)


# The model inside a DDP, and the DDP itself


def test_resizing_the_model_inside_is_refused(ranks: Ranks) -> None:
    for errors in ranks.run(rank_cases.resize_inside, 2):
        assert len(errors) == 1
        assert "awn.resize_(ddp, optimizer)" in errors[0]


def test_units_set_inside_or_otherwise_on_some_rank_are_refused(ranks: Ranks) -> None:
    for inside, apart, roomier in ranks.run(rank_cases.set_units_inside, 2):
        assert "passed without the DistributedDataParallel" in inside
        assert "goes to 15 on rank 1, but 13 and 14 on rank 0" in apart
        assert "in a capacity of 72 and 64" in roomier


def test_widths_do_not_change_where_ranks_may_run_out_of_batches(ranks: Ranks) -> None:
    for told in ranks.run(rank_cases.joined, 2):
        assert "inside DistributedDataParallel.join()" in str(told)


def test_a_ddp_may_be_compiled(ranks: Ranks, tmp_path: Path) -> None:
    first, second = ranks.run(rank_cases.compiled, 2, 2, str(tmp_path))
    assert first["rows"] == second["rows"] == [10, 10], "each has its part of every batch"
    assert (first["written"], second["written"]) == (True, False)


def test_an_error_of_the_model_itself_is_not_taken_for_a_lost_rank(ranks: Ranks) -> None:
    for told in ranks.run(rank_cases.skip_connection, 2):
        assert str(told) == "the skip connection has 3 channels"


def test_a_rank_that_is_lost_in_training_is_told_of_in_a_sentence(ranks: Ranks) -> None:
    left, gone = ranks.run(rank_cases.lost_in_training, 2, patience=timedelta(seconds=8))
    assert isinstance(gone, KeyError)
    assert isinstance(left, awn.AwnError)
    assert "rank 0 of 2 cannot reach the others" in str(left)


def test_a_stale_ddp_is_refused(ranks: Ranks) -> None:
    for error in ranks.run(rank_cases.load_inside, 2):
        assert "replaced without its DistributedDataParallel" in error


def test_a_model_may_be_changed_before_it_is_wrapped(ranks: Ranks) -> None:
    first, second = ranks.run(rank_cases.change_then_wrap, 2)
    assert first == second
    assert first["hidden.0"] == pytest.approx(40, abs=1)


def test_loading_through_the_ddp(ranks: Ranks) -> None:
    alone = rank_cases.load_through(0, 1)
    for told in ranks.run(rank_cases.load_through, 2, 2):
        assert close(told, alone)


def test_every_function_takes_a_ddp(ranks: Ranks, tmp_path: Path) -> None:
    bare = rank_cases.build()
    expected = awn.objective(
        rank_cases.torch.zeros(()), bare, 10, prior=awn.Prior(weight_scale={"hidden.*": 1.0, "output": None})
    ).item()
    widths = {"hidden.0": 12, "hidden.1": 12}
    for rank, told in enumerate(ranks.run(rank_cases.everything_else, 2, str(tmp_path))):
        assert told["widths"] == widths
        assert told["layers"] == ["hidden.0", "hidden.1"]
        assert told["parameters"]
        assert told["prior"] == expected
        assert told["finalize"] < 1e-12
        assert told["classes"] == ["Sequential", "AdaptiveMLP"]
        assert told["saved"] == (widths if rank == 0 else False), "rank 0 alone writes"


def test_options_that_hold_on_to_parameters_are_refused(ranks: Ranks) -> None:
    for told in ranks.run(rank_cases.delayed, 2):
        assert isinstance(told, awn.AwnError)
        assert "delay_all_reduce_named_params" in str(told)


def test_an_optimizer_spread_over_the_ranks_is_refused(ranks: Ranks) -> None:
    for told in ranks.run(rank_cases.dealt_out, 2):
        assert isinstance(told, awn.AwnError)
        assert "ZeroRedundancyOptimizer" in str(told)


def test_what_every_rank_works_out_is_not_broadcast(ranks: Ranks) -> None:
    assert ranks.run(rank_cases.broadcast_buffers, 2, False) == [[], []]
    statistics = [f"norms.{layer}.{name}" for layer in (0, 1) for name in ("running_mean", "running_var")]
    for told in ranks.run(rank_cases.broadcast_buffers, 2, True):
        assert sorted(name for name in told if not name.endswith("num_batches_tracked")) == statistics


def test_fully_shard_is_refused_with_the_reason(ranks: Ranks) -> None:
    for told in ranks.run(rank_cases.sharded, 2, 2):
        assert not isinstance(told, Exception), told
        by_torch, *by_awn = told
        assert "scalar parameters" in by_torch  # ν is one number
        assert len(by_awn) == 9
        assert all("sharded" in sentence and "DTensor" in sentence for sentence in by_awn)


# Runs


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (2, 1), (1, 2)])
def test_a_run_resumes_on_another_number_of_ranks(ranks: Ranks, tmp_path: Path, before: int, after: int) -> None:
    path, whole = str(tmp_path / "run.safetensors"), str(tmp_path / "whole.safetensors")
    expected = rank_cases.save_or_resume(0, 1, whole, 24, False)
    ranks.run(rank_cases.save_or_resume, before, before, path, 12, False)
    for told in ranks.run(rank_cases.save_or_resume, after, after, path, 24, True):
        assert told["first"] == 12
        assert told["widths"] == expected["widths"]
        assert close(told["parameters"], expected["parameters"])


@pytest.mark.parametrize(("number", "options"), [(2, {}), (3, {}), (2, {"ordered": 0.7})])
def test_fit_is_the_same_on_any_number_of_ranks(
    ranks: Ranks, tmp_path: Path, number: int, options: dict[str, Any]
) -> None:
    alone = rank_cases.run_fit(0, 1, str(tmp_path / "alone"), 5, **options)
    told = ranks.run(rank_cases.run_fit, number, number, str(tmp_path / "run"), 5, **options)
    for rank, each in enumerate(told):
        assert not isinstance(each, Exception), each
        assert close(each["rows"], alone["rows"])
        assert close(each["state"], alone["state"])
        assert each["state"] == told[0]["state"]
        assert each["called"] == (5 if rank == 0 else 0), "callbacks are called on rank 0"
        assert not each["training"]
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == 5


def test_fit_resumes_on_another_number_of_ranks(ranks: Ranks, tmp_path: Path) -> None:
    alone = rank_cases.run_fit(0, 1, "", 6)
    stopped = ranks.run(rank_cases.run_fit, 2, 2, str(tmp_path), 6, stop=3)
    assert [len(each["rows"]) for each in stopped] == [3, 3], "a callback on rank 0 stops all"
    ranks.run(rank_cases.run_fit, 2, 2, str(tmp_path), 3)
    for each in ranks.run(rank_cases.run_fit, 3, 3, str(tmp_path), 6, resume=True):
        assert not isinstance(each, Exception), each
        assert close(each["rows"], alone["rows"])
        assert close(each["state"], alone["state"])


@pytest.mark.parametrize("ordered", [0.0, 0.7])
def test_a_resumed_fit_with_dropout_is_the_uninterrupted_one(ranks: Ranks, tmp_path: Path, ordered: float) -> None:
    """Every rank drops units of its own, and the same ones after a resume."""
    options = {"dropout": 0.3, "batch_norm": True, "ordered": ordered}
    whole = ranks.run(rank_cases.run_fit, 2, 2, str(tmp_path / "whole"), 4, **options)
    ranks.run(rank_cases.run_fit, 2, 2, str(tmp_path / "run"), 2, **options)
    resumed = ranks.run(rank_cases.run_fit, 2, 2, str(tmp_path / "run"), 4, resume=True, **options)
    for here, there in zip(resumed, whole, strict=True):
        assert (here["rows"], here["state"]) == (there["rows"], there["state"])
    assert whole[0]["state"] == whole[1]["state"], "the statistics of batch norms too"


def test_rank_0_chooses_the_width_for_all(ranks: Ranks) -> None:
    (alone,) = ranks.run(rank_cases.run_fit, 1, 1, "", 4, choose="smallest")
    first, second = ranks.run(rank_cases.run_fit, 2, 2, "", 4, choose="smallest")
    assert sum(alone["chosen"].values()) < sum(alone["rows"][-1]["widths"].values())
    assert first["chosen"] == first["widths"] == second["widths"] == alone["widths"]
    assert second["chosen"] is None
    assert first["state"] == second["state"]
    assert close(first["state"], alone["state"])


def test_all_ranks_follow_the_early_cut_of_wide_layers(ranks: Ranks) -> None:
    (alone,) = ranks.run(rank_cases.run_fit, 1, 1, "", 10, choose="epoch", narrow=4)
    first, second = ranks.run(rank_cases.run_fit, 2, 2, "", 10, choose="epoch", narrow=4)
    before, after = (sum(alone["rows"][epoch]["widths"].values()) for epoch in (0, 1))
    assert after < 0.8 * before
    assert [row["widths"] for row in first["rows"]] == [row["widths"] for row in alone["rows"]]
    assert first["state"] == second["state"]


def test_batches_smaller_than_the_ranks_are_refused(ranks: Ranks) -> None:
    for told in ranks.run(rank_cases.tiny_batches, 3, 3):
        assert isinstance(told, awn.AwnError)
        assert "cannot be split over 3 ranks" in str(told)


def test_the_command_under_torchrun(ranks: Ranks, tmp_path: Path) -> None:
    table = str(Path(__file__).parents[2] / "examples" / "tables" / "breast_cancer.csv")
    config = tmp_path / "c.json"
    config.write_text('{"choose": null, "members": 1}')  # a single process chooses over folds, and averages
    words = ["fit", table, "--target", "diagnosis", "--epochs", "3", "--no-compare", "--json"]
    words += ["--config", str(config), "--out"]
    (first, second) = ranks.run(rank_cases.command, 2, 2, free_port(), [*words, str(tmp_path / "two")], joined=False)
    (alone,) = ranks.run(rank_cases.command, 1, 1, free_port(), [*words, str(tmp_path / "one")], joined=False)
    assert second == (0, "", ""), "rank 0 alone prints"
    together, single = json.loads(first[1]), json.loads(alone[1])
    assert together["widths"] == single["widths"]
    assert together["scores"] == pytest.approx(single["scores"], abs=0.01)
    assert awn.widths(awn.load(tmp_path / "two" / "model")) == together["widths"]
    assert (tmp_path / "two" / "report.html").is_file()


def test_many_runs_are_not_torchruns_business(ranks: Ranks, tmp_path: Path) -> None:
    words = ["fit", "one.csv", "two.csv", "--target", "y", "--out", str(tmp_path / "many")]
    for code, out, complaint in ranks.run(rank_cases.command, 2, 2, free_port(), words, joined=False):
        assert (code, out) == (2, "")
        assert "--workers or --ray" in complaint


# Lightning

LIGHTNING: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulated": {"accumulate": 2},
    "manual": {"manual": True},
    "static graph": {"static_graph": True},
    "gradients as views": {"gradient_as_bucket_view": True},
    "resumed": {"resumed": True},
}


@pytest.mark.parametrize("case", LIGHTNING)
def test_lightnings_ranks_train_as_one_process_does(ranks: Ranks, tmp_path: Path, case: str) -> None:
    alone_in = {name: value for name, value in LIGHTNING[case].items() if name in ("accumulate", "manual")}
    (alone,) = ranks.run(rank_cases.lightning_fit, 1, 1, 0, str(tmp_path / "one"), joined=False, **alone_in)
    words = [2, free_port(), str(tmp_path / "two")]
    together = ranks.run(rank_cases.lightning_fit, 2, *words, joined=False, **LIGHTNING[case])
    assert not isinstance(alone, Exception), alone
    assert alone["replaced"] >= 10
    assert len({tuple(widths.values()) for widths in alone["widths"]}) >= 10
    for told in together:
        assert not isinstance(told, Exception), told
        assert told["widths"] == alone["widths"]
        assert told["replaced"] == alone["replaced"]
        assert told["samples"] == 240, "of the whole set"
        assert close(told["parameters"], alone["parameters"])
        assert told["parameters"] == together[0]["parameters"], "to the last bit"
        assert told["logged"] == alone["logged"]


def test_lightnings_manual_steps_on_a_static_graph_are_refused(ranks: Ranks, tmp_path: Path) -> None:
    words = [2, free_port(), str(tmp_path)]
    for told in ranks.run(rank_cases.lightning_fit, 2, *words, joined=False, manual=True, static_graph=True):
        assert isinstance(told, awn.AwnError)
        assert "static_graph=True" in str(told)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


DYING_ONCE = """
import contextlib, os, socket, time
import awn.training.loop as loop, awn.training.run as run
from awn.cli.app import main

run._SECONDS_BETWEEN_CHECKPOINTS = 0.0
steps = []

def cut_off():
    for number in range(3, 1024):
        with contextlib.suppress(OSError):
            socket.socket(fileno=number).shutdown(socket.SHUT_RDWR)

def resize(*args):
    steps.append(args)
    if len(steps) == 20 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        cut_off()
        time.sleep(60)  # out of reach, but not gone yet: torchrun would end rank 0 before it has said so
    return found(*args)

found, loop.resize_ = loop.resize_, resize
main()
"""


def test_the_command_goes_on_where_torchrun_starts_it_again(tmp_path: Path) -> None:
    rows = "\n".join(f"{n},{n % 7},{'ab'[n % 2]}" for n in range(120))
    (tmp_path / "table.csv").write_text(f"a,b,y\n{rows}\n")
    (tmp_path / "dying.py").write_text(DYING_ONCE)
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    words += ["--standalone", "dying.py", "fit", "table.csv", "--target", "y", "--out", "out"]
    job = subprocess.run(
        [*words, "--epochs", "10", "--no-compare"],
        env={**os.environ, "PYTHONPATH": str(Path(awn.__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert job.returncode == 0, job.stderr
    assert (tmp_path / "out" / "report.json").is_file()
    epochs = [int(number) for number in re.findall(r"^epoch (\d+) ", job.stderr, re.MULTILINE)]
    assert epochs == sorted(set(epochs)), "each at most once: the second start goes on with the first"
    assert (epochs[0], epochs[-1]) == (1, 10)
    assert "cannot reach the others" in job.stderr
    assert "To resume, run the same command with --out out --resume." in job.stderr


def test_a_run_to_overwrite_is_not_gone_on_with_after_a_restart(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    """What lies in the folder may be of another run, with other settings."""
    table = str(Path(__file__).parents[2] / "examples" / "tables" / "breast_cancer.csv")
    words = ["fit", table, "--target", "diagnosis", "--epochs", "1", "--no-compare", "--out", str(tmp_path / "out")]
    assert run(*words).code == 0
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert run(*words).code == 0, "the run that is there is finished"
    assert run(*words, "--hidden-layers", 3).code == 2, "it has other settings"
    assert run(*words, "--hidden-layers", 3, "--overwrite").code == 0
    assert len(load_estimator(tmp_path / "out" / "model").widths_) == 3


DYING = """
import os, sys
import torch
from torch.nn.parallel import DistributedDataParallel
import awn, rank_cases
from awn.parallel.torchrun import torchrun_group

torch.set_num_threads(1)
with torchrun_group() as rank:
    model = DistributedDataParallel(rank_cases.build())
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.02, width_lr=0.06))
    for step in range(12):
        data = rank_cases.samples(12, seed=step)
        own = rank_cases.Data(*(part.tensor_split(2)[rank] for part in data[:2]))
        if step == 7 and rank == 1:
            os._exit(3)
        optimizer.zero_grad()
        rank_cases.loss_of(model, own).backward()
        optimizer.step()
        awn.resize_(model, optimizer)
        awn.save_run(sys.argv[1], model, optimizer, extra={"step": step + 1})
"""


def test_a_rank_that_dies_ends_the_job_and_the_checkpoint_goes_on(ranks: Ranks, tmp_path: Path) -> None:
    script, path = tmp_path / "dying.py", tmp_path / "run.safetensors"
    script.write_text(DYING)
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    folders = os.pathsep.join([str(Path(awn.__file__).parents[1]), str(Path(__file__).parents[1])])
    job = subprocess.run(
        [*words, str(script), str(path)],
        env={**os.environ, "PYTHONPATH": folders, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert job.returncode == 1
    assert "exitcode  : 3" in job.stderr, job.stderr
    assert "rank      : 1 (local_rank: 1)" in job.stderr, job.stderr
    expected = rank_cases.save_or_resume(0, 1, str(tmp_path / "whole.safetensors"), 12, False)
    for told in ranks.run(rank_cases.save_or_resume, 3, 3, str(path), 12, True):
        assert told["first"] == 7
        assert close(told["parameters"], expected["parameters"])


SPAWN = """
import sys
sys.path.insert(0, {tests!r})
import warnings
warnings.simplefilter("ignore")
import lightning.pytorch as pl, torch
from torch.utils.data import DataLoader, TensorDataset
import awn
from lightning_cases import Regressor, callback

if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(64, 3)
    data = DataLoader(TensorDataset(x, x[:, :1]), batch_size=16)
    model = Regressor(awn.AdaptiveMLP(3, 1, importance=awn.Exponential.for_units(40)))
    before = awn.widths(model)
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    options = dict(accelerator="cpu", devices=2, strategy="ddp_spawn", max_epochs=4) | dict.fromkeys(off, False)
    trainer = pl.Trainer(callbacks=[callback()], **options)
    trainer.fit(model, data)
    print(before != awn.widths(model), model.network(x).isfinite().all().item())
"""


def test_widths_are_learned_in_processes_that_lightning_spawns(tmp_path: Path) -> None:
    """ddp_spawn pickles the model on its way there, and loads its state dict on the way back."""
    script = tmp_path / "spawned.py"
    script.write_text(SPAWN.format(tests=str(Path(__file__).parents[1])))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["True", "True"], done.stderr[-2000:]
