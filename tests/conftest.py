"""What every test starts from: one thread, a fixed seed, and the shared tables of cases.py within reach."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

# pytest's importlib mode puts no folder on the path; cases.py is imported by name.
sys.path.insert(0, str(Path(__file__).parent))

from cli_cases import Run, Said

# No test fetches anything: the way out ends at a port where nobody listens, for processes that are started, too.
os.environ["https_proxy"] = "http://127.0.0.1:9"

# Small tensors gain nothing from threads, and with one every sum is made in the same order.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, as the installed program does."""

    def call(*words: Any) -> Said:
        from awn.cli.app import main

        monkeypatch.setattr(sys, "argv", ["awn", *map(str, words)])
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code or 0
        return Said(code, *capsys.readouterr())

    return call
