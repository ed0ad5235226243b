"""Faults from outside: kills, disks that are full or read-only, too little memory, SIGTERM. A run can be resumed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import awn
from awn.files.write import tensor_file
from cli_cases import Run, one_sentence

ROOT = Path(__file__).parents[1]
HERE = {**os.environ, "PYTHONPATH": str(Path(awn.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
FASTEST = ["fit, by hand", "fit, autograd", "choose", "save"]


def test_killed_runs_end_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """20 kills of the quickest tasks, and widths that change at random: `make soak` on a small scale."""
    words = ["--kills", "20", "--steps", "400", "--only", *FASTEST, "--out", str(tmp_path / "soak.json")]
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/soak.py", *words], env=HERE, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["kills"] == 20
    assert all(count["equal"] == count["runs"] > 0 for count in found["by_task"].values())
    assert all(swing["resized"] > 0 and not swing["faults"] for swing in found["widths"].values())


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(90, 2)).round(3)
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "sold": np.where(x[:, 0] > 0, "yes", "no")}).to_csv(
        "sold.csv", index=False
    )
    Path("options.json").write_text('{"members": 1, "units": 8}')
    monkeypatch.setattr("awn.training.run._SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    return Path("sold.csv")


def fit_words(table: Path, epochs: int = 3) -> list[Any]:
    words = ["fit", table, "--target", "sold", "--out", "run", "--config", "options.json", "--epochs", epochs]
    return [*words, "--no-compare", "--quiet"]


def weights(folder: str = "run") -> bytes:
    return (Path(folder) / "model" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS], ids=["full", "read-only"])
def test_a_disk_that_fails_is_named_and_the_run_resumes(
    number: int, table: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*fit_words(table)).code == 0
    expected = weights()
    written, real = [], os.fsync

    def failing(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) == 4:  # the second checkpoint or so
            raise OSError(number, os.strerror(number))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        said = one_sentence(run(*fit_words(table), "--overwrite"))
    assert "run/run/run.safetensors" in said
    assert os.strerror(number) in said
    assert "--resume" in said
    assert run(*fit_words(table), "--resume").code == 0
    assert weights() == expected


def test_a_folder_that_cannot_be_made_is_named(table: Path, run: Run) -> None:
    said = one_sentence(run(*fit_words(table), "--out", "/proc/awn"))
    assert "/proc/awn" in said


def test_a_checkpoint_that_does_not_fit_into_memory_is_an_error_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """What safetensors, which is written in Rust, raises if it runs out of memory."""

    def panic(*_: Any, **__: Any) -> bytes:
        raise PanicException("capacity overflow")

    monkeypatch.setattr("safetensors.torch.save", panic)
    with pytest.raises(MemoryError, match="a file of 12 bytes cannot be prepared in memory"):
        tensor_file({"a": torch.zeros(3)}, None)


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="reads the size of the process from /proc")
@pytest.mark.parametrize("path", ["by-hand", "autograd"])
def test_a_run_that_grew_out_of_memory_resumes_with_fewer_units(path: str, tmp_path: Path) -> None:
    script = [sys.executable, ROOT / "tests/fault_cases.py", path, tmp_path]
    done = subprocess.run(script, env=HERE, capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    (stopped,) = (line for line in lines if line.startswith("stopped by"))
    assert "ResizeError" in stopped
    assert "can be resumed with max_units set" in stopped
    epochs = [int(line.split()[1]) for line in lines if line.startswith("epoch")]
    assert epochs == [1, 2, 3, 4, 5, 6], "no epoch is lost, and none is repeated"
    assert lines[-1].startswith("resumed to epoch 6")
    assert int(lines[-1].split()[-1]) <= 1500


def test_a_request_to_end_says_how_to_resume(table: Path, run: Run) -> None:
    """SIGTERM is what a cluster sends before it ends a job."""
    words = [str(word) for word in fit_words(table, epochs=100_000)]
    child = subprocess.Popen([sys.executable, "-m", "awn", *words], env=HERE, stderr=subprocess.PIPE, text=True)
    history = Path("run/run/history.jsonl")
    waited = time.monotonic()
    while not (history.is_file() and history.stat().st_size) and time.monotonic() < waited + 300:
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=300)
    assert child.returncode == 1
    assert "To resume, run the same command with --out run --resume." in said
    assert "Traceback" not in said
