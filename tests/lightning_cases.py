"""A LightningModule and a Trainer for several ranks; what they are asked to do is in rank_cases.py."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import awn
from awn.integrations.lightning import AdaptiveWidth
from awn.training import Data


class Regressor(pl.LightningModule):
    """A network that is adaptive already."""

    def __init__(self, network: nn.Module, *, manual: bool = False) -> None:
        super().__init__()
        self.network = network
        self.automatic_optimization = not manual

    def training_step(self, batch: list[Tensor]) -> Tensor:
        loss = F.mse_loss(self.network(batch[0]), batch[1])
        if not self.automatic_optimization:
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(awn.param_groups(self, lr=0.01, width_lr=0.02))


module = Regressor


def callback() -> AdaptiveWidth:
    prior = awn.Prior(weight_scale=0.5, width_mean=0.3, width_scale=0.05)
    return AdaptiveWidth(prior, awn.Budget(max_units=30, strength=0.01))


class Pushed(pl.Callback):
    """Pushes widths up and down after every step, before they are resized, and notes them as the next batch comes."""

    def __init__(self) -> None:
        super().__init__()
        self.widths: list[dict[str, int]] = []
        self.replaced = 0
        self.logged: float | None = None
        self._steps = 0
        self._parameters: list[nn.Parameter] = []

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._parameters = list(pl_module.parameters())

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        now = list(pl_module.parameters())
        if trainer.global_step > 0:
            self.widths.append(awn.widths(pl_module))
            self.replaced += any(old is not new for old, new in zip(self._parameters, now, strict=True))
        self._parameters = now

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        if trainer.global_step > self._steps:
            self._steps = trainer.global_step
            for group in awn.advanced.find_groups(pl_module):
                group.width.move_(group.width.log_nu.item() - 0.2 * math.cos(self._steps / 4))

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.logged = trainer.callback_metrics["width/network.hidden.0"].item()


def fit(
    model: pl.LightningModule,
    rows: Data,
    callbacks: list[pl.Callback],
    *,
    epochs: int,
    folder: str,
    ranks: int,
    resume: bool = False,
    accumulate_grad_batches: int = 1,
    **options: Any,
) -> None:
    """Every batch is of 12 samples over all ranks, the same on any number; Lightning's sampler would shuffle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on workers, loggers and folders
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=ranks,
            strategy=DDPStrategy(process_group_backend="gloo", **options) if ranks > 1 else "auto",
            max_epochs=epochs,
            accumulate_grad_batches=accumulate_grad_batches,
            callbacks=[*callbacks, ModelCheckpoint(folder, filename="last", enable_version_counter=False)],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        data = TensorDataset(rows.x, rows.y)
        own = DistributedSampler(data, ranks, trainer.global_rank, shuffle=False) if ranks > 1 else None
        loader = DataLoader(data, batch_size=12 // ranks, sampler=own)
        trainer.fit(model, loader, ckpt_path=str(Path(folder) / "last.ckpt") if resume else None)
