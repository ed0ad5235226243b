"""Run: what a training run has besides its model: optimizer, schedule, shuffling, best epoch and checkpoints."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, ReduceLROnPlateau

from awn.checkpoint import read_extra, resume_run_, save_run
from awn.errors import CheckpointError
from awn.groups import find_groups
from awn.state import load_state_dict_
from awn.summary import param_groups
from awn.training.callbacks import Progress
from awn.training.history import History, Row, json_line
from awn.training.options import FitOptions

# Often enough that a killed run loses little, seldom enough that writing costs nothing beside training.
_SECONDS_BETWEEN_CHECKPOINTS = 5.0


class Data(NamedTuple):
    """Inputs, targets and, if wanted, a weight a sample: tensors with the samples along the first dimension."""

    x: Tensor
    y: Tensor
    weight: Tensor | None = None

    def rows(self, rows: Tensor) -> Data:
        """Some of the samples."""
        return Data(self.x[rows], self.y[rows], None if self.weight is None else self.weight[rows])


class Run:
    """What `fit` keeps between epochs."""

    def __init__(
        self,
        model: nn.Module,
        train: Data,
        options: FitOptions,
        folder: str | Path | None,
        optimizer: Optimizer | None,
    ) -> None:
        groups = param_groups(model, options.lr, width_lr=options.width_lr, weight_decay=options.weight_decay)
        self.train = train
        self.options = options
        self.folder = None if folder is None else Path(folder)
        self.optimizer = Adam(groups, fused=True) if optimizer is None else optimizer
        self.learns_width = bool(find_groups(model))
        self.scheduler = _make_scheduler(self.optimizer, options)
        self.shuffling = torch.Generator().manual_seed(options.seed)
        self.progress = Progress(model, self.optimizer, options, History())
        self.best: dict[str, Any] = {"score": -math.inf, "epoch": 0, "state": None}
        self._last_checkpoint = time.monotonic()

    @property
    def model(self) -> nn.Module:
        """The model in training."""
        return self.progress.model

    def batches(self) -> Iterator[Data]:
        """One epoch of minibatches, of nearly equal size: a last one of a single sample would upset a batch norm."""
        samples = len(self.train.y)
        order = torch.randperm(samples, generator=self.shuffling).to(self.train.x.device)
        for rows in order.tensor_split(math.ceil(samples / self.options.batch_size)):
            yield self.train.rows(rows)

    def autocast(self) -> AbstractContextManager[Any]:
        """Mixed precision, where it is wanted and the device has it."""
        device = self.train.x.device.type
        wanted = self.options.precision
        if wanted == "bfloat16" or (wanted == "auto" and device == "cuda" and torch.cuda.is_bf16_supported()):
            return torch.autocast(device, dtype=torch.bfloat16)
        return nullcontext()

    def end_epoch(self, measured: Row) -> None:
        """Note the epoch, step the schedule, keep the state if it is the best, stop if patience is over."""
        progress, score = self.progress, measured["score"]
        progress.epoch += 1
        groups = find_groups(self.model)
        row = {
            "epoch": progress.epoch,
            **measured,
            "lr": self.optimizer.param_groups[0]["lr"],
            "widths": {group.name: group.width.units for group in groups},
            "nu": {group.name: group.width.value for group in groups},
        }
        progress.history.rows.append(row)
        if score is not None:
            if score > self.best["score"]:
                self.best = {"score": score, "epoch": row["epoch"], "state": copy.deepcopy(self.model.state_dict())}
            if self.options.patience is not None and row["epoch"] - self.best["epoch"] >= self.options.patience:
                progress.stop = True
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(-row["total"] if score is None else score)
        else:
            self.scheduler.step()
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / "history.jsonl").open("ab") as file:
                file.write(json_line(row))

    def checkpoint(self, *, now: bool = False) -> None:
        """Write all that is needed to go on, every few seconds or now."""
        if self.folder is None or not (now or time.monotonic() - self._last_checkpoint > _SECONDS_BETWEEN_CHECKPOINTS):
            return
        extra = {
            "options": dataclasses.asdict(self.options),
            "samples": len(self.train.y),
            "epoch": self.progress.epoch,
            "step": self.progress.step,
            "stop": self.progress.stop,
            "rows": self.progress.history.rows,
            "best": self.best,
            "shuffling": self.shuffling.get_state(),
        }
        save_run(self.folder / "run.safetensors", self.model, self.optimizer, scheduler=self.scheduler, extra=extra)
        self._last_checkpoint = time.monotonic()

    def resume_(self) -> None:
        """Go on from the folder's checkpoint, if it has one."""
        assert self.folder is not None
        path = self.folder / "run.safetensors"
        if path.is_file():
            self._check_same(path, read_extra(path))
            extra = resume_run_(path, self.model, self.optimizer, scheduler=self.scheduler)
            self.progress.epoch, self.progress.step, self.progress.stop = extra["epoch"], extra["step"], extra["stop"]
            self.progress.history.rows[:] = extra["rows"]
            self.best = extra["best"]
            self.shuffling.set_state(extra["shuffling"])
        # Epochs after the checkpoint are run again: the file must not list them twice.
        self.progress.history.save(self.folder / "history.jsonl")

    def finish(self) -> None:
        """Bring the model back to its best epoch, widths and all."""
        self.checkpoint(now=True)
        if self.best["state"] is not None:
            load_state_dict_(self.model, self.best["state"], self.optimizer)
        self.model.eval()

    def _check_same(self, path: Path, extra: dict[str, Any]) -> None:
        now = {**dataclasses.asdict(self.options), "samples": len(self.train.y)}
        before = {**extra["options"], "samples": extra["samples"]}
        if self.options.schedule != "cosine":
            before["epochs"] = self.options.epochs  # a run may be prolonged, unless its schedule knows the end
        changed = [name for name, value in now.items() if value != before.get(name)]
        if changed:
            raise CheckpointError(
                f"{path} belongs to a run with other settings ({', '.join(changed)}), so it cannot be resumed with "
                "these. Resume with the same ones, or start afresh in another folder."
            )


def _make_scheduler(optimizer: Optimizer, options: FitOptions) -> LRScheduler | ReduceLROnPlateau:
    if options.schedule == "cosine":
        return CosineAnnealingLR(optimizer, options.epochs, eta_min=options.lr / 100)
    if options.schedule == "plateau":
        return ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=max(1, (options.patience or 40) // 4))
    return LambdaLR(optimizer, lambda _: 1.0)
