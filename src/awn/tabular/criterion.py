"""Criterion: what an estimator's training minimises, what it reports, and how long it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from awn.training.evaluate import Loss, Score

# An evaluation takes as long as some ten steps of a small network. So an epoch of few steps becomes several passes over
# the rows, but there are at least so many epochs: they lower the learning rate, and one of them is kept.
_STEPS_OF_AN_EPOCH, _FEWEST_EVALUATIONS = 100, 6


@dataclass(frozen=True)
class Criterion:
    """The loss to minimise, the score to report, and whether the validation rows keep the proportions of the classes.

    `bins` and `lr` are for estimators whose user sets none. Training takes `passes` passes over the rows. These become
    more or fewer so that the steps stay between `fewest_steps` and `most_steps`, but there are at least
    `fewest_passes`.
    """

    loss: Loss
    score: Score
    stratify: bool
    bins: int
    lr: float
    passes: int
    fewest_passes: int
    fewest_steps: int
    most_steps: int

    def course(self, steps: int) -> Course:
        """The course of a training whose passes have so many steps each.

        >>> from awn.loss.likelihood import categorical
        >>> from awn.training.evaluate import accuracy
        >>> of_classes = Criterion(categorical, accuracy, True, 16, 0.01, 15, 5, fewest_steps=250, most_steps=1000)
        >>> [of_classes.course(steps)[:2] for steps in (8, 33, 150, 1000)]
        [(7, 5), (8, 2), (6, 1), (5, 1)]
        """
        wanted = min(max(self.passes * steps, self.fewest_steps), self.most_steps)
        passes = max(self.fewest_passes, wanted // steps)
        together = max(1, min(round(_STEPS_OF_AN_EPOCH / steps), passes // _FEWEST_EVALUATIONS))
        return Course(math.ceil(passes / together), together, self.lr)


class Course(NamedTuple):
    """The epochs of a training, the passes over the rows in each of them, and the learning rate."""

    epochs: int
    passes: int = 1
    lr: float = 0.01


def batch_size_for(rows: int) -> int:
    """Smaller batches for smaller tables, so that an epoch has enough steps.

    >>> [batch_size_for(rows) for rows in (100, 2000, 50_000)]
    [16, 62, 128]
    """
    return max(16, min(128, rows // 32))
