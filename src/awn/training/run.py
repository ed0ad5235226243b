"""Run: what a training run has besides its model: optimizer, schedule, shuffling, best epoch and checkpoints."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from awn.core.groups import find_groups
from awn.core.state import load_state_dict_
from awn.core.width import as_options
from awn.errors import ArgumentError, CheckpointError, RankError
from awn.files.run_file import read_extra, resume_run_, save_run
from awn.loss.param_groups import param_groups
from awn.nn.mlp import AdaptiveMLP
from awn.parallel.collectives import rank_of, ranks_of, share_, told
from awn.parallel.unwrap import unwrapped
from awn.training.callbacks import Progress
from awn.training.data import Data, checksum
from awn.training.history import History, Row, json_line
from awn.training.options import FitOptions
from awn.training.schedule import make_scheduler

# Often enough that a killed run loses little, seldom enough that writing costs nothing beside training.
_SECONDS_BETWEEN_CHECKPOINTS = 5.0


class Run:
    """What `fit` keeps between epochs."""

    def __init__(
        self,
        model: nn.Module,
        train: Data,
        options: FitOptions,
        folder: str | Path | None,
        optimizer: Optimizer | None,
        objective: Mapping[str, Any],
    ) -> None:
        #: The model as it was given: perhaps in a DistributedDataParallel, which then trains and resizes it.
        self.parallel = model
        self.rank, self.ranks = rank_of(model), ranks_of(model)
        model = unwrapped(model)
        groups = param_groups(model, options.lr, width_lr=options.width_lr, weight_decay=options.weight_decay)
        self.train = train
        self.options = options
        self.folder = None if folder is None else Path(folder)
        self.optimizer = Adam(groups, fused=True) if optimizer is None else optimizer
        self.learns_width = bool(find_groups(model))
        self.scheduler = make_scheduler(self.optimizer, options)
        self.shuffling = torch.Generator().manual_seed(options.seed)
        self.progress = Progress(model, self.optimizer, options, History())
        self.best: dict[str, Any] = {"score": -math.inf, "epoch": 0, "since": 0, "state": None}
        self._settings = {
            **dataclasses.asdict(options),
            **{name: repr(part) for name, part in objective.items()},
            "model": _architecture(model),
            "samples": len(train.y),
            "rows of the table": "" if folder is None else checksum(train),
        }
        self._last_checkpoint = time.monotonic()

    @property
    def model(self) -> nn.Module:
        """The model in training."""
        return self.progress.model

    def batches(self) -> Iterator[tuple[Data, float]]:
        """One epoch of minibatches, of nearly equal size: a last one of a single sample would upset a batch norm.

        Every rank shuffles alike and takes its part of each batch. With it comes how many times the part is an equal
        one: the loss is multiplied by that, so that the mean over the ranks is the mean over the batch.
        """
        samples = len(self.train.y)
        number = math.ceil(samples / self.options.batch_size)
        if samples // number < self.ranks:
            raise ArgumentError(
                f"batches of {samples // number} samples cannot be split over {self.ranks} ranks: use larger ones "
                "(batch_size), or fewer ranks."
            )
        order = torch.randperm(samples, generator=self.shuffling).to(self.train.x.device)
        for rows in order.tensor_split(number):
            own = rows.tensor_split(self.ranks)[self.rank]
            yield self.train.rows(own), len(own) * self.ranks / len(rows)

    def draw_apart(self) -> None:
        """Give the ranks random numbers of their own, for dropout.

        Rank 0 goes on with its own, which the checkpoint holds; the others start anew in each epoch, from numbers that
        a resumed run knows as well.
        """
        if self.rank > 0:
            torch.manual_seed(zlib.crc32(f"{self.options.seed} {self.rank} {self.progress.epoch}".encode()))

    def autocast(self) -> AbstractContextManager[Any]:
        """Mixed precision, where it is wanted and the device has it."""
        device = self.train.x.device.type
        wanted = self.options.precision
        if wanted == "bfloat16" or (wanted == "auto" and device == "cuda" and torch.cuda.is_bf16_supported()):
            return torch.autocast(device, dtype=torch.bfloat16)
        return nullcontext()

    def end_epoch(self, measured: Row) -> None:
        """Note the epoch, step the schedule, keep the state if it is the best, stop if patience is over."""
        progress = self.progress
        by_loss = self.options.stop_by == "loss"
        merit = -measured["total"]
        if "score" in measured:
            merit = -measured["validation_loss"] if by_loss else measured["score"]
        progress.epoch += 1
        groups = find_groups(self.model)
        row = {
            "epoch": progress.epoch,
            "score": None,
            **measured,
            "lr": self.optimizer.param_groups[0]["lr"],
            "widths": {group.name: group.width.units for group in groups},
            "nu": {group.name: group.width.value for group in groups},
        }
        progress.history.rows.append(row)
        if "score" in measured:
            self._keep_if_best(merit)
            if self.options.patience is not None and row["epoch"] - self.best["since"] >= self.options.patience:
                progress.stop = True
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(merit)
        else:
            self.scheduler.step()
        if self.folder is not None and self.rank == 0:
            with (self.folder / "history.jsonl").open("ab") as file:
                file.write(json_line(row))

    def _keep_if_best(self, merit: float) -> None:
        better = merit > self.best["score"]
        if better or (merit == self.best["score"] and self.options.ties == "last"):
            epoch = self.progress.epoch
            self.best = {
                "score": merit,
                "epoch": epoch,
                "since": epoch if better else self.best["since"],
                "state": copy.deepcopy(self.model.state_dict()),
            }

    def checkpoint(self, *, now: bool = False) -> None:
        """Write all that is needed to go on, every few seconds or now."""
        due = now or time.monotonic() - self._last_checkpoint > _SECONDS_BETWEEN_CHECKPOINTS
        if self.folder is None or self.rank > 0 or not due:
            return
        extra = {
            "settings": self._settings,
            "epoch": self.progress.epoch,
            "step": self.progress.step,
            "stop": self.progress.stop,
            "rows": self.progress.history.rows,
            "best": self.best,
            "shuffling": self.shuffling.get_state(),
        }
        save_run(self.folder / "run.safetensors", self.model, self.optimizer, scheduler=self.scheduler, extra=extra)
        self._last_checkpoint = time.monotonic()

    def start_afresh(self) -> None:
        """Clear the folder of an earlier run, which would else be resumed in place of this one."""
        if self.folder is not None and self.rank == 0:
            (self.folder / "run.safetensors").unlink(missing_ok=True)
            self.progress.history.save(self.folder / "history.jsonl")

    def resume_(self) -> None:
        """Go on from the folder's checkpoint, if it has one."""
        if self.folder is None:
            raise ArgumentError("resume=True needs the folder of the run to go on with: folder=….")
        path = self.folder / "run.safetensors"
        if path.is_file():
            self._check_same(path, read_extra(path))
            extra = resume_run_(path, self.parallel, self.optimizer, scheduler=self.scheduler)
            self.progress.epoch, self.progress.step, self.progress.stop = extra["epoch"], extra["step"], extra["stop"]
            self.progress.history.rows[:] = extra["rows"]
            self.best = extra["best"]
            self.shuffling.set_state(extra["shuffling"])
        if told(self.parallel, lambda: [self.progress.epoch], 1) != [self.progress.epoch]:
            raise RankError(
                f"rank {self.rank} does not find the checkpoint that rank 0 goes on from: {path} must be on a disk "
                "that all ranks share."
            )
        # Epochs after the checkpoint are run again: the file must not list them twice.
        if self.rank == 0:
            self.progress.history.save(self.folder / "history.jsonl")

    def finish(self) -> None:
        """Bring the model back to its best epoch, widths and all."""
        self.checkpoint(now=True)
        if self.best["state"] is not None:
            load_state_dict_(self.parallel, self.best["state"], self.optimizer)
        share_(self.parallel, self.model.buffers())  # every rank has a batch norm's statistics of its own rows
        self.parallel.eval()

    def _check_same(self, path: Path, extra: dict[str, Any]) -> None:
        now, before = self._settings, dict(extra["settings"])
        if self.options.schedule != "cosine":
            before["epochs"] = self.options.epochs  # a run may be prolonged, unless its schedule knows the end
        changed = [name for name, value in now.items() if value != before.get(name)]
        if changed:
            raise CheckpointError(
                f"{path} belongs to a run with other settings ({', '.join(changed)}), so it cannot be resumed with "
                "these. Resume with the same ones, or start afresh in another folder."
            )


def _architecture(model: nn.Module) -> str:
    """What a model is, whatever its weights and widths are at present."""
    groups = find_groups(model)
    learned = [(group.name, group.width.family, as_options(group.width)) for group in groups]
    if isinstance(model, AdaptiveMLP):
        return f"{model.options} {learned}"
    return f"{type(model).__name__} {learned}" if groups else repr(model)
