"""Several networks for one table, each with another part of the rows held out, and the width that they suggest."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from awn.core.state import load_state_dict_
from awn.loss.prior import Prior
from awn.smaller.choose import Choice, CurvePoint, pick_smallest
from awn.training import Data, FitOptions, fit
from awn.training.choosing import choose_width, cut_and_tuned
from awn.training.evaluate import Loss, Score


class Part(NamedTuple):
    """The rows that a network is trained on, and those that are held out, if any."""

    train: Data
    held: Data | None


def folds_of(part: Part) -> int:
    """The number of folds in which every row is held out once, 1 if none are held out.

    >>> rows = Data(torch.zeros(80, 1), torch.zeros(80))
    >>> folds_of(Part(rows, rows.rows(torch.arange(20)))), folds_of(Part(rows, None))
    (5, 1)
    """
    return 1 if part.held is None else 1 + max(1, round(len(part.train.y) / len(part.held.y)))


def other_parts(part: Part, number: int, seed: int) -> Iterator[Part]:
    """Further splits of the same rows, each holding out other rows; after all folds, the rows are shuffled again.

    >>> rows = Data(torch.zeros(100, 1), torch.zeros(100))
    >>> part = Part(rows.rows(torch.arange(80)), rows.rows(torch.arange(20)))
    >>> [(len(other.train.y), len(other.held.y)) for other in other_parts(part, 3, seed=0)]
    [(80, 20), (80, 20), (80, 20)]
    """
    if part.held is None:
        return itertools.repeat(part, number)
    joined = [None if a is None or b is None else torch.cat([a, b]) for a, b in zip(part.train, part.held, strict=True)]
    rows, others = Data(*joined), folds_of(part) - 1  # type: ignore[arg-type]
    turns = (_other_folds(rows, len(part.train.y), others, seed + turn) for turn in itertools.count())
    return itertools.islice(itertools.chain.from_iterable(turns), number)


def _other_folds(rows: Data, train: int, number: int, seed: int) -> Iterator[Part]:
    """Splits that hold out one part after the other of the first `train` rows. The rows after them are trained on."""
    device = rows.y.device
    order = torch.randperm(train, generator=torch.Generator().manual_seed(seed)).to(device)
    held_before = torch.arange(train, len(rows.y), device=device)
    parts = order.tensor_split(number)
    for out in range(number):
        others = torch.cat([*(part for place, part in enumerate(parts) if place != out), held_before])
        yield Part(rows.rows(others), rows.rows(parts[out]))


def choose_over_folds_(
    networks: Sequence[nn.Module],
    parts: Sequence[Part],
    *,
    loss: Loss,
    score: Score,
    options: FitOptions,
    prior: Prior,
) -> Choice[nn.Module]:
    """Choose a size by the mean loss of all folds, cut the first network to it, and fine-tune it on its part.

    Returns the curve of the first network, with the mean loss of all folds. `score` is for this curve alone.
    """
    choices: list[Choice[nn.Module]] = []
    for network, (train, held) in zip(networks, parts, strict=True):
        assert held is not None
        shown = score if not choices else None
        choices.append(choose_width(network, train.x, held, loss=loss, score=shown, seed=options.seed))
    together = cross_fitted(choices)
    (train, held), first = parts[0], choices[0]
    assert held is not None
    place = first.curve.index(_at_most(first.curve, together.point.parameters))
    again = partial(fit, train=train, validation=held, loss=loss, prior=prior)
    if place > 0:
        own = dataclasses.replace(first, chosen=place)
        load_state_dict_(networks[0], cut_and_tuned(own, held, loss=loss, options=options, train_=again))
    networks[0].eval()
    return together


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
