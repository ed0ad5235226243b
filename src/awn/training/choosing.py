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
from awn.core.initialise import kaiming_plus_
from awn.errors import ArgumentError
from awn.nn.mlp import AdaptiveMLP
from awn.smaller.batch_norms import BatchNorms
from awn.smaller.choose import Choice, choose
from awn.smaller.held_out import HeldOut
from awn.smaller.narrow import narrowed
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


def narrow_start(model: nn.Module, inputs: Tensor, validation: Data, *, loss: Loss, options: FitOptions) -> Any:
    """The state dict of a model whose too wide layers are cut early in training; empty if none is."""
    held_out = HeldOut.of(tuple(tensor for tensor in validation if tensor is not None), loss)
    assert options.narrow is not None
    found = narrowed(model, _some(inputs, options.seed), held_out, options.narrow)
    return {} if found is None else found.state_dict()


def cut_and_tuned(
    choice: Choice[nn.Module],
    validation: Data,
    *,
    loss: Loss,
    options: FitOptions,
    train_: Callable[..., object],
) -> dict[str, Any]:
    """The state dict of the best network at the chosen size, by the validation loss.

    The cut network competes with itself after a fine-tuning and, if `options.fresh`, with a new network.
    `train_(network, options=…)` trains a network in place. The uncut network took part in the choice.
    """
    cut = choice.model()
    tuned = copy.deepcopy(cut)  # to make the cuts a second time takes longer
    with pinned_widths(tuned):
        train_(tuned, options=tuning_options(options))
    candidates = [cut, tuned]
    if options.fresh:
        candidates.append(fresh_like(cut, quantile=_quantile(choice.model(0)), seed=options.seed))
        with pinned_widths(candidates[-1]):
            train_(candidates[-1], options=dataclasses.replace(options, choose=None, narrow=None))
    best = min(candidates, key=lambda network: mean_loss(network.eval(), validation, loss))
    return best.state_dict()


def fresh_like(model: nn.Module, *, quantile: float, seed: int) -> AdaptiveMLP:
    """A network of the same widths with new weights. Its units hold the share `quantile` of the importance.

    >>> import awn
    >>> small = awn.truncate(awn.AdaptiveMLP(2, 1), units=12)
    >>> fresh = fresh_like(small, quantile=0.9, seed=0)
    >>> awn.widths(fresh), fresh.hidden[0].width.quantile
    ({'hidden.0': 12}, 0.9)
    """
    network = copy.deepcopy(require_known_weights(model))
    groups = find_groups(network)
    for group in groups:
        group.width.quantile = quantile
        group.width.move_to_(group.width.units)
    kaiming_plus_(groups, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for norm in BatchNorms.of(network).norms:
            norm.reset_running_stats()
        if network.output.bias is not None:
            network.output.bias.zero_()
    return network


def require_known_weights(model: nn.Module) -> AdaptiveMLP:
    """The model, whose initial weights awn knows how to draw; an error for others."""
    if isinstance(model, AdaptiveMLP):
        return model
    raise ArgumentError(
        f"fresh=True needs an AdaptiveMLP: awn does not know how the weights of a {type(model).__name__} are drawn. "
        "Leave fresh out.",
        argument="fresh",
    )


def _quantile(model: nn.Module) -> float:
    return find_groups(model)[0].width.quantile


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
        narrow=None,
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
