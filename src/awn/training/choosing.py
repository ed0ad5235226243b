"""After training: cut the network to the smallest size that is as good on the validation set, then fine-tune it."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from awn.core.groups import find_groups
from awn.smaller.choose import Choice, choose
from awn.smaller.readers import find_readers
from awn.training.data import Data
from awn.training.evaluate import Loss, Score, mean_loss
from awn.training.options import FitOptions

# A ladder repairs many networks. Least squares over a few inputs per unit need no more rows.
_REPAIR_ROWS = 2048
# The fraction of a layer that a cut of the ladder removes: a finer ladder takes longer and finds hardly better sizes.
_STEP = 0.3
# A repaired network is near its optimum, so fine-tuning is brief and takes small steps.
_TUNING_SHARE, _MOST_TUNING_EPOCHS = 0.2, 15
_TUNING_RATE = 0.2


def choose_width(
    model: nn.Module, inputs: Tensor, validation: Data, *, loss: Loss, score: Score | None, seed: int
) -> Choice[nn.Module]:
    """The smallest size of a trained model that is as good on `validation`. Repairs use the training `inputs`."""
    repairable, _ = find_readers(model)
    return choose(
        model,
        tuple(tensor for tensor in validation if tensor is not None),
        loss,
        repair=_some(inputs, seed) if repairable else False,
        score=None if score is None else lambda network: score(network, validation),
        step=_STEP,
    )


def cut_and_tuned(
    choice: Choice[nn.Module], validation: Data, *, loss: Loss, fine_tune_: Callable[[nn.Module], object]
) -> dict[str, Any]:
    """The state dict of the model at the chosen size, fine-tuned with widths that stay.

    `fine_tune_` trains a network in place; its result is kept if the validation loss is lower than before.
    """
    cut = choice.model()
    tuned = copy.deepcopy(cut)  # to make the cuts a second time takes longer
    with pinned_widths(tuned):
        fine_tune_(tuned)
    best = min(cut, tuned, key=lambda network: mean_loss(network.eval(), validation, loss))
    return best.state_dict()


def tuning_options(options: FitOptions) -> FitOptions:
    """The options of a brief fine-tuning after a cut.

    >>> tuning_options(FitOptions(lr=0.01)).lr
    0.002
    """
    return dataclasses.replace(
        options,
        epochs=min(_MOST_TUNING_EPOCHS, math.ceil(_TUNING_SHARE * options.epochs)),
        lr=_TUNING_RATE * options.lr,
        schedule="cosine",
        patience=None,
        stop_by="loss",
        choose=None,
    )


def _some(inputs: Tensor, seed: int) -> Tensor:
    drawn = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))[:_REPAIR_ROWS]
    return inputs[drawn.to(inputs.device)]


@contextmanager
def pinned_widths(model: nn.Module) -> Iterator[None]:
    """Inside the block, training cannot change the widths."""
    widths = [group.width for group in find_groups(model)]
    bounds = [(width.min_units, width.max_units) for width in widths]
    for width in widths:
        width.min_units = width.max_units = width.units
    try:
        yield
    finally:
        for width, (fewest, most) in zip(widths, bounds, strict=True):
            width.min_units, width.max_units = fewest, most
