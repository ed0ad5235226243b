"""The training loop. It reads from top to bottom."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from awn.basics.random_states import random_states, seed_torch, set_random_states
from awn.core.groups import find_groups
from awn.core.ordered import draw_prefix_
from awn.core.resize import resize_
from awn.core.state import load_state_dict_
from awn.errors import ArgumentError, NonFiniteError
from awn.loss.budget import Budget
from awn.loss.objective import objective, terms
from awn.loss.ordered import ordered_loss
from awn.loss.prior import Prior, weight_term
from awn.parallel.collectives import average_, reaching_all, tensors_of_first, told
from awn.smaller.held_out import HeldOut
from awn.training.callbacks import Callback
from awn.training.choosing import choose_width, cut_and_tuned, narrow_start, pinned_widths, require_known_weights
from awn.training.data import Data
from awn.training.denormals import flush_denormals
from awn.training.evaluate import Loss, Score, as_loss, score_and_loss
from awn.training.history import History
from awn.training.options import FitOptions
from awn.training.run import Run

_OPTIONS, _PRIOR = FitOptions(), Prior()
_log = logging.getLogger(__name__)


def fit(
    model: nn.Module,
    train: Data,
    validation: Data | None = None,
    *,
    loss: Loss,
    score: Score | None = None,
    options: FitOptions = _OPTIONS,
    prior: Prior = _PRIOR,
    budget: Budget | None = None,
    callbacks: Sequence[Callback] = (),
    folder: str | Path | None = None,
    resume: bool = False,
    optimizer: Optimizer | None = None,
) -> History:
    """Train a model in place, then cut it to the smallest size that is as good on `validation`.

    The model is left in the state of its kept epoch: the best on `validation`, or the last without it. An adaptive
    model is then cut and fine-tuned, unless `options.choose` is None; `history.choice` has the loss at every size.

    `loss(output, y, weight)` is the mean negative log-likelihood, such as `awn.likelihood.categorical`. Without sample
    weights, torch's losses work too. `score(model, data)` returns a number, higher is better; the default is minus the
    loss. With a `folder`, the history is written to `history.jsonl` and checkpoints to `run.safetensors`. `resume=True`
    continues an interrupted run, with the same result as without the interruption. A model made with `ordered=…` is
    trained in order, see `awn.advanced.ordered_loss`. A plain model has the data term alone. The default optimizer is
    Adam; another one uses its own learning rates. The random states of torch, NumPy and Python are restored.

    With a DistributedDataParallel, pass all samples on every rank; each takes its part of every batch. Rank 0
    evaluates, chooses the width, runs callbacks and writes files. `history.choice` is None on the other ranks. A
    resumed run may have another number of ranks.

    >>> import awn
    >>> x = torch.randn(64, 2)
    >>> data = Data(x, (x[:, 0] > 0).long())
    >>> model = awn.AdaptiveMLP(2, 2)
    >>> history = fit(model, data, data, loss=awn.likelihood.categorical, options=FitOptions(epochs=3))
    >>> len(history), sorted(history[-1])
    (3, ['best', 'budget', 'data', 'epoch', 'lr', 'nu', 'path', 'score', 'seconds', 'total', ...])
    """
    _check(train, validation)
    loss = as_loss(loss, weighted=any(data is not None and data.weight is not None for data in (train, validation)))
    with _own_random_numbers(options.seed), flush_denormals():
        run = Run(model, train, options, folder, optimizer, prior=prior, budget=budget, callbacks=callbacks)
        if options.fresh and run.learns_width:
            require_known_weights(run.model)
        run.resume_() if resume else run.start_afresh()
        progress = run.progress
        callbacks = run.callbacks if run.rank == 0 else ()
        for callback in callbacks:
            callback.on_fit_start(progress)
        while progress.epoch < options.epochs and not progress.stop:
            if validation is not None and run.is_to_narrow:
                _narrow_for_all_(run, validation, loss)
            _run_epoch(run, validation, loss, score, prior, budget, callbacks)
        run.finish()
        if validation is not None and _chooses(run):
            _choose_for_all_(run, validation, loss, score, prior)
        for callback in callbacks:
            callback.on_fit_end(progress)
    return progress.history


def _run_epoch(
    run: Run,
    validation: Data | None,
    loss: Loss,
    score: Score | None,
    prior: Prior,
    budget: Budget | None,
    callbacks: Sequence[Callback],
) -> None:
    """Train for an epoch, evaluate, record, and write a checkpoint if one is due."""
    progress, started = run.progress, time.perf_counter()
    run.set_learning_rates()
    path = _choose_path(run, loss, callbacks)
    with reaching_all(run.parallel), pinned_widths(run.model) if run.is_waiting else nullcontext():
        train_epoch = _train_by_hand if path == "by hand" else partial(_train_epoch, callbacks=callbacks)
        terms = _mean_terms(run, train_epoch(run, loss, prior, budget), prior, budget)
    terms |= _judge(run, validation, score, loss)
    error = partial(_loss_error, run, validation, loss)
    run.end_epoch({**terms, "seconds": time.perf_counter() - started, "path": path}, error)
    for callback in callbacks:
        callback.on_epoch_end(progress)
    progress.stop = bool(told(run.parallel, lambda: [progress.stop], 1)[0])
    run.checkpoint()


def _chooses(run: Run) -> bool:
    """Whether the trained model is to be cut to the smallest size that is as good."""
    by_callback = any(one.chooses_width for one in run.callbacks)
    return run.options.choose == "smallest" and run.learns_width and not by_callback


def _choose_for_all_(run: Run, validation: Data, loss: Loss, score: Score | None, prior: Prior) -> None:
    """Cut the model to the width that rank 0 chooses."""

    def chosen() -> dict[str, Tensor]:
        state = _choose(run, validation, loss, score, prior)
        return {name: value for name, value in state.items() if isinstance(value, Tensor)}

    state = {**run.model.state_dict(), **tensors_of_first(run.parallel, chosen)}
    load_state_dict_(run.parallel, state, run.optimizer)


def _narrow_for_all_(run: Run, validation: Data, loss: Loss) -> None:
    """Cut layers that are too wide, as rank 0 finds. The optimizer's state of the weights starts anew."""

    def narrow() -> dict[str, Tensor]:
        state = narrow_start(run.model.eval(), run.train.x, validation, loss=loss, options=run.options)
        return {name: value for name, value in state.items() if isinstance(value, Tensor)}

    if found := tensors_of_first(run.parallel, narrow):
        load_state_dict_(run.parallel, {**run.model.state_dict(), **found}, run.optimizer)
        for parameter in run.model.parameters():
            run.optimizer.state.pop(parameter, None)
        run.forget_best()


def _choose(run: Run, validation: Data, loss: Loss, score: Score | None, prior: Prior) -> dict[str, Any]:
    """Choose the width, and return the state dict of the network at that width, fine-tuned."""
    train, options = run.train, run.options
    choice = choose_width(run.model, train.x, validation, loss=loss, score=score, seed=options.seed)
    run.progress.history.choice = choice
    if choice.chosen == 0:
        return run.model.state_dict()
    again = partial(fit, train=train, validation=validation, loss=loss, prior=prior)
    return cut_and_tuned(choice, validation, loss=loss, options=options, train_=again)


def _choose_path(run: Run, loss: Loss, callbacks: Sequence[Callback]) -> str:
    """How the next epoch is trained: "by hand" or "autograd"."""
    wanted = run.options.by_hand
    against = "by_hand=False" if wanted is False else _why_not_by_hand(run, loss, callbacks)
    if wanted and against is not None:
        raise ArgumentError(f"by_hand=True, but {against}. Leave by_hand out: training then goes through autograd.")
    path = "by hand" if against is None else "autograd"
    if not len(run.progress.history) or run.progress.history.path != path:
        _log.info("training %s%s", path, "" if against is None else f": {against}")
    return path


def _why_not_by_hand(run: Run, loss: Loss, callbacks: Sequence[Callback]) -> str | None:
    if find_spec("numpy") is None:  # torch does without it
        return "NumPy is not installed"
    from awn.training.by_hand.epoch import why_not

    return why_not(run, loss, callbacks)


def _train_by_hand(run: Run, loss: Loss, prior: Prior, budget: Budget | None) -> Tensor:
    from awn.training.by_hand.epoch import train_epoch

    return train_epoch(run, loss, prior, budget)


def _train_epoch(run: Run, loss: Loss, prior: Prior, budget: Budget | None, callbacks: Sequence[Callback]) -> Tensor:
    """All steps of an epoch, through autograd; returns the data term of each."""
    model, optimizer, progress, options = run.parallel.train(), run.optimizer, run.progress, run.options
    run.draw_apart()
    data_terms = []
    for batch, share in run.batches():
        data_term = partial(_data_term, run, loss, batch)
        nll = ordered_loss(model, data_term) if run.ordered else data_term()
        if share != 1:
            nll = nll * share
        total = nll
        if run.learns_width:
            total = objective(nll, model, len(run.train.y), prior=prior, budget=budget, time=progress.epoch)
        optimizer.zero_grad()
        total.backward()
        if options.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        optimizer.step()
        progress.step += 1
        due = run.learns_width and progress.step % options.resize_every == 0
        resized = resize_(model, optimizer) if due else {}
        if run.ordered and not due:
            draw_prefix_(find_groups(model))
        for callback in callbacks:
            callback.on_step_end(progress, resized)
        data_terms.append(nll.detach())
    return torch.stack(data_terms)


def _data_term(run: Run, loss: Loss, batch: Data) -> Tensor:
    with run.autocast():
        return loss(run.parallel(batch.x), batch.y, batch.weight)


def _mean_terms(run: Run, data_terms: Tensor, prior: Prior, budget: Budget | None) -> dict[str, float]:
    """The terms of the loss after an epoch, the data term as its mean over the steps."""
    mean = average_(run.parallel, data_terms.mean())
    means = {"data": mean.item(), **_other_terms(run, prior, budget)}
    means["total"] = sum(means.values())
    if not math.isfinite(means["total"]):  # in an adaptive model, `objective` checks every step
        raise NonFiniteError(
            f"the loss is not finite in epoch {run.progress.epoch + 1}: lower the learning rate, clip gradients, or "
            "look at the data."
        )
    return means


@torch.no_grad()
def _other_terms(run: Run, prior: Prior, budget: Budget | None) -> dict[str, float]:
    """The terms of the loss besides the data term, including a prior that the optimizer applies."""
    if not run.learns_width:
        return dict.fromkeys(("weights", "width", "budget"), 0.0)
    samples, nothing = len(run.train.y), torch.zeros(())
    found = terms(nothing, run.model, samples, prior=prior, budget=budget, time=run.progress.epoch)
    weights = weight_term(prior.weight_factors(run.model, find_groups(run.model), samples))
    numbers = {name: term.item() for name, term in found.items() if name != "data"}
    return {**numbers, "weights": 0.0 if weights is None else weights.item()}


def _judge(run: Run, validation: Data | None, score: Score | None, loss: Loss) -> dict[str, float]:
    """The score and the loss on the validation set, which rank 0 computes for all ranks."""
    if validation is None:
        return {}
    model = run.model.eval()

    merit, found = told(run.parallel, lambda: [*score_and_loss(model, validation, score, loss)], how_many=2)
    return {"score": merit, "validation_loss": found}


def _loss_error(run: Run, validation: Data | None, loss: Loss) -> float:
    """The standard error of the validation loss."""
    assert validation is not None
    held_out = HeldOut.of(tuple(tensor for tensor in validation if tensor is not None), loss)
    return told(run.parallel, lambda: [held_out.judge(run.model).error], how_many=1)[0]


@contextmanager
def _own_random_numbers(seed: int) -> Iterator[None]:
    before = random_states()
    seed_torch(seed)
    try:
        yield
    finally:
        set_random_states(before)


def _check(train: Data, validation: Data | None) -> None:
    for name, data in (("train", train), ("validation", validation)):
        if data is None:
            continue
        sizes = {len(tensor) for tensor in data if tensor is not None}
        if len(sizes) != 1 or sizes == {0}:
            raise ArgumentError(f"{name} needs as many targets and weights as inputs, and at least one; got {sizes}.")
