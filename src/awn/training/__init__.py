"""Training: a plain loop for tensors, with early stopping, logs and exact resume."""

from awn.training.callbacks import Callback, Progress
from awn.training.data import Data
from awn.training.denormals import flush_denormals
from awn.training.history import History
from awn.training.loggers import MLflowLogger, TensorBoardLogger
from awn.training.loop import fit
from awn.training.options import FitOptions

__all__ = [
    "Callback",
    "Data",
    "FitOptions",
    "History",
    "MLflowLogger",
    "Progress",
    "TensorBoardLogger",
    "fit",
    "flush_denormals",
]
