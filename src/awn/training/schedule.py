"""Learning-rate schedules."""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, ReduceLROnPlateau

from awn.training.options import FitOptions


def make_scheduler(optimizer: Optimizer, options: FitOptions) -> LRScheduler | ReduceLROnPlateau:
    """The scheduler of the learning rate that the options name."""
    if options.schedule == "cosine":
        return CosineAnnealingLR(optimizer, options.epochs, eta_min=options.lr / 100)
    if options.schedule == "plateau":
        return ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=max(1, (options.patience or 40) // 4))
    return LambdaLR(optimizer, lambda _: 1.0)
