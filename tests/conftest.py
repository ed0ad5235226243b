"""What every test starts from: one thread, a fixed seed, and the shared tables of cases.py within reach."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# pytest's importlib mode puts no folder on the path; cases.py is imported by name.
sys.path.insert(0, str(Path(__file__).parent))

# Small tensors gain nothing from threads, and with one every sum is made in the same order.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)
