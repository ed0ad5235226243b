"""`FitOptions(narrow=…)`: ν waits for the first epochs, then layers that are far too wide are cut."""

from __future__ import annotations

import math

import pytest
import torch

import awn
from awn.core.groups import find_groups
from awn.core.resize import set_units_
from awn.smaller.held_out import HeldOut
from awn.smaller.narrow import move_to_present_, narrowed, unit_energies
from awn.smaller.reference import Reference
from awn.training import Callback, Data, FitOptions, fit

LOSS = awn.likelihood.categorical


def rows(number: int, seed: int) -> Data:
    x = torch.randn(number, 2, generator=torch.Generator().manual_seed(seed))
    return Data(x, (x[:, 0] > 0).long())


TRAIN, VALIDATION = rows(400, seed=0), rows(200, seed=1)


def model(units: int, **options) -> awn.AdaptiveMLP:
    generator = torch.Generator().manual_seed(0)
    importance = awn.Exponential.for_units(units)
    return awn.AdaptiveMLP(2, 2, 2, importance=importance, generator=generator, **options)


def options(**changes) -> FitOptions:
    given = {"epochs": 20, "batch_size": 50, "stop_by": "loss", "choose": "epoch", "narrow": 16, "patience": None}
    return FitOptions(**{**given, **changes})


def total(row) -> int:
    return sum(row["widths"].values())


@pytest.mark.parametrize("by_hand", [None, False])
def test_widths_wait_and_are_then_cut(by_hand):
    history = fit(model(200), TRAIN, VALIDATION, loss=LOSS, options=options(by_hand=by_hand))
    assert [total(row) for row in history][:2] == [400, 400]
    assert total(history[2]) < 100
    assert history.kept_epoch > 2  # an epoch of the wide network is not kept


def test_narrow_layers_are_not_cut_but_wait():
    history = fit(model(16), TRAIN, VALIDATION, loss=LOSS, options=options(epochs=30))
    assert [total(row) for row in history][:3] == [32, 32, 32]
    assert len({total(row) for row in history}) > 1  # and learn afterwards


def test_the_initial_width_hardly_matters():
    ends = [total(fit(model(units), TRAIN, VALIDATION, loss=LOSS, options=options())[-1]) for units in (16, 256)]
    assert max(ends) / min(ends) < 1.6
    free = [
        total(fit(model(units), TRAIN, VALIDATION, loss=LOSS, options=options(narrow=None))[-1]) for units in (16, 256)
    ]
    assert max(free) / min(free) > 3


@pytest.mark.parametrize("changes", [{"narrow": None}, {"choose": None}, {"epochs": 3}])
def test_without_it_nothing_waits(changes):
    assert options(**changes).waiting_epochs == 0


def test_a_run_interrupted_before_or_after_the_cut_goes_on_alike(tmp_path):
    class StopAt(Callback):
        def __init__(self, epoch: int) -> None:
            self.epoch = epoch

        def on_epoch_end(self, progress) -> None:
            if progress.epoch == self.epoch:
                raise KeyboardInterrupt

    once = model(120)
    fit(once, TRAIN, VALIDATION, loss=LOSS, options=options(), folder=tmp_path / "once")
    for epoch in (2, 3):
        again, folder = model(120), tmp_path / str(epoch)
        with pytest.raises(KeyboardInterrupt):
            fit(again, TRAIN, VALIDATION, loss=LOSS, options=options(), folder=folder, callbacks=[StopAt(epoch)])
        other = model(120)
        fit(other, TRAIN, VALIDATION, loss=LOSS, options=options(), folder=folder, resume=True)
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in once.state_dict().items())


def test_the_bounds_and_the_quantile_are_as_before():
    network = model(120, quantile=0.95, max_units=150)
    fit(network, TRAIN, VALIDATION, loss=LOSS, options=options())
    widths = [group.width for group in find_groups(network)]
    assert {(width.min_units, width.max_units, width.quantile) for width in widths} == {(1, 150, 0.95)}


def test_energies_are_the_mean_squares_of_contributions():
    network, x = model(6).double(), TRAIN.x.double()
    reference = Reference.of(network, x)
    with torch.no_grad():
        hidden = network.activation(network.hidden[0](torch.cat([one.batch.args[0] for one in reference.fitted])))
        weight = network.hidden[1].weight[:6, :6]  # times the importance
        expected = hidden[:, :6].square().sum(0) * weight.square().sum(0)
    torch.testing.assert_close(unit_energies(reference, network)["hidden.0"], expected)


def test_moving_nu_to_the_present_units_leaves_the_function():
    network = model(64).double()
    set_units_(network, {"hidden.0": 10, "hidden.1": 7})
    before = network(TRAIN.x.double())
    for group in find_groups(network):
        move_to_present_(group)
        assert group.width.settle(group.width.log_nu.item())[0] == group.width.units
        assert math.isclose(group.width.quantile, 0.9)
    torch.testing.assert_close(network(TRAIN.x.double()), before)


def test_a_cut_that_costs_too_much_is_not_made():
    """Every unit carries its own part of the function here, so that half of them cannot do."""
    x = torch.rand(2000, 32) - 0.5
    network = awn.AdaptiveMLP(32, 1, importance=awn.Exponential.for_units(32, scale="unit"), block=1)
    with torch.no_grad():
        network.hidden[0].weight.copy_(torch.eye(32))
        network.hidden[0].bias.zero_()
        network.output._parameters["weight"].copy_(1 / network.hidden[0].width.importance()[None])
        network.output.bias.zero_()
        y = network(x)
        held_out = HeldOut.of((x, y + 0.01 * torch.randn_like(y)), awn.likelihood.gaussian)
    assert narrowed(network, x, held_out, fewest=4) is None


def test_a_narrowed_model_goes_on_with_its_optimizer():
    network = model(100)
    optimizer = torch.optim.Adam(awn.param_groups(network, 0.01))
    fit(network, TRAIN, VALIDATION, loss=LOSS, options=options(), optimizer=optimizer)
    LOSS(network(TRAIN.x), TRAIN.y, None).backward()
    optimizer.step()
    awn.resize_(network, optimizer)
