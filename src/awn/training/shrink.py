"""Shrink: remove units while training, as long as the held-out score holds."""

from __future__ import annotations

import copy
import logging
import math
from typing import Any, Literal, get_args

from torch import nn
from torch.optim import Optimizer

from awn.basics.checks import check_number, check_units
from awn.core.groups import require_groups
from awn.core.optimizers import Optimizers, list_optimizers
from awn.core.state import load_state_dict_
from awn.errors import ArgumentError
from awn.parallel.torchrun import several_ranks
from awn.parallel.unwrap import unwrapped
from awn.smaller.remove import prune_
from awn.training.callbacks import Callback, Progress
from awn.training.run_schema import check_shrink_state

_log = logging.getLogger(__name__)
#: Whether a metric is better when lower or when higher.
Mode = Literal["min", "max"]


class Shrink(Callback):
    """Makes a network smaller while it trains, until its held-out score would drop by more than `max_drop`.

    Pass it to `fit` as a callback. It first waits until the score has not improved for `patience` epochs, or for
    `start` epochs. Then it removes the fraction `fraction` of all units, see `awn.advanced.prune`, and training goes
    on. If the score comes back to within `max_drop` of the best score of the uncut network, the smaller network is kept
    and cut again. If it has not come back after `patience` epochs, the last kept network is restored and cut by half as
    much. Training stops when not even a unit per layer can be removed. At the end, the model is the smallest network
    that was kept.

    `repair` are inputs to select the units and refit the weights with: a tensor, or batches. `fit` uses those of its
    training set by default. The optimizer stays in use. `fit` does not choose a width at the end.

    >>> import awn, torch
    >>> from awn.training import Data, FitOptions, fit
    >>> x = torch.randn(500, 2)
    >>> data, held_out = Data(x[:400], (x[:400, 0] > 0).long()), Data(x[400:], (x[400:, 0] > 0).long())
    >>> model = awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(64))
    >>> options, shrink = FitOptions(epochs=30), Shrink(max_drop=0.02)
    >>> history = fit(model, data, held_out, loss=awn.likelihood.categorical, options=options, callbacks=[shrink])
    >>> awn.widths(model)["hidden.0"] < 32
    True

    In a loop of your own, call `step_` after each epoch, and `restore_` at the end.
    """

    chooses_width = True

    def __init__(
        self,
        max_drop: float = 0.005,
        *,
        fraction: float = 0.25,
        patience: int = 5,
        start: int | None = None,
        repair: Any = None,
    ) -> None:
        check_number("max_drop", max_drop, or_equal=True)
        if not 0 < fraction < 1:
            raise ArgumentError(f"fraction must lie strictly between 0 and 1, got {fraction}.", argument="fraction")
        check_units("patience", patience)
        if start is not None:
            check_units("start", start)
        self.max_drop = max_drop
        self.fraction = fraction
        self.patience = patience
        self.start = start
        self.repair = repair
        self._inputs: Any = None  # of the training set of `fit`
        self._state = self._fresh_state()

    def _fresh_state(self) -> dict[str, Any]:
        return {
            "epoch": 0,
            "best": -math.inf,  # of the uncut network
            "waited": 0,  # epochs since the best score, or since the last cut
            "cutting": False,
            "done": False,
            "fraction": self.fraction,
            "removed": 0,  # units, in the last cut
            "bounds": {},  # the layers' own max_units
            "kept": None,  # the last network that was good enough, with its optimizers and its score
        }

    @property
    def done(self) -> bool:
        """Whether no smaller network is good enough, so that training can stop."""
        return bool(self._state["done"])

    @property
    def best_score(self) -> float:
        """The best score of the uncut network."""
        return float(self._state["best"])

    @property
    def kept_score(self) -> float:
        """The score of the smallest network that was good enough."""
        kept = self._state["kept"]
        return -math.inf if kept is None else float(kept["score"])

    def step_(self, model: nn.Module, optimizer: Optimizers, score: float, *, begin: bool = False) -> bool:
        """Look at the score of the epoch that has ended, and cut, restore or leave the model; returns `done`.

        Call it between an optimizer's step and the next forward. `score` is on held-out data, higher is better.
        `begin=True` starts cutting now.
        """
        if self.done:
            return True
        _check(model, self._data)
        state, score = self._state, float(score)
        state["epoch"] += 1
        state["waited"] += 1
        if not state["cutting"]:
            if score > state["best"]:
                state["best"], state["waited"] = score, 0
                self._keep(model, optimizer, score)
            due = state["waited"] >= self.patience if self.start is None else state["epoch"] >= self.start
            if state["kept"] is not None and (due or begin):
                self._begin_(model, optimizer)
        elif score >= self._lowest:
            self._keep(model, optimizer, score)
            self._cut_(model, optimizer)
        elif state["waited"] >= self.patience:
            self._put_back_(model, optimizer)
            self._cut_less_(model, optimizer)
        return self.done

    def restore_(self, model: nn.Module, optimizer: Optimizers = None) -> None:
        """Bring a model back to the smallest network that was good enough. Layers may grow again afterwards."""
        if self._state["kept"] is None:
            return
        self._put_back_(model, optimizer)
        for group in require_groups(model):
            if group.name in self._state["bounds"]:
                group.width.max_units = self._state["bounds"][group.name]

    def state_dict(self) -> dict[str, Any]:
        """The state, for a checkpoint."""
        return dict(self._state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a checkpoint. Then call `resume_` with the model."""
        check_shrink_state(state_dict)
        self._state = dict(state_dict)

    def resume_(self, model: nn.Module) -> None:
        """Keep the layers of a resumed model from growing, as they were before the interruption."""
        if self._state["cutting"] and not self.done:
            _bound_(model)

    def on_fit_start(self, progress: Progress) -> None:
        """Start afresh, unless a run is resumed."""
        if several_ranks():
            raise ArgumentError("Shrink works in one process only: the others would not follow its cuts.")
        require_groups(progress.model)
        self._inputs = None if progress.train is None else progress.train.x
        if progress.epoch == 0:
            self._state = self._fresh_state()
        self.resume_(progress.model)

    def on_epoch_end(self, progress: Progress) -> None:
        """Cut, restore or leave the model."""
        score = progress.history[-1]["score"]
        if score is None:
            raise ArgumentError("Shrink compares scores on held-out data: pass validation=… to fit.")
        half = self.start is None and progress.epoch >= progress.options.epochs // 2
        progress.stop = self.step_(progress.model, progress.optimizer, score, begin=progress.stop or half)

    def on_fit_end(self, progress: Progress) -> None:
        """Leave the smallest network that was good enough."""
        self.restore_(progress.model, progress.optimizer)

    @property
    def _data(self) -> Any:
        return self._inputs if self.repair is None else self.repair

    @property
    def _lowest(self) -> float:
        best = self.best_score
        return best - self.max_drop - 1e-9 * max(1.0, abs(best))  # rounding: a drop from 0.8 to 0.7 is within 0.1

    def _begin_(self, model: nn.Module, optimizer: Optimizers) -> None:
        self._state["cutting"] = True
        self._state["bounds"] = {group.name: group.width.max_units for group in require_groups(model)}
        self._put_back_(model, optimizer)
        self._cut_(model, optimizer)

    def _keep(self, model: nn.Module, optimizer: Optimizers, score: float) -> None:
        optimizers = [one.state_dict() for one in list_optimizers(optimizer)]
        state = {"model": dict(unwrapped(model).state_dict()), "optimizers": optimizers, "score": score}
        self._state["kept"] = copy.deepcopy(state)

    def _put_back_(self, model: nn.Module, optimizer: Optimizers) -> None:
        kept = copy.deepcopy(self._state["kept"])  # an optimizer takes the tensors themselves, and changes them
        load_state_dict_(model, kept["model"], optimizer)
        for one, state in zip(list_optimizers(optimizer), kept["optimizers"], strict=False):
            _load_state_(one, state)
        _bound_(model)

    def _cut_(self, model: nn.Module, optimizer: Optimizers) -> None:
        """Remove the present fraction of all units, at least one per layer."""
        state, groups = self._state, require_groups(model)
        units = sum(group.width.units for group in groups)
        spare = units - sum(max(1, group.width.min_units) for group in groups)
        remove = min(spare, max(len(groups), round(state["fraction"] * units)))
        state["removed"], state["waited"], state["done"] = remove, 0, spare == 0
        if not self.done:
            prune_(model, self._data, optimizer, remove=remove)
            _bound_(model)
            _log.info("cut from %d to %d units", units, units - remove)

    def _cut_less_(self, model: nn.Module, optimizer: Optimizers) -> None:
        """Cut by half as much as the last time, unless that was a unit per layer."""
        if self._state["removed"] <= len(require_groups(model)):
            self._state["done"] = True
            _log.info("no smaller network reaches a score of %.4f", self._lowest)
        else:
            self._state["fraction"] /= 2
            self._cut_(model, optimizer)


def _load_state_(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load an optimizer's state, but not its learning rates, which belong to the present epoch."""
    rates = [group["lr"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def _bound_(model: nn.Module) -> None:
    """Keep the layers from growing beyond their present width."""
    for group in require_groups(model):
        group.width.max_units = group.width.units
        group.width.min_units = min(group.width.min_units, group.width.units)


def _check(model: nn.Module, data: Any) -> None:
    if unwrapped(model) is not model and several_ranks():
        raise ArgumentError("Shrink works in one process only: the others would not follow its cuts.")
    if data is None:
        raise ArgumentError(
            "Shrink needs inputs to select the units with: Shrink(…, repair=x), best those of the training set.",
            argument="repair",
        )


def check_mode(mode: str) -> None:
    """Raise for an unknown mode."""
    if mode not in get_args(Mode):
        raise ArgumentError(f"mode must be one of {', '.join(get_args(Mode))}; got {mode!r}.", argument="mode")


def as_score(metric: float, mode: Mode) -> float:
    """A metric as a score, of which more is better.

    >>> as_score(0.25, "min")
    -0.25
    """
    return metric if mode == "max" else -metric
