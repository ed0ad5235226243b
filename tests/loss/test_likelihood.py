"""Likelihoods: the mean over samples of −log p(y | x), against torch.distributions."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Normal
from torch.nn import functional as F

from awn import AwnError
from awn.loss.likelihood import bernoulli, categorical, gaussian, of_samples


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def numbers() -> torch.Tensor:
    return torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_categorical_is_the_mean_log_probability(logits):
    target = torch.tensor([0, 1, 2, 2, 1, 0, 1])
    torch.testing.assert_close(categorical(logits, target), -Categorical(logits=logits).log_prob(target).mean())


def test_categorical_of_even_odds_is_log_of_the_classes():
    assert categorical(torch.zeros(5, 4), torch.zeros(5, dtype=torch.long)).item() == pytest.approx(math.log(4))


def test_bernoulli_sums_over_outputs_and_averages_over_samples(logits, numbers):
    target = (numbers > 0).double()
    torch.testing.assert_close(bernoulli(logits, target), -Bernoulli(logits=logits).log_prob(target).sum(1).mean())


def test_bernoulli_takes_shares_for_targets():
    # The cross-entropy of 0.3 to even odds is log 2, whatever the share.
    assert bernoulli(torch.zeros(1, 1), torch.tensor([[0.3]])).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("deviation", [0.1, 1.0, 3.0])
def test_gaussian_is_the_full_density_with_its_constant(logits, numbers, deviation):
    expected = -Normal(logits, deviation).log_prob(numbers).sum(1).mean()
    torch.testing.assert_close(gaussian(logits, numbers, deviation=deviation), expected)


def test_gaussian_of_single_numbers(logits, numbers):
    mean, target = logits[:, 0], numbers[:, 0]
    torch.testing.assert_close(gaussian(mean, target), -Normal(mean, 1.0).log_prob(target).mean())


def test_gradients_do_not_depend_on_the_batch_size(logits, numbers):
    # A sample repeated gives the same mean, so the same gradient of what made it.
    for likelihood in (gaussian, bernoulli):
        one = logits[:1].clone().requires_grad_()
        target = numbers[:1].sigmoid()
        (single,) = torch.autograd.grad(likelihood(one, target), one)
        (repeated,) = torch.autograd.grad(likelihood(one.expand(5, -1), target.expand(5, -1)), one)
        torch.testing.assert_close(single, repeated)


def test_sample_weights_weigh_each_sample(logits, numbers):
    weight = torch.tensor([0.0, 2.0, 1.0, 1.0, 0.5, 1.5, 1.0], dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 2, 1, 0, 1])
    expected = -(weight * Categorical(logits=logits).log_prob(target)).mean()
    torch.testing.assert_close(categorical(logits, target, weight), expected)
    expected = -(weight * Normal(logits, 1.0).log_prob(numbers).sum(1)).mean()
    torch.testing.assert_close(gaussian(logits, numbers, weight), expected)
    yes = (numbers > 0).double()
    expected = -(weight * Bernoulli(logits=logits).log_prob(yes).sum(1)).mean()
    torch.testing.assert_close(bernoulli(logits, yes, weight), expected)


@pytest.mark.parametrize("likelihood", [bernoulli, gaussian])
def test_a_forgotten_dimension_is_refused(likelihood):
    # [7, 1] against [7] would be paired to [7, 7] without a word.
    with pytest.raises(AwnError, match=r"prediction has shape \(7, 1\), the target \(7,\).*target\[:, None\]"):
        likelihood(torch.zeros(7, 1), torch.zeros(7))


def test_weights_of_another_shape_are_refused():
    column = torch.ones(7, 1)  # would be paired with every sample, as a target would
    for call in (
        lambda: categorical(torch.zeros(7, 2), torch.zeros(7, dtype=torch.long), column),
        lambda: bernoulli(torch.zeros(7, 1), torch.zeros(7, 1), column),
        lambda: gaussian(torch.zeros(7, 1), torch.zeros(7, 1), column),
    ):
        with pytest.raises(AwnError, match=r"\(7, 1\)"):
            call()


@pytest.mark.parametrize("deviation", [0.0, -1.0, math.nan, math.inf])
def test_a_deviation_is_a_finite_number_above_zero(deviation):
    with pytest.raises(AwnError, match=rf"deviation must be a finite number above 0, got {deviation}"):
        gaussian(torch.zeros(2, 1), torch.zeros(2, 1), deviation=deviation)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", [categorical, bernoulli, gaussian, partial(gaussian, deviation=0.3)])
def test_the_mean_of_the_samples_losses_is_the_loss(loss, weighted, logits, numbers):
    target = numbers.argmax(1) if loss is categorical else numbers.sigmoid()
    weight = torch.arange(7.0, dtype=torch.float64) if weighted else None
    each = of_samples(loss, logits, target, weight)
    assert each.shape == (7,)
    torch.testing.assert_close(each.mean(), loss(logits, target, weight))


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (categorical, torch.tensor([0, 1, -100, 2, 1, 0, 1])),  # a target to leave out
        (lambda *given: gaussian(*given), torch.zeros(7, 3)),
        (F.mse_loss, torch.zeros(7, 3)),
    ],
)
def test_losses_whose_mean_may_be_another_have_no_samples_losses(loss, target, logits):
    assert of_samples(loss, logits, target, None) is None
