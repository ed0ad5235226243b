"""Dataset: what every experiment trains on, selects by and is judged by, as tensors."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from awn.errors import ArgumentError
from awn.training.data import Data, checksum
from awn_paper.data.graphstore import Graphs


@dataclass(frozen=True)
class Dataset:
    """The three parts of a data set; without `test` where nobody may look at it, which is while models are selected.

    `inputs` is what a network must know of its inputs: their features, channels, or the length of a source sentence;
    `outputs` the number of classes, or of tokens. Networks of graphs get numbers of graphs, which `graphs` holds.
    `padding` is the token that stands for none, of which no loss is taken; a data set of sentences has one.
    """

    name: str
    train: Data
    validation: Data
    test: Data | None
    inputs: int
    outputs: int
    graphs: Graphs | None = None
    padding: int | None = None

    def for_selection(self, *, redraw: bool) -> Dataset:
        """The same without the test part and, with `redraw`, training and validation drawn anew from their union."""
        if not redraw:
            return dataclasses.replace(self, test=None)
        union = Data(torch.cat([self.train.x, self.validation.x]), torch.cat([self.train.y, self.validation.y]))
        share = len(self.validation.y) / len(union.y)
        train, validation = (union.rows(rows) for rows in stratified(union.y, (1 - share, share), seed=1))
        return dataclasses.replace(self, train=train, validation=validation, test=None)

    def facts(self) -> dict[str, int | None]:
        """Sizes, and a number that other splits do not have, for the record of a run."""
        tested = None if self.test is None else len(self.test.y)
        parts = [tensor for part in (self.train, self.validation, self.test) if part is not None for tensor in part]
        return {
            "train": len(self.train.y),
            "validation": len(self.validation.y),
            "test": tested,
            "checksum": checksum(parts),
        }


def stratified(y: Tensor, shares: tuple[float, ...], seed: int) -> list[Tensor]:
    """Rows for parts of the given shares, drawn by the seed, each with the classes as in the whole.

    >>> [len(rows) for rows in stratified(torch.arange(2).repeat_interleave(50), (0.72, 0.08, 0.2), seed=0)]
    [72, 8, 20]
    """
    if abs(sum(shares) - 1) > 1e-6:
        raise ArgumentError(f"the shares of a split must sum to 1, got {shares}.")
    generator = torch.Generator().manual_seed(seed)
    parts: list[list[Tensor]] = [[] for _ in shares]
    for label in y.unique():
        members = (y == label).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=generator)]
        ends = [round(sum(shares[: part + 1]) * len(members)) for part in range(len(shares) - 1)]
        for part, chosen in zip(parts, members.tensor_split(ends), strict=True):
            part.append(chosen)
    return [torch.cat(part) for part in parts]
