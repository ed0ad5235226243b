"""Callbacks: methods that a run calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn
from torch.optim import Optimizer

from awn.core.resize import Resize
from awn.training.data import Data
from awn.training.history import History
from awn.training.options import FitOptions


@dataclass
class Progress:
    """The state of a run. The loop updates it; a callback may set `stop`."""

    model: nn.Module
    optimizer: Optimizer
    options: FitOptions
    history: History
    epoch: int = 0
    step: int = 0
    stop: bool = False
    train: Data | None = None


class Callback:
    """Subclass it and override the methods you need; the others do nothing.

    >>> class StopAtPerfect(Callback):
    ...     def on_epoch_end(self, progress):
    ...         progress.stop = progress.history[-1]["score"] == 1.0
    """

    #: Whether the callback determines the width, so that `fit` does not choose one after training.
    chooses_width: ClassVar[bool] = False

    def on_fit_start(self, progress: Progress) -> None:
        """Called before the first epoch, or the first after a resume."""

    def on_step_end(self, progress: Progress, resized: dict[str, Resize]) -> None:
        """Called after every optimizer step, with the layers that were resized."""

    def on_epoch_end(self, progress: Progress) -> None:
        """Called after every epoch; its row is `progress.history[-1]`."""

    def on_fit_end(self, progress: Progress) -> None:
        """Called after the last epoch, with the kept state restored; not after an error."""

    def state_dict(self) -> dict[str, Any]:
        """The state for checkpoints of the run: numbers, strings, tensors, and lists and dicts of them."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state when a run is resumed; called before `on_fit_start`, and only for a state with entries."""
