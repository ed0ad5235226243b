"""The paper's data sets: their formats, from made files, their splits, and what is said where a file is missing."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest
import torch

from awn.errors import ArgumentError, DataError
from awn.training.data import Data
from awn_paper.data import FOLDED, LOADERS, fetch, graphs, images, load, tables, text
from awn_paper.data.dataset import Dataset, stratified
from awn_paper.data.graphs import pack
from awn_paper.data.source import Source, data_folders
from awn_paper.experiments import EXPERIMENTS
from awn_paper.show import Results
from awn_paper.store import Store
from paper_cases import run_here, tiny


def no_web(url: str, **_: Any) -> Any:
    raise URLError("no web in tests")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """An empty data folder, nothing remembered, and no way out."""
    monkeypatch.setenv("AWN_DATA", str(tmp_path))
    monkeypatch.setattr(fetch, "urlopen", no_web)
    fetch._download.cache_clear()
    load.cache_clear()
    yield tmp_path
    load.cache_clear()


def put(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def unpinned(monkeypatch, module, *names: str) -> None:
    """Made files have hashes of their own."""
    for name in names:
        found = getattr(module, name)
        if isinstance(found, Source):
            monkeypatch.setattr(module, name, replace(found, sha256=None))
        elif all(isinstance(value, Source) for value in found.values()):
            monkeypatch.setattr(module, name, {key: replace(value, sha256=None) for key, value in found.items()})
        else:
            monkeypatch.setattr(module, name, dict.fromkeys(found))


# Sources


def test_a_missing_file_is_named_with_its_place_and_its_home(folder):
    message = r"pol/201_pol\.tsv\.gz is missing, and it cannot be fetched from https://.*: no web in tests\. "
    with pytest.raises(DataError, match=message + r"Get it from https://.* AWN_DATA"):
        load("pol")
    with pytest.raises(DataError, match=r"UCI_Credit_Card\.csv\.gz is missing, and it has no address.* from https"):
        load("credit card")
    assert not list(folder.iterdir())


def test_a_file_with_another_content_is_refused(folder):
    put(folder, "a.txt.gz", b"right")
    known = Source("a.txt.gz", "its home", hashlib.sha256(b"right").hexdigest())
    assert known.read() == b"right"
    put(folder, "a.txt.gz", b"wrong")
    with pytest.raises(DataError, match=r"is not the file that is meant.*Get it again from its home"):
        known.read()


def test_a_packed_file_may_lie_there_unpacked_and_in_any_of_several_folders(folder, monkeypatch, tmp_path):
    put(folder / "second", "a.txt", b"content")
    monkeypatch.setenv("AWN_DATA", f"{folder / 'first'}:{folder / 'second'}")
    assert Source("a.txt.gz", "its home").read() == b"content"
    monkeypatch.delenv("AWN_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folders() == [tmp_path / "awn"]


# Fetching


@pytest.fixture
def web(tmp_path_factory, monkeypatch) -> Iterator[tuple[Path, str]]:
    """A folder that a server shows, and its address."""
    shown = tmp_path_factory.mktemp("web")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(shown)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(fetch, "urlopen", urlopen)
    yield shown, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def archived(kind: str, member: str, content: bytes) -> bytes:
    """An archive with a file in it."""
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(member, content)
    else:
        with tarfile.open(fileobj=file, mode="w:gz") as packed:
            described = tarfile.TarInfo(member)
            described.size = len(content)
            packed.addfile(described, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize("kind", ["plain", "gz", "zip", "tar.gz"])
def test_a_missing_file_is_fetched_once_checked_and_kept(kind, folder, web):
    shown, address = web
    content, member = b"some content", "inside/a.txt" if kind in ("zip", "tar.gz") else ""
    sent = {"plain": content, "gz": gzip.compress(content)}.get(kind) or archived(kind, member, content)
    (shown / f"a.{kind}").write_bytes(sent)
    source = Source(
        "set/a.txt.gz",
        "its home",
        hashlib.sha256(content).hexdigest(),
        f"{address}/a.{kind}",
        member,
        hashlib.md5(sent).hexdigest(),
    )
    assert source.read() == content
    (shown / f"a.{kind}").unlink()
    fetch._download.cache_clear()
    assert source.read() == content  # from the folder
    assert [path.name for path in (folder / "set").iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sha256": "0" * 64}, "is not the file that is meant.*SHA-256"),
        ({"md5": "0" * 32}, "is not the file that is meant.*MD5"),
        ({"member": "b.txt"}, "b.txt in http.*cannot be unpacked"),
        ({"url": "/nothing"}, "cannot be fetched from http.*not found"),
    ],
)
def test_what_is_not_the_file_that_is_meant_is_not_kept(wrong, message, folder, web):
    shown, address = web
    (shown / "a").write_bytes(b"content")
    url = address + wrong.pop("url", "/a")
    with pytest.raises(DataError, match=message):
        replace(Source("set/a.txt", "its home", url=url), **wrong).read()
    assert not list(folder.iterdir())


def test_an_unknown_data_set_is_refused_with_the_known_ones():
    with pytest.raises(ArgumentError, match="DoubleMoon, Spiral"):
        load("spirals")


@pytest.mark.parametrize(
    "name", [name for name in (*LOADERS, *FOLDED) if name not in ("DoubleMoon", "Spiral", "SpiralHard")]
)
def test_every_other_data_set_asks_for_its_file(name):
    with pytest.raises(DataError, match="is missing"):
        load(name)


# Splits


def test_splits_keep_the_shares_of_classes_and_every_row_once():
    y = torch.tensor([0] * 900 + [1] * 100)
    parts = stratified(y, (0.72, 0.08, 0.2), seed=0)
    assert [y[rows].bincount().tolist() for rows in parts] == [[648, 72], [72, 8], [180, 20]]
    assert sorted(torch.cat(parts).tolist()) == list(range(1000))
    assert not torch.equal(parts[0], stratified(y, (0.72, 0.08, 0.2), seed=1)[0])
    with pytest.raises(ArgumentError, match="must sum to 1"):
        stratified(y, (0.5, 0.4), seed=0)


def test_parts_for_selection_are_drawn_from_training_and_validation_alone():
    rows = torch.arange(100)
    whole = Dataset("a", *(Data(part, part % 2) for part in rows.split([70, 10, 20])), inputs=1, outputs=2)
    inner = whole.for_selection(redraw=True)
    assert inner.test is None
    assert (len(inner.train.y), len(inner.validation.y)) == (70, 10)
    assert sorted([*inner.train.x.tolist(), *inner.validation.x.tolist()]) == list(range(80))
    assert set(inner.validation.x.tolist()) != set(range(70, 80))
    kept = whole.for_selection(redraw=False)
    assert kept.test is None
    assert torch.equal(kept.validation.x, whole.validation.x)


# Tables


def table(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).normal(5, 3, size=(rows, columns)).round(3)


def lines(numbers: np.ndarray, separator: str) -> str:
    return "\n".join(separator.join(map(str, row)) for row in numbers)


def test_pol_is_split_at_its_targets_mean(folder, monkeypatch):
    unpinned(monkeypatch, tables, "POL")
    rows = table(100, 5)
    put(folder, "pol/201_pol.tsv.gz", ("a\tb\tc\td\ttarget\n" + lines(rows, "\t")).encode())
    data = load("pol")
    assert (data.inputs, data.outputs) == (4, 2)
    below = int((rows[:, -1] < rows[:, -1].mean()).sum())
    assert sum(int(part.y.sum()) for part in (data.train, data.validation, data.test)) == below


def test_credit_leaves_the_rows_number_out_whatever_ends_its_lines(folder, monkeypatch):
    unpinned(monkeypatch, tables, "CREDIT")
    rows = table(100, 5)
    rows[:, 0], rows[:, -1] = range(100), np.arange(100) % 4 == 0
    put(
        folder,
        "credit-default/UCI_Credit_Card.csv.gz",
        ("ID,a,b,c,default\r" + lines(rows, ",").replace("\n", "\r")).encode(),
    )
    data = load("credit card")
    assert data.inputs == 3
    assert [int(part.y.sum()) for part in (data.train, data.validation, data.test)] == [18, 2, 5]
    assert data.train.x.mean(0).abs().max() < 1e-5
    assert data.train.x.std(0).sub(1).abs().max() < 1e-5
    assert data.test.x.mean(0).abs().max() > 1e-3  # scaled by what is known of the training part


def test_miniboone_announces_its_signals_and_backgrounds(folder):
    rows = table(50, 50)
    put(folder, "miniboone/MiniBooNE_PID.txt.gz", (" 20 30\n" + lines(rows, "  ")).encode())
    data = load("MiniBooNE")
    assert data.inputs == 50
    assert sum(int(part.y.sum()) for part in (data.train, data.validation, data.test)) == 20
    load.cache_clear()
    put(folder, "miniboone/MiniBooNE_PID.txt.gz", (" 20 31\n" + lines(rows, "  ")).encode())
    with pytest.raises(DataError, match="announces"):
        load("MiniBooNE")


# Images


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def put_mnist(folder: Path, monkeypatch) -> np.ndarray:
    unpinned(monkeypatch, images, "MNIST")
    pixels = np.random.default_rng(0).integers(0, 256, (80, 28, 28))
    labels = np.arange(80) % 10
    for part, rows in (("train", slice(0, 60)), ("t10k", slice(60, 80))):
        put(folder, f"mnist/{part}-images-idx3-ubyte.gz", idx(pixels[rows]))
        put(folder, f"mnist/{part}-labels-idx1-ubyte.gz", idx(labels[rows]))
    return pixels


def test_mnist_is_read_and_permuted_the_same_way_for_all(folder, monkeypatch):
    pixels = put_mnist(folder, monkeypatch)
    plain, permuted = load("MNIST"), load("PMNIST")
    assert [len(part.y) for part in (plain.train, plain.validation, plain.test)] == [50, 10, 20]
    assert plain.train.x.shape == (50, 1, 28, 28)
    assert plain.train.x.dtype == torch.uint8
    assert np.array_equal(plain.test.x[:, 0].numpy(), pixels[60:])
    assert permuted.train.x.shape == (50, 28, 28)
    for one, other in ((plain.train, permuted.train), (plain.test, permuted.test)):
        assert torch.equal(one.x.flatten(1).sort(1).values, other.x.flatten(1).sort(1).values)
        assert torch.equal(one.y, other.y)
    order = [(column == plain.train.x.flatten(1).T).all(1).nonzero()[0, 0] for column in permuted.train.x.flatten(1).T]
    assert torch.equal(plain.test.x.flatten(1)[:, torch.stack(order)], permuted.test.x.flatten(1))
    pixels_of, part = load("MNIST pixels"), load("PMNIST (10,000 images)")
    assert torch.equal(pixels_of.test.x, plain.test.x.flatten(1).float() / 255)
    assert torch.equal(part.test.x, permuted.test.x)
    rows = {tuple(row.flatten().tolist()) for row in permuted.train.x}
    assert 0 < len(part.train.y) < len(permuted.train.y)
    assert all(tuple(row.flatten().tolist()) in rows for row in part.train.x)


def test_cifar_is_read_plane_after_plane(folder):
    generator = np.random.default_rng(0)
    for name, labels, classes in (("cifar-10-batches-bin", 1, 10), ("cifar-100-binary", 2, 100)):
        files = [f"data_batch_{n}.bin" for n in range(1, 6)] if labels == 1 else ["train.bin"]
        for file in [*files, "test_batch.bin" if labels == 1 else "test.bin"]:
            rows = generator.integers(0, 256, (12 if file.startswith("data") else 60, labels + 3072)).astype(np.uint8)
            rows[:, :labels] = 7
            rows[:, labels - 1] = np.arange(len(rows)) % 2
            put(folder, f"{name}/{file}", rows.tobytes())
        data = load("CIFAR10" if labels == 1 else "CIFAR100")
        assert (data.inputs, data.outputs) == (3, classes)
        assert [len(part.y) for part in (data.train, data.validation, data.test)] == [50, 10, 60]
        assert data.test.x[0, 1, 0, :3].tolist() == rows[0, labels + 1024 : labels + 1027].tolist()
        assert data.test.y[:3].tolist() == [0, 1, 0]
    put(folder, "cifar-100-binary/test.bin", b"short")
    load.cache_clear()
    with pytest.raises(DataError, match="no images of 3074 bytes"):
        load("CIFAR100")


# Graphs


def put_graphs(folder: Path, monkeypatch, name: str, *, node_labels: bool) -> None:
    """Thirty cycles of 3 to 5 nodes; their class is whether they are triangles."""
    unpinned(monkeypatch, graphs, "SHA256")
    owner, edges, labels, first = [], [], [], 1
    for graph in range(30):
        size = 3 + graph % 3
        owner += [graph + 1] * size
        labels.append(int(size == 3))
        edges += [(first + node, first + (node + 1) % size) for node in range(size)]
        edges += [(b, a) for a, b in edges[-size:]]
        first += size
    folder = folder / "tu"
    put(folder, f"{name}/raw/{name}_A.txt", "\n".join(f"{a}, {b}" for a, b in edges).encode())
    put(folder, f"{name}/raw/{name}_graph_indicator.txt", "\n".join(map(str, owner)).encode())
    put(folder, f"{name}/raw/{name}_graph_labels.txt", "\n".join(map(str, labels)).encode())
    if node_labels:
        put(folder, f"{name}/raw/{name}_node_labels.txt", "\n".join(str(n % 4) for n in range(len(owner))).encode())
    fold = {"test": [0, 1, 2], "model_selection": [{"train": list(range(6, 30)), "validation": [3, 4, 5]}]}
    put(folder, f"splits/{name}_splits.json", json.dumps([fold, {**fold, "test": [0]}]).encode())


def test_graphs_are_read_in_their_folds(folder, monkeypatch):
    put_graphs(folder, monkeypatch, "NCI1", node_labels=True)
    data = load("NCI1")
    assert (data.inputs, data.outputs) == (4, 2)
    assert len(data.graphs) == 30
    assert data.test.x.tolist() == [0, 1, 2]
    assert data.test.y.tolist() == [1, 0, 0]
    assert load("NCI1", 1).test.x.tolist() == [0]
    with pytest.raises(ArgumentError, match="folds 0 to 1"):
        load("NCI1", 2)


def test_graphs_without_features_have_ones(folder, monkeypatch):
    put_graphs(folder, monkeypatch, "REDDIT-BINARY", node_labels=False)
    data = load("REDDIT-B")
    assert torch.equal(data.graphs.features.unique(), torch.ones(1))


def test_the_widths_of_layers_on_graphs_run_and_are_shown(folder, monkeypatch, tmp_path):
    """The experiment that the others' tests on the plane leave out."""
    put_graphs(folder, monkeypatch, "NCI1", node_labels=True)
    layers, show = EXPERIMENTS["layers"]
    protocol = layers.small.part("NCI1")
    run_here(layers, tiny(replace(protocol, cases=protocol.cases[:2])), tmp_path / "results")
    shown = show(Results(tuple(Store(tmp_path / "results").outcomes(layers, "small"))))
    rows = {row[0]: row[1:] for row in shown[0].rows}
    assert rows.pop("REDDIT-B") == ("not run", "0")
    assert len(rows) == 5, "the first network, and one in each of four convolutions"
    assert all(number == "2" and float(units.split()[0]) > 0 for units, number in rows.values())
    assert [series.name for series in shown[1].series] == [name.removeprefix("NCI1, ") for name in rows]


def test_a_batch_of_graphs_is_those_graphs_side_by_side():
    owner = torch.tensor([0, 0, 1, 2, 2, 2])
    # Edges of the whole, in no order, and a graph without any.
    edges = torch.tensor([[5, 0, 3, 1, 4], [3, 1, 4, 0, 5]])
    packed = pack(torch.arange(6.0)[:, None], owner, edges)
    batch = packed.batch(torch.tensor([2, 1, 0, 2]))
    assert batch.x[:, 0].tolist() == [3, 4, 5, 2, 0, 1, 3, 4, 5]
    assert batch.graph.tolist() == [0, 0, 0, 1, 2, 2, 3, 3, 3]
    found = {(batch.x[a, 0].item(), batch.x[b, 0].item()) for a, b in batch.edges.T.tolist()}
    assert found == {(5, 3), (3, 4), (4, 5), (0, 1), (1, 0)}
    assert (batch.graph[batch.edges[0]] == batch.graph[batch.edges[1]]).all()
    assert batch.edges.shape[1] == 3 + 0 + 2 + 3


# Text


def put_text(folder: Path, monkeypatch) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install awn[paper]")
    unpinned(monkeypatch, text, "SHA256")
    letters = {letter: place for place, letter in enumerate("abcdefghijklmnopqrstuvwxyzĠ")}
    put(folder, "gpt2-bpe/vocab.json", json.dumps(letters).encode())
    put(folder, "gpt2-bpe/merges.txt", b"#version: 0.2\n")
    for part, count in (("train", 12), ("val", 3), ("test_2016_flickr", 3)):
        end = "z" if part == "val" else ""
        put(folder, f"multi30k/{part}.en.gz", "\n".join("a" * (1 + n % 3) + end for n in range(count)).encode())
        put(folder, f"multi30k/{part}.de.gz", "\n".join("b" * (2 + n % 3) for n in range(count)).encode())


def test_text_is_tokens_and_what_is_to_be_said_is_the_target_shifted(folder, monkeypatch):
    put_text(folder, monkeypatch)
    data = load("Multi30k")
    assert (data.outputs, data.padding) == (50258, 50257)
    end, padding = text.END, text.PADDING
    assert data.train.x[0].tolist() == [end, 0, end, *[padding] * (data.inputs - 3), end, 1, 1, padding, padding]
    assert data.train.y[0].tolist() == [1, 1, end, padding, padding]


def test_tokens_that_are_never_seen_in_training_become_one(folder, monkeypatch):
    put_text(folder, monkeypatch)
    data = load("Multi30k (seen tokens)")
    assert data.outputs == 3 + 2  # a, b and the end; unknown and padding
    assert data.validation.x[0, :3].tolist() == [2, 0, 3]
    assert data.padding == 4


def test_short_text_has_only_short_pairs_and_frequent_tokens(folder, monkeypatch):
    """Of sentences of 1 to 4 letters and two ends, those of at most 4 tokens; b and the ends are the most frequent."""
    put_text(folder, monkeypatch)
    monkeypatch.setattr(text, "SHORT", 4)
    monkeypatch.setattr(text, "FREQUENT", 2)
    data = load("Multi30k (short)")
    assert len(data.train.y) == 4  # of 12: a, bb
    assert data.outputs == 2 + 2
    assert data.train.x[0].tolist() == [1, 2, 1, 3, 1, 0, 0]
    assert data.train.y[0].tolist() == [0, 0, 1]
