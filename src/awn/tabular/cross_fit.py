"""A width for few rows: the curves of several folds, averaged, so that every row is held out once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from awn.smaller.choose import Choice, CurvePoint, pick_smallest
from awn.training import Data


def other_folds(train: Data, validation: Data, seed: int) -> Iterator[tuple[Data, Data]]:
    """Further splits of the same rows: each holds out another part of the training set, as large as `validation`.

    >>> train, validation = (Data(torch.zeros(n, 1), torch.zeros(n)) for n in (80, 20))
    >>> [(len(fold.y), len(held.y)) for fold, held in other_folds(train, validation, seed=0)]
    [(80, 20), (80, 20), (80, 20), (80, 20)]
    """
    number = max(1, round(len(train.y) / len(validation.y)))
    order = torch.randperm(len(train.y), generator=torch.Generator().manual_seed(seed)).to(train.x.device)
    parts = order.tensor_split(number)
    for held in range(number):
        others = torch.cat([part for place, part in enumerate(parts) if place != held] or [order[:0]])
        fold = train.rows(others)
        joined = (None if a is None or b is None else torch.cat([a, b]) for a, b in zip(fold, validation, strict=True))
        yield Data(*joined), train.rows(parts[held])  # type: ignore[arg-type]


def cross_fitted(choices: Sequence[Choice[nn.Module]]) -> Choice[nn.Module]:
    """The first choice, with the mean loss of all folds at each of its sizes, and the size that this mean suggests.

    The loss of a fold at a size is that of its largest network with at most as many parameters.

    >>> def fold(*losses):
    ...     curve = [CurvePoint({"hidden.0": 8 // 2**n}, 100 // 2**n, loss, 0.1, loss) for n, loss in enumerate(losses)]
    ...     return Choice(tuple(curve), 0, "", lambda place: nn.Identity())
    >>> choice = cross_fitted([fold(1.0, 1.1, 3.0), fold(1.1, 1.0, 3.0)])
    >>> [point.loss for point in choice.curve], choice.widths
    ([1.05, 1.05, 3.0], {'hidden.0': 4})
    """
    first = choices[0]
    curve = tuple(
        dataclasses.replace(
            point,
            loss=sum(matched.loss for matched in same) / len(same),
            error=math.hypot(*(matched.error for matched in same)) / len(same),
        )
        for point in first.curve
        for same in [[_at_most(choice.curve, point.parameters) for choice in choices]]
    )
    chosen, reason = pick_smallest(curve, range(len(curve)))
    return dataclasses.replace(first, curve=curve, chosen=chosen, reason=f"{reason}, over {len(choices)} folds")


def _at_most(curve: Sequence[CurvePoint], parameters: int) -> CurvePoint:
    """The largest network with at most so many parameters, or the smallest of all."""
    return next((point for point in curve if point.parameters <= parameters), curve[-1])
