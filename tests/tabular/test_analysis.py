"""What a report is told of a run agrees with what was kept of it."""

from sklearn.datasets import load_breast_cancer

from awn.tabular.analysis import mark_best
from awn.tabular.estimators import AdaptiveClassifier


def test_the_last_marked_epoch_is_the_one_that_was_kept() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    classifier = AdaptiveClassifier(epochs=12, random_state=0).fit(X, y)
    marked = [row for row in mark_best(classifier.history_.rows) if row["best"]]
    assert marked[-1]["widths"] == classifier.widths_
    assert marked[-1]["validation_loss"] == min(row["validation_loss"] for row in classifier.history_)
