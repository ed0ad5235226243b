"""What a report is told of a run agrees with what was kept of it."""

import pytest
import torch
from sklearn.datasets import load_breast_cancer

import awn
from awn.smaller.activations import activation_bands, unit_activations
from awn.tabular.estimators import AdaptiveClassifier


def test_the_last_marked_epoch_is_the_one_that_was_kept() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    classifier = AdaptiveClassifier(epochs=12, random_state=0, choose=None, members=1).fit(X, y)
    marked = [row for row in classifier.history_ if row["best"]]
    assert marked[-1]["epoch"] == classifier.history_.kept_epoch
    assert marked[-1]["widths"] == classifier.widths_
    assert marked[-1]["validation_loss"] == min(row["validation_loss"] for row in classifier.history_)


def test_activation_bands_are_the_range_of_what_the_next_layer_reads() -> None:
    model, inputs = awn.AdaptiveMLP(2, 2, hidden_layers=2), torch.randn(30, 2)
    bands, single = activation_bands(model, inputs), activation_bands(model, inputs[:1])
    for group in awn.advanced.find_groups(model):
        scaled = unit_activations(model, inputs)[group.name] * group.width.importance()[: group.width.units].detach()
        band = bands[group.name]
        assert torch.equal(band.low, scaled.min(0).values)
        assert torch.equal(band.high, scaled.max(0).values)
        assert band.mean.tolist() == pytest.approx((scaled.sum(0) / 30).tolist(), abs=1e-6)
        # Of one sample, the smallest, the mean and the largest are the same.
        assert torch.equal(single[group.name].low, single[group.name].high)
        assert torch.equal(single[group.name].low, single[group.name].mean)
