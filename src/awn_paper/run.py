"""One run: a network built, trained, judged and measured by its settings and a seed; the result is a record."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam, Optimizer

from awn.basics.plain import short, to_plain
from awn.basics.thin import thin
from awn.core.count import count_parameters
from awn.core.even_steps import even_steps_
from awn.core.groups import find_groups
from awn.errors import NonFiniteError
from awn.files.provenance import provenance
from awn.loss.budget import Budget
from awn.loss.likelihood import categorical
from awn.loss.param_groups import param_groups
from awn.loss.positions import positions
from awn.loss.prior import Prior
from awn.training import Callback, Data, FitOptions, History, Progress, fit
from awn.training.evaluate import Loss, accuracy, mean_loss
from awn_paper.data import GIVEN_PARTS, load
from awn_paper.data.dataset import Dataset
from awn_paper.measures import AFTER, BEFORE
from awn_paper.models import Budgeted, Learned, Widths, build
from awn_paper.models.perceptron import Perceptron
from awn_paper.settings import OneCycle, Settings, Training, fingerprint

Record = dict[str, Any]
_EPOCHS_KEPT = 200  # of a history: a record is to be read and committed, not to be resumed from


@dataclass(frozen=True, eq=False)
class Job:
    """A run to be made. A `final` one reads the test part, once; one for model selection never sees it.

    Two jobs are equal if they have the same key.
    """

    settings: Settings
    seed: int
    final: bool

    @functools.cached_property
    def key(self) -> str:
        """A name that no other run has."""
        return fingerprint(self.settings, self.seed, self.final)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def train(job: Job, scratch: Path | None = None, *, resume: bool = False) -> Record:
    """Make a run, and return its record. With a `scratch` folder a run that was killed can be resumed.

    A run whose loss is lost to infinity is a result, too: a record without scores, which says why.
    """
    settings = job.settings
    whole = load(settings.dataset, settings.fold)
    data = whole if job.final else whole.for_selection(redraw=settings.dataset not in GIVEN_PARTS)
    started = time.perf_counter()
    record: Record = {
        "settings": to_plain(settings, kinds=True),
        "seed": job.seed,
        "final": job.final,
        "data": data.facts(),
        "from": provenance(),
    }
    try:
        torch.manual_seed(job.seed)
        model = build(settings.network, data, settings.widths)
        measured = {name: BEFORE[name](model, data) for name in settings.measure if name in BEFORE}
        end = _LastEpoch()
        history = _fit(model, data, job, scratch, resume, end)
    except NonFiniteError as error:
        return {**record, "failed": str(error), "seconds": round(time.perf_counter() - started, 2)}
    kept = _findings(model, data, settings.measure)
    at_end = kept if history.kept_epoch == len(history) else _findings(end.network, data, settings.measure)
    return {
        **record,
        "seconds": round(sum(history.column("seconds")), 2),
        "epochs": len(history),
        "best_epoch": history.kept_epoch,
        **kept,
        "parameters": count_parameters(model),
        "measured": measured | kept["measured"],
        "last": at_end,
        "history": _columns(history, learned=isinstance(settings.widths, Learned)),
    }


class _LastEpoch(Callback):
    """The network after the last epoch, of which `fit` leaves only the kept one."""

    network: nn.Module

    def on_fit_start(self, progress: Progress) -> None:
        """A run that is resumed at its end has no further epoch."""
        if progress.epoch:
            self.network = copy.deepcopy(progress.model)

    def on_epoch_end(self, progress: Progress) -> None:
        if progress.stop or progress.epoch == progress.options.epochs:
            self.network = copy.deepcopy(progress.model)


def _findings(model: nn.Module, data: Dataset, measure: Sequence[str]) -> Record:
    """The scores and widths of a trained network and, of a final run, what else is measured on it."""
    names = [name for name in measure if name in AFTER and data.test is not None]
    return {
        "validation": judged(model, data, data.validation),
        "test": None if data.test is None else judged(model, data, data.test),
        "widths": layer_widths(model),
        "measured": {name: AFTER[name](model, data) for name in names},
    }


def judged(model: nn.Module, data: Dataset, part: Data) -> dict[str, float]:
    """The scores on a part: its loss and, for classes, the accuracy. `score` is what to select by, more is better."""
    mean = mean_loss(model, part, loss_of(data))
    if data.padding is not None:
        return {"score": -mean, "loss": mean}
    right = accuracy(model, part)
    return {"score": right, "accuracy": right, "loss": mean}


def layer_widths(model: nn.Module) -> dict[str, int]:
    """The units of every hidden layer of every perceptron in a model, learned or not."""
    learned = {group.name: group.width.units for group in find_groups(model)}
    if learned:
        return learned
    return {
        f"{name}.{layer}".lstrip("."): linear.out_features
        for name, part in model.named_modules()
        if isinstance(part, Perceptron)
        for layer, linear in part.named_children()
        if isinstance(linear, nn.Linear) and layer != "output"
    }


def loss_of(data: Dataset) -> Loss:
    """The mean loss over samples, or over real tokens of sentences."""
    if data.padding is None:
        return categorical
    padding = data.padding

    def of_tokens(logits: Tensor, target: Tensor, _: Tensor | None) -> Tensor:
        return F.cross_entropy(logits, target[target != padding])

    return of_tokens


def _fit(model: nn.Module, data: Dataset, job: Job, scratch: Path | None, resume: bool, callback: Callback) -> History:
    settings, training = job.settings, job.settings.training
    options = FitOptions(
        epochs=training.epochs,
        batch_size=training.batch_size,
        lr=training.lr,
        schedule=training.schedule,
        patience=training.patience,
        precision=training.precision if isinstance(training, OneCycle) else "auto",
        ties="last",
        seed=job.seed,
        choose=None,  # the paper keeps the learned width
    )
    return fit(
        model,
        data.train,
        data.validation,
        loss=loss_of(data),
        score=None if data.padding is not None else accuracy,
        options=options,
        prior=settings.widths.prior if isinstance(settings.widths, Learned) else Prior(None),
        budget=_budget(model, data, settings.widths),
        callbacks=[callback],
        folder=scratch,
        resume=resume and scratch is not None,
        optimizer=make_optimizer(model, training, settings.widths),
    )


def _budget(model: nn.Module, data: Dataset, widths: Widths) -> Budget | None:
    if not isinstance(widths, Budgeted):
        return None
    found = positions(model, data.train.x[:2])
    return Budget(max_flops=widths.max_flops, strength=widths.strength, positions=found)


def make_optimizer(model: nn.Module, training: Training, widths: Widths) -> Optimizer:
    """Adam or SGD; ν, biases and norms are never decayed."""
    own_rate = widths.width_lr if isinstance(widths, Budgeted) else None
    width_lr = training.lr if own_rate is None else own_rate
    groups = param_groups(model, training.lr, width_lr=width_lr, weight_decay=training.weight_decay)
    if training.optimizer == "adam":
        return Adam(groups, eps=training.eps, fused=True)
    optimizer = SGD(groups, momentum=training.momentum, fused=True)
    if isinstance(widths, Learned) and widths.even_steps:
        even_steps_(model, optimizer)
    return optimizer


def _columns(history: History, *, learned: bool) -> dict[str, Any]:
    """The history as columns, of evenly spaced epochs and the one that was kept; fixed widths are not repeated."""
    rows = [history[place] for place in thin(len(history), _EPOCHS_KEPT, [history.kept_epoch - 1])]
    shortened = {name: [short(row[name], 5) for row in rows] for name in ("score", "data", "width")}
    widths = {layer: [row["widths"][layer] for row in rows] for layer in rows[0]["widths"] if learned}
    return {"epoch": [row["epoch"] for row in rows], **shortened, "widths": widths}


def total_width(record: Record) -> int:
    """The units of all layers together."""
    return sum(record["widths"].values())
