"""What `fit` does after training: cut the model to the smallest size that is as good, and fine-tune it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import awn
from awn.core.state import load_state_dict_
from awn.training import Data, FitOptions, fit
from awn.training.choosing import cut_and_tuned, fresh_like
from awn.training.evaluate import accuracy, mean_loss
from awn.training.run import Run

LOSS = awn.likelihood.categorical


def rows(number: int, seed: int) -> Data:
    x = torch.randn(number, 2, generator=torch.Generator().manual_seed(seed))
    return Data(x, (x[:, 0] > 0).long())


TRAIN, VALIDATION = rows(400, seed=0), rows(200, seed=1)


def model(units: int = 40) -> awn.AdaptiveMLP:
    generator = torch.Generator().manual_seed(0)
    return awn.AdaptiveMLP(2, 2, 2, importance=awn.Exponential.for_units(units), generator=generator)


def options(**changes) -> FitOptions:
    return FitOptions(**{"epochs": 8, "batch_size": 50, "stop_by": "loss", **changes})


def test_an_easy_task_ends_with_fewer_than_half_of_the_units():
    network = model()
    history = fit(network, TRAIN, VALIDATION, loss=LOSS, score=accuracy, options=options())
    assert history.choice is not None
    assert awn.widths(network) == history.choice.widths
    assert sum(history.choice.widths.values()) < 0.5 * sum(history[-1]["widths"].values())
    assert accuracy(network, VALIDATION) > 0.95
    # Fine-tuned weights are kept only if they are better.
    assert mean_loss(network, VALIDATION, LOSS) <= history.choice.point.loss + 1e-6


def test_without_a_choice_the_learned_width_stays():
    network = model()
    history = fit(network, TRAIN, VALIDATION, loss=LOSS, options=options(choose=None))
    assert history.choice is None
    assert awn.widths(network) == history[history.kept_epoch - 1]["widths"]


def test_without_validation_nothing_is_chosen():
    assert fit(model(), TRAIN, loss=LOSS, options=options(epochs=1)).choice is None


def test_a_plain_model_is_not_cut():
    plain = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    assert fit(plain, TRAIN, VALIDATION, loss=LOSS, options=options(epochs=1)).choice is None


def test_the_bounds_of_the_width_are_as_before():
    network = awn.AdaptiveMLP(2, 2, importance=awn.Exponential.for_units(20), min_units=1, max_units=30)
    fit(network, TRAIN, VALIDATION, loss=LOSS, options=options())
    assert (network.hidden[0].width.min_units, network.hidden[0].width.max_units) == (1, 30)


def test_an_optimizer_of_the_user_stays_in_use():
    network = model()
    optimizer = torch.optim.Adam(awn.param_groups(network, 0.01))
    fit(network, TRAIN, VALIDATION, loss=LOSS, options=options(), optimizer=optimizer)
    LOSS(network(TRAIN.x), TRAIN.y, None).backward()
    optimizer.step()
    awn.resize_(network, optimizer)


def test_a_choice_is_the_same_after_a_resume(tmp_path):
    once, again = model(), model()
    fit(once, TRAIN, VALIDATION, loss=LOSS, options=options(), folder=tmp_path / "once")
    fit(again, TRAIN, VALIDATION, loss=LOSS, options=options(), folder=tmp_path / "once", resume=True)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in once.state_dict().items())


def kept_epoch(epochs: list[tuple[float, int]], **changes) -> int:
    """The epoch that is kept, given the validation loss and the units of each; the standard error is 4."""
    network = awn.AdaptiveMLP(2, 2)
    run = Run(network, TRAIN, options(**changes), None, None, prior=awn.Prior(), budget=None)
    for loss, units in epochs:
        network.hidden[0].width.units = units  # what the row of the epoch says
        run.end_epoch({"score": -loss, "validation_loss": loss, "total": loss}, error=lambda: 4.0)
    return run.progress.history.kept_epoch


@pytest.mark.parametrize(
    ("epochs", "kept"),
    [
        ([(3.0, 100), (2.0, 100), (2.5, 100)], 2),  # as small: the lowest loss
        ([(2.0, 100), (2.9, 50)], 2),  # within a quarter of the error of 4, and clearly smaller
        ([(2.0, 100), (3.1, 50)], 1),  # not within it
        ([(2.0, 100), (2.9, 90)], 1),  # not clearly smaller
        ([(2.0, 100), (1.9, 110)], 2),  # better, and not clearly larger
        ([(2.9, 50), (2.0, 100)], 1),  # better within the slack, but clearly larger
        ([(3.1, 50), (2.0, 100)], 2),
        ([(2.5, 100), (3.4, 50), (1.0, 100), (1.9, 60)], 4),  # the slack is that of the best so far
    ],
)
def test_of_equally_good_epochs_the_smallest_network_is_kept(epochs, kept):
    assert kept_epoch(epochs) == kept


def test_without_a_choice_the_best_epoch_is_kept():
    epochs = [(2.0, 100), (2.9, 50)]
    assert kept_epoch(epochs, choose=None) == 1
    assert kept_epoch(epochs, stop_by="score") == 1


def test_the_option_ordered_trains_as_a_model_made_with_it_does():
    made, told = model(), model()
    for group in awn.core.groups.find_groups(made):
        group.width.ordered = 0.5
    fit(made, TRAIN, VALIDATION, loss=LOSS, options=options(epochs=3))
    fit(told, TRAIN, VALIDATION, loss=LOSS, options=options(epochs=3, ordered=0.5))
    assert awn.widths(made) == awn.widths(told)
    assert all(map(torch.equal, made.parameters(), told.parameters()))
    with pytest.raises(awn.AwnError, match="ordered"):
        options(ordered=1.5)


def test_a_fresh_network_is_kept_if_its_validation_loss_is_lower():
    untrained, given = model(), tuple(tensor for tensor in VALIDATION if tensor is not None)
    choice = awn.choose(untrained, given, LOSS, repair=TRAIN.x)

    def train_the_new_one_(network, options):
        if options.epochs == 8:  # a fine-tuning has fewer
            fit(network, TRAIN, VALIDATION, loss=LOSS, options=options)

    states = [
        cut_and_tuned(choice, VALIDATION, loss=LOSS, options=options(fresh=fresh), train_=train_the_new_one_)
        for fresh in (False, True)
    ]
    losses = []
    for state in states:
        load_state_dict_(untrained, state)
        losses.append(mean_loss(untrained.eval(), VALIDATION, LOSS))
        assert awn.widths(untrained) == choice.widths
    assert losses[1] < 0.5 * losses[0]


def test_a_fresh_network_is_left_if_it_is_worse():
    once, again = model(), model()
    fit(once, TRAIN, VALIDATION, loss=LOSS, options=options(epochs=20))
    fit(again, TRAIN, VALIDATION, loss=LOSS, options=options(epochs=20, fresh=True))
    assert mean_loss(again, VALIDATION, LOSS) <= mean_loss(once, VALIDATION, LOSS)


def test_fresh_needs_a_network_that_can_be_drawn_anew():
    plain = nn.Sequential(nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 2))
    awn.adapt_(plain)
    with pytest.raises(awn.AwnError, match="fresh=True needs an AdaptiveMLP"):
        fit(plain, TRAIN, VALIDATION, loss=LOSS, options=options(fresh=True))


def test_new_weights_are_drawn_as_for_a_network_of_that_width():
    small = awn.truncate(awn.AdaptiveMLP(2, 2, 2, quantile=0.9, batch_norm=True), units=16)
    fresh = fresh_like(small, quantile=0.9, seed=3)
    generator = torch.Generator().manual_seed(3)
    importance = awn.Exponential.for_units(16)
    made = awn.AdaptiveMLP(2, 2, 2, importance=importance, batch_norm=True, generator=generator)
    x = torch.randn(5, 2)
    assert awn.widths(fresh) == awn.widths(made) == {"hidden.0": 16, "hidden.1": 16}
    torch.testing.assert_close(fresh.hidden[1].weight, made.hidden[1].weight, atol=1e-6, rtol=1e-5)
    assert fresh.eval()(x).shape == (5, 2)
