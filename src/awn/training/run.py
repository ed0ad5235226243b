"""Run: the state of a training besides the model: optimizer, schedule, shuffling, best epoch and checkpoints."""

from __future__ import annotations

import copy
import math
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from awn.basics.plain import to_plain
from awn.basics.random_states import seed_torch
from awn.core.groups import find_groups
from awn.core.ordered import order_
from awn.core.state import load_state_dict_
from awn.core.width import as_options
from awn.errors import ArgumentError, CheckpointError, RankError
from awn.files.run_file import read_extra, resume_run_, save_run
from awn.files.write import names_file
from awn.loss.budget import Budget
from awn.loss.param_groups import param_groups
from awn.loss.prior import Prior
from awn.nn.mlp import AdaptiveMLP
from awn.parallel.collectives import rank_of, ranks_of, share_, told
from awn.parallel.unwrap import unwrapped
from awn.smaller.choose import SLACK
from awn.training.callbacks import Callback, Progress
from awn.training.data import Data, checksum
from awn.training.history import EpochRow, History, json_line
from awn.training.options import FitOptions
from awn.training.run_schema import check_run_state

# Often enough that a killed run loses little, seldom enough that writing costs nothing beside training.
_SECONDS_BETWEEN_CHECKPOINTS = 5.0
# Fluctuations of the width by a unit or two are no reason to prefer an epoch.
_CLEARLY_SMALLER = 0.8


class Run:
    """The state of `fit` between epochs."""

    def __init__(
        self,
        model: nn.Module,
        train: Data,
        options: FitOptions,
        folder: str | Path | None,
        optimizer: Optimizer | None,
        prior: Prior,
        budget: Budget | None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        #: The model as it was given: perhaps in a DistributedDataParallel, which then trains and resizes it.
        self.parallel = model
        self.rank, self.ranks = rank_of(model), ranks_of(model)
        model = unwrapped(model)
        self.learns_width = bool(find_groups(model))
        if options.ordered is not None:
            order_(model, options.ordered)
        #: Whether some steps use a prefix of the units besides the whole network.
        self.ordered = any(group.width.ordered for group in find_groups(model))
        if optimizer is None:
            # The optimizer applies the prior on the weights, which is cheaper than a term of the loss.
            inside: dict[str, Any] = {"prior": prior, "n_samples": len(train.y)} if self.learns_width else {}
            groups = param_groups(
                model, options.lr, width_lr=options.rate_of_width, weight_decay=options.weight_decay, **inside
            )
            optimizer = Adam(groups, fused=True)
        self.optimizer = optimizer
        self.train = train
        self.callbacks = callbacks
        self.options = options
        self.folder = None if folder is None else Path(folder)
        self.schedule = options.rate_schedule()
        if self.schedule is not None:
            for group in self.optimizer.param_groups:
                group["initial_lr"] = float(group["lr"])  # saved with the optimizer
        self.shuffling = torch.Generator().manual_seed(options.seed)
        self.progress = Progress(model, self.optimizer, options, History(), train=train)
        #: The best merit, since which epoch, and what is within the slack of it; then the kept epoch.
        self.best: dict[str, Any] = {}
        self.forget_best()
        settings = to_plain(options, kinds=True, other=repr)
        settings.pop("by_hand")  # a run may go on along the other path
        self._settings = {
            **settings,
            "prior": repr(prior),
            "budget": repr(budget),
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
        """One epoch of minibatches; see `batch_rows`."""
        for rows, share in self.batch_rows():
            yield self.train.rows(rows), share

    def batch_rows(self) -> Iterator[tuple[Tensor, float]]:
        """The rows of one epoch of minibatches, of nearly equal size: a single last sample would upset a batch norm.

        All ranks shuffle alike, and each takes its part of every batch. The second value is the size of the part
        relative to an equal share. The loss is multiplied by it, so that the mean over ranks is the batch mean.
        """
        order, number = self.shuffled()
        if len(order) // number < self.ranks:
            raise ArgumentError(
                f"batches of {len(order) // number} samples cannot be split over {self.ranks} ranks. Increase "
                "batch_size, or use fewer ranks."
            )
        for rows in order.to(self.train.x.device).tensor_split(number):
            own = rows if self.ranks == 1 else rows.tensor_split(self.ranks)[self.rank]
            yield own, len(own) * self.ranks / len(rows)

    def shuffled(self) -> tuple[Tensor, int]:
        """The order of the samples in the next epoch, and the number of its batches."""
        samples, passes = len(self.train.y), self.options.passes
        orders = [torch.randperm(samples, generator=self.shuffling) for _ in range(passes)]
        return torch.cat(orders), passes * math.ceil(samples / self.options.batch_size)

    def draw_apart(self) -> None:
        """Give the ranks different random numbers, for dropout.

        Rank 0 continues with its own random state, which the checkpoint holds. The others are seeded in each epoch from
        values that a resumed run knows, too.
        """
        if self.rank > 0:
            seed_torch(zlib.crc32(f"{self.options.seed} {self.rank} {self.progress.epoch}".encode()))

    def autocast(self) -> AbstractContextManager[Any]:
        """Mixed precision, if requested and supported by the device."""
        device = self.train.x.device.type
        wanted = self.options.precision
        if wanted == "bfloat16" or (wanted == "auto" and device == "cuda" and torch.cuda.is_bf16_supported()):
            return torch.autocast(device, dtype=torch.bfloat16)
        return nullcontext()

    def set_learning_rates(self) -> None:
        """Set the learning rates of the next epoch, from the history alone, which a resumed run has, too."""
        if self.schedule is None:
            return
        relative = self.schedule.relative_rate([self.options.merit(row) for row in self.progress.history])
        for group in self.optimizer.param_groups:
            rate = group["initial_lr"] * relative
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def end_epoch(self, measured: EpochRow, error: Callable[[], float] = float) -> None:
        """Record the epoch, keep the state if it is the best, and stop if patience is exhausted.

        `error` computes the standard error of the validation loss; it is called if the loss is the lowest so far.
        """
        progress, patience = self.progress, self.options.patience
        progress.epoch += 1
        groups = find_groups(self.model)
        row: EpochRow = {
            "epoch": progress.epoch,
            "score": None,
            **measured,
            "lr": float(self.optimizer.param_groups[0]["lr"]),
            "widths": {group.name: group.width.units for group in groups},
            "nu": {group.name: group.width.value for group in groups},
        }
        row["best"] = row["score"] is not None and self._keep_if_best(row, error)
        progress.history.rows.append(row)
        if row["score"] is not None and patience is not None and progress.epoch - self.best["since"] >= patience:
            progress.stop = True
        if self.folder is not None and self.rank == 0:
            path = self.folder / "history.jsonl"
            with names_file(path), path.open("ab") as file:
                file.write(json_line(row))

    def _keep_if_best(self, row: EpochRow, error: Callable[[], float]) -> bool:
        best, merit, units = self.best, self.options.merit(row), sum(row["widths"].values())
        if merit > best["merit"]:
            # An early epoch may have the lowest loss by chance, before the widths have settled. So of epochs that are
            # as good within the slack of `awn.choose`, a clearly smaller network is kept.
            settles = self.options.choose is not None and self.options.stop_by == "loss" and self.learns_width
            best |= {"merit": merit, "since": self.progress.epoch, "slack": SLACK * error() if settles else 0.0}
        lowest = best["merit"] - best["slack"]
        if best["kept"] < lowest or units < _CLEARLY_SMALLER * best["units"]:
            kept = bool(merit >= lowest)
        elif units * _CLEARLY_SMALLER > best["units"]:
            kept = False
        else:
            kept = bool(merit > best["kept"] or (merit == best["kept"] and self.options.ties == "last"))
        if kept:
            best |= {"kept": merit, "units": units, "state": copy.deepcopy(self.model.state_dict())}
        return kept

    def forget_best(self) -> None:
        """Keep none of the epochs so far."""
        self.best = {"merit": -math.inf, "since": self.progress.epoch, "slack": 0.0}
        self.best |= {"kept": -math.inf, "units": 0, "state": None}

    @property
    def is_waiting(self) -> bool:
        """Whether ν waits in the next epoch."""
        return self.learns_width and self.progress.epoch < self.options.waiting_epochs

    @property
    def is_to_narrow(self) -> bool:
        """Whether layers that are too wide are to be cut now, before the next epoch."""
        return self.learns_width and 0 < self.options.waiting_epochs == self.progress.epoch

    def checkpoint(self, *, now: bool = False) -> None:
        """Write a checkpoint, every few seconds or now."""
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
            "callbacks": [
                [type(callback).__name__, state] for callback in self.callbacks if (state := callback.state_dict())
            ],
        }
        save_run(self.folder / "run.safetensors", self.model, self.optimizer, extra=extra)
        self._last_checkpoint = time.monotonic()

    def start_afresh(self) -> None:
        """Remove the checkpoint of an earlier run, which would otherwise be resumed instead of this one."""
        if self.folder is not None and self.rank == 0:
            (self.folder / "run.safetensors").unlink(missing_ok=True)
            self.progress.history.save(self.folder / "history.jsonl")

    def resume_(self) -> None:
        """Continue from the folder's checkpoint, if it has one."""
        if self.folder is None:
            raise ArgumentError("resume=True needs the folder of the interrupted run: folder=….")
        path = self.folder / "run.safetensors"
        if path.is_file():
            self._check_same(path, read_extra(path))
            extra = resume_run_(path, self.parallel, self.optimizer)
            self.progress.epoch, self.progress.step, self.progress.stop = extra["epoch"], extra["step"], extra["stop"]
            self.progress.history.rows[:] = extra["rows"]
            self.best = extra["best"]
            self.shuffling.set_state(extra["shuffling"])
            self._resume_callbacks(path, extra.get("callbacks", []))
        if told(self.parallel, lambda: [self.progress.epoch], 1) != [self.progress.epoch]:
            raise RankError(
                f"rank {self.rank} does not find the checkpoint that rank 0 resumes from: {path} must be on a disk "
                "that all ranks share."
            )
        # Epochs after the checkpoint are run again: the file must not list them twice.
        if self.rank == 0:
            self.progress.history.save(self.folder / "history.jsonl")

    def _resume_callbacks(self, path: Path, states: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Give each saved state to the next callback of its class."""
        left = list(self.callbacks)
        for name, state in states if self.rank == 0 else ():
            callback = next((one for one in left if type(one).__name__ == name), None)
            if callback is None:
                raise CheckpointError(f"{path} belongs to a run with a {name} callback. Resume it with one, too.")
            left.remove(callback)
            callback.load_state_dict(state)

    def finish(self) -> None:
        """Restore the weights and widths of the best epoch."""
        self.checkpoint(now=True)
        if self.best["state"] is not None:
            load_state_dict_(self.parallel, self.best["state"], self.optimizer)
        share_(self.parallel, self.model.buffers())  # the batch-norm statistics of the ranks differ
        self.parallel.eval()

    def _check_same(self, path: Path, extra: Any) -> None:
        check_run_state(extra, str(path))
        now, before = self._settings, dict(extra["settings"])
        if self.options.schedule != "cosine":
            before["epochs"] = self.options.epochs  # a run may be extended, unless its schedule depends on the end
        changed = [name for name, value in now.items() if value != before.get(name)]
        if changed == ["epochs"]:
            raise CheckpointError(
                f'{path} belongs to a run of {before["epochs"]} epochs with schedule="cosine", whose learning rate '
                f"has come down by then, so it cannot be continued to {now['epochs']} epochs. Start a new run with "
                f'epochs={now["epochs"]}, overwriting this one or in another folder. A run with schedule="constant" or '
                '"plateau" can be extended.'
            )
        if changed:
            raise CheckpointError(
                f"{path} belongs to a run with other settings ({', '.join(changed)}), so it cannot be resumed with "
                "these. Resume with the same settings, or start a new run in another folder."
            )
        state = extra["best"]["state"]
        if state is not None and state.keys() != self.model.state_dict().keys():
            raise CheckpointError(f"{path} is damaged: its best state belongs to another model. Restore the file.")


def _architecture(model: nn.Module) -> str:
    """The architecture of a model, independent of its weights, widths and `max_units`."""
    groups = find_groups(model)
    # A run that ran out of memory may be resumed with a lower bound.
    options = [{**as_options(group.width), "max_units": None} for group in groups]
    learned = [(group.name, group.width.family, own) for group, own in zip(groups, options, strict=True)]
    if isinstance(model, AdaptiveMLP):
        return f"{model.options} {learned}"
    return f"{type(model).__name__} {learned}" if groups else repr(model)
