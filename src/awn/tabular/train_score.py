"""TrainScore: the score on training rows after every epoch, beside that on validation rows."""

from __future__ import annotations

import torch

from awn.training import Callback, Progress
from awn.training.evaluate import Score

_ROWS = 1000  # enough for a curve, and cheap beside an epoch


class TrainScore(Callback):
    """Adds the score on some training rows to every row of the history, as `train_score`."""

    def __init__(self, score: Score) -> None:
        self._score = score

    def on_epoch_end(self, progress: Progress) -> None:
        """Score the network on the training rows."""
        train = progress.train
        if train is None:
            return
        rows = torch.arange(0, len(train.y), max(1, len(train.y) // _ROWS), device=train.x.device)
        progress.history[-1]["train_score"] = self._score(progress.model.eval(), train.rows(rows))
