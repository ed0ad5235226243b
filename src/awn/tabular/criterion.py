"""Criterion: what an estimator's training minimises, what it reports, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass

from awn.training.evaluate import Loss, Score


@dataclass(frozen=True)
class Criterion:
    """The loss to minimise, the score to report, and whether the validation rows keep the proportions of the classes.

    Training takes `epochs`. These become more or fewer so that the steps stay between `fewest_steps` and `most_steps`,
    but there are at least `fewest_epochs`.
    """

    loss: Loss
    score: Score
    stratify: bool
    epochs: int
    fewest_epochs: int
    fewest_steps: int
    most_steps: int

    def epochs_for(self, steps: int) -> int:
        """The number of epochs of so many steps each.

        >>> from awn.loss.likelihood import categorical
        >>> from awn.training.evaluate import accuracy
        >>> of_classes = Criterion(categorical, accuracy, True, 25, fewest_epochs=8, fewest_steps=400, most_steps=2000)
        >>> [of_classes.epochs_for(steps) for steps in (8, 50, 150, 1000)]
        [50, 25, 13, 8]
        """
        wanted = min(max(self.epochs * steps, self.fewest_steps), self.most_steps)
        return max(self.fewest_epochs, wanted // steps)
