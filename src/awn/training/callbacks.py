"""Callbacks: what a run tells those who listen, on one screen."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from torch.optim import Optimizer

from awn.core.resize import Resize
from awn.training.history import History
from awn.training.options import FitOptions


@dataclass
class Progress:
    """Where a run is. The loop fills it in; a callback may set `stop`."""

    model: nn.Module
    optimizer: Optimizer
    options: FitOptions
    history: History
    epoch: int = 0
    step: int = 0
    stop: bool = False


class Callback:
    """Subclass it and write the methods you need; the others do nothing.

    >>> class StopAtPerfect(Callback):
    ...     def on_epoch_end(self, progress):
    ...         progress.stop = progress.history[-1]["score"] == 1.0
    """

    def on_fit_start(self, progress: Progress) -> None:
        """Before the first epoch, or the first after a resume."""

    def on_step_end(self, progress: Progress, resized: dict[str, Resize]) -> None:
        """After every step of the optimizer, with the layers that it resized."""

    def on_epoch_end(self, progress: Progress) -> None:
        """After every epoch; its row is `progress.history[-1]`."""

    def on_fit_end(self, progress: Progress) -> None:
        """After the last epoch, with the best state restored; not after an error."""
