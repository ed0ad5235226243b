"""Loggers: callbacks that send a run's rows to TensorBoard or MLflow."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from awn.basics.extra import needs_extra
from awn.training.callbacks import Callback, Progress
from awn.training.history import EpochRow


class TensorBoardLogger(Callback):
    """Writes every number of every row to TensorBoard. Needs `pip install "awn[tensorboard]"`."""

    def __init__(self, folder: str | Path) -> None:
        with needs_extra(
            "TensorBoardLogger needs TensorBoard", "tensorboard", "tensorboard", "torch.utils.tensorboard"
        ):
            import torch.utils.tensorboard  # noqa: F401
        self.folder = Path(folder)
        self._writer: Any = None  # open only during a run, since a writer cannot be copied or pickled

    def on_fit_start(self, progress: Progress) -> None:
        """Open a file."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self.folder))

    def on_epoch_end(self, progress: Progress) -> None:
        """Write the epoch's row."""
        for name, number in flat_numbers(progress.history[-1]).items():
            self._writer.add_scalar(name, number, progress.epoch)

    def on_fit_end(self, progress: Progress) -> None:
        """Close the file."""
        self._writer.close()
        self._writer = None


class MLflowLogger(Callback):
    """Logs the options and every row to the active MLflow run. Needs `pip install "awn[mlflow]"`."""

    def __init__(self) -> None:
        with needs_extra("MLflowLogger needs MLflow", "mlflow", "mlflow"):
            import mlflow  # noqa: F401

    def on_fit_start(self, progress: Progress) -> None:
        """Log the options."""
        import mlflow

        mlflow.log_params(dataclasses.asdict(progress.options))

    def on_epoch_end(self, progress: Progress) -> None:
        """Log the epoch's row."""
        import mlflow

        mlflow.log_metrics(flat_numbers(progress.history[-1]), step=progress.epoch)


def flat_numbers(row: EpochRow) -> dict[str, float]:
    """The numbers of a row under flat names.

    >>> flat_numbers({"epoch": 1, "score": None, "widths": {"hidden.0": 231}})
    {'epoch': 1.0, 'widths/hidden.0': 231.0}
    """
    flat = {}
    for name, value in row.items():
        entries = (
            {f"{name}/{layer}": number for layer, number in value.items()} if isinstance(value, dict) else {name: value}
        )
        flat.update({key: float(number) for key, number in entries.items() if isinstance(number, int | float)})
    return flat
