"""Text: Multi30k, English to German, in tokens of GPT-2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from awn.basics.extra import needs_extra
from awn.errors import DataError
from awn.training.data import Data
from awn_paper.data.dataset import Dataset
from awn_paper.data.source import Source

_HOME = "https://github.com/multi30k/dataset (data/task1/raw)"
_FILES = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
_GPT2_HOME = "https://huggingface.co/gpt2"
PARTS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
SHA256 = {
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "vocab.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
LONGEST = 128
SHORT = 24  # tokens of a sentence, its ends included
FREQUENT = 2000
END = 50256  # GPT-2's only special token: a sentence begins and ends with it
PADDING = 50257  # one more than GPT-2 has

Pairs = tuple[list[list[int]], list[list[int]]]


def load_multi30k() -> Dataset:
    """All tokens of GPT-2, as in the paper."""
    return _dataset("Multi30k", {part: _tokens(name) for part, name in PARTS.items()}, PADDING + 1, PADDING)


def load_multi30k_seen() -> Dataset:
    """Only tokens that occur in the training part, numbered anew; others become one token for all unknown ones."""
    pairs = {part: _tokens(name) for part, name in PARTS.items()}
    return _of_tokens("Multi30k (seen tokens)", pairs, _by_frequency(pairs["train"]))


def load_multi30k_short() -> Dataset:
    """Pairs of short sentences, and the most frequent tokens of those in the training part, so that steps are cheap."""
    pairs = {part: _short(*_tokens(name)) for part, name in PARTS.items()}
    return _of_tokens("Multi30k (short)", pairs, _by_frequency(pairs["train"])[:FREQUENT])


def _short(source: list[list[int]], target: list[list[int]]) -> Pairs:
    """The pairs of which neither sentence is longer than `SHORT` tokens."""
    kept = [(one, other) for one, other in zip(source, target, strict=True) if max(len(one), len(other)) <= SHORT]
    return [one for one, _ in kept], [other for _, other in kept]


def _by_frequency(pairs: Pairs) -> list[int]:
    """The tokens of both languages, the most frequent first; of equally frequent ones that of the lower number."""
    counts = Counter(token for side in pairs for sentence in side for token in sentence)
    return sorted(counts, key=lambda token: (-counts[token], token))


def _of_tokens(name: str, pairs: dict[str, Pairs], tokens: list[int]) -> Dataset:
    """The data set with these tokens alone, numbered in the order of GPT-2."""
    number = {token: place for place, token in enumerate(sorted(tokens))}
    unknown, padding = len(tokens), len(tokens) + 1
    renumbered: dict[str, Pairs] = {}
    for part, (source, target) in pairs.items():
        sides = ([[number.get(token, unknown) for token in line] for line in side] for side in (source, target))
        renumbered[part] = (next(sides), next(sides))
    return _dataset(name, renumbered, padding + 1, padding)


def _dataset(name: str, pairs: dict[str, Pairs], tokens: int, padding: int) -> Dataset:
    length = max(len(line) for source, _ in pairs.values() for line in source)
    train, validation, test = (
        _data(source, target, length, padding) for source, target in (pairs[part] for part in PARTS)
    )
    return Dataset(name, train, validation, test, inputs=length, outputs=tokens, padding=padding)


def _data(source: list[list[int]], target: list[list[int]], length: int, padding: int) -> Data:
    """The source and, to its right, the target without its last token; what is to be said is the target shifted."""
    longest = max(map(len, target)) - 1
    said = [line[:-1] for line in target]
    x = torch.cat([_padded(source, length, padding), _padded(said, longest, padding)], dim=1)
    return Data(x, _padded([line[1:] for line in target], longest, padding))


def _padded(lines: Sequence[Sequence[int]], length: int, padding: int) -> Tensor:
    rows = torch.full((len(lines), length), padding)
    for row, line in zip(rows, lines, strict=True):
        row[: len(line)] = torch.tensor(line)
    return rows


def _tokens(part: str) -> Pairs:
    sides = []
    for language in ("en", "de"):
        name = f"{part}.{language}"
        lines = Source(f"multi30k/{name}.gz", _HOME, SHA256[name], f"{_FILES}{name}.gz").read().decode().splitlines()
        sides.append([[END, *ids[: LONGEST - 2], END] for ids in encode([line.strip() for line in lines])])
    if len(sides[0]) != len(sides[1]):
        raise DataError(f"Multi30k's {part} has {len(sides[0])} English sentences but {len(sides[1])} German ones.")
    return sides[0], sides[1]


def encode(lines: list[str]) -> list[list[int]]:
    """Sentences as GPT-2's tokens."""
    with needs_extra("reading text needs tokenizers", "paper", "tokenizers"):
        from tokenizers import ByteLevelBPETokenizer
    sources = [
        Source(f"gpt2-bpe/{name}", _GPT2_HOME, SHA256[name], f"{_GPT2_HOME}/resolve/main/{name}")
        for name in ("vocab.json", "merges.txt")
    ]
    for source in sources:
        source.read()  # which checks it
    tokenizer = ByteLevelBPETokenizer(*(str(source.find()) for source in sources))
    return [encoded.ids for encoded in tokenizer.encode_batch(lines)]
