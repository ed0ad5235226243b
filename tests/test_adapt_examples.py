"""The examples of adapt_ run from end to end on little data: handwritten digits, a text, and made graphs."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from awn.training.data import Data
from awn_paper import data
from awn_paper.data.dataset import Dataset
from awn_paper.data.graphstore import Graphs
from awn_paper.data.source import Source

EXAMPLES = Path(__file__).parent.parent / "examples"


def digits() -> Dataset:
    """scikit-learn's digits in MNIST's layout: bytes of 28 × 28 pixels."""
    images, labels = (torch.from_numpy(part) for part in (load_digits().images, load_digits().target))
    large = torch.nn.functional.interpolate(images[:, None].float() * 255 / 16, size=(28, 28)).byte()
    parts = [Data(large[start:end], labels[start:end].long()) for start, end in ((0, 600), (600, 700), (700, 900))]
    return Dataset("digits", *parts, inputs=1, outputs=10)


def rings_and_stars() -> Dataset:
    """Graphs of five nodes in a ring, or around one of them."""
    ring = torch.tensor([[0, 1, 2, 3, 4, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 0, 1, 2, 3, 4]])
    star = torch.tensor([[0, 0, 0, 0, 1, 2, 3, 4, 0, 0], [1, 2, 3, 4, 0, 0, 0, 0, 1, 2]])
    kinds = torch.arange(100) % 2
    edges: list[Tensor] = [(ring, star)[int(kind)] for kind in kinds]
    starts = torch.arange(101)
    graphs = Graphs(torch.ones(500, 3), 5 * starts, torch.cat(edges, dim=1), 10 * starts)
    parts = [Data(starts[begin:end], kinds[begin:end]) for begin, end in ((0, 60), (60, 80), (80, 100))]
    return Dataset("rings and stars", *parts, inputs=3, outputs=2, graphs=graphs)


@pytest.fixture(autouse=True)
def little_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load", lambda name: rings_and_stars() if name == "NCI1" else digits())
    monkeypatch.setattr(Source, "read", lambda self: Path(__file__).read_bytes() * 2)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "training", raising=False)


def run(name: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", [name, *words])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


@pytest.mark.parametrize(
    ("name", "layers", "steps", "bar"),
    [
        ("adapt_mlp", 2, 60, 0.7),
        ("adapt_resnet", 6, 45, 0.3),
        ("adapt_rnn", 2, 40, 0.25),
        ("adapt_transformer", 4, 20, 4.5),  # nats a byte, where guessing gives 5.5
        ("adapt_gin", 4, 30, 0.8),
    ],
)
def test_an_example_trains_both_and_writes_its_row(
    name: str, layers: int, steps: int, bar: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "adapt_gin":
        pytest.importorskip("torch_geometric")
    out = tmp_path / f"{name}.json"
    run(name, monkeypatch, "--steps", str(steps), "--rows", "200", "--results", str(out))
    row = json.loads(out.read_text())["row"]
    assert len(row["before"]) == len(row["after"]) == layers
    assert row["before"] != row["after"]
    if row["metric"] == "accuracy":
        assert min(row["fixed"], row["adaptive"]) > bar
    else:
        assert max(row["fixed"], row["adaptive"]) < bar


def test_the_rows_make_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("adapt_mlp", monkeypatch, "--steps", "2", "--rows", "50", "--results", str(tmp_path / "adapt_mlp.json"))
    capsys.readouterr()
    run("training", monkeypatch, str(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| model |")
    assert lines[2].startswith("| MLP on MNIST, 2 steps (accuracy) | 2 | 512 → ")


def test_a_trained_network_is_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "compress.json"
    run("compress_trained", monkeypatch, "--steps", "150", "--results", str(out))
    rows = json.loads(out.read_text())["networks"]
    found = {(row["network"], row["units"]): row["accuracy"] for row in rows}
    assert found["trained", 512] > 0.7
    for units in (128, 51):
        assert found["pruned", units] > found["cut by magnitude", units]
        assert found["pruned, then fine-tuned", units] > found["trained", 512] - 0.05
    assert all(len(row["of each seed"]) == 3 for row in rows)
