"""A training loop over tensors, with early stopping, logs and exact resume."""

from awn.training.callbacks import Callback, Progress
from awn.training.data import Data
from awn.training.denormals import flush_denormals
from awn.training.history import History
from awn.training.loggers import MLflowLogger, TensorBoardLogger
from awn.training.loop import fit
from awn.training.options import FitOptions
from awn.training.schedule import Cosine, Milestones, Plateau, Schedule, Warmup
from awn.training.shrink import Shrink

__all__ = [
    "Callback",
    "Cosine",
    "Data",
    "FitOptions",
    "History",
    "MLflowLogger",
    "Milestones",
    "Plateau",
    "Progress",
    "Schedule",
    "Shrink",
    "TensorBoardLogger",
    "Warmup",
    "fit",
    "flush_denormals",
]
