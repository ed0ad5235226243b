"""`awn.training.Shrink`: how small a network gets, what is left at the end, and exact resume."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import awn
from awn.errors import ArgumentError, CheckpointError
from awn.training import Callback, Data, FitOptions, History, Progress, Shrink, fit
from awn.training import run as run_module
from awn.training.evaluate import accuracy

OPTIONS = FitOptions(epochs=60, batch_size=32, lr=0.02, patience=None, resize_every=1)


def rings(samples: int = 200, seed: int = 0) -> Data:
    x = torch.randn(samples, 2, generator=torch.Generator().manual_seed(seed))
    return Data(x, (x.norm(dim=1) > 1.2).long())


def network(units: int = 40, layers: int = 1, **options: Any) -> awn.AdaptiveMLP:
    family, drawing = awn.Exponential.for_units(units, scale="unit"), torch.Generator().manual_seed(1)
    return awn.AdaptiveMLP(2, 2, hidden_layers=layers, importance=family, generator=drawing, **options)


def total(model: nn.Module) -> int:
    return sum(awn.widths(model).values())


def train(model: nn.Module, shrink: Callback, options: FitOptions = OPTIONS, **more: Any) -> History:
    return fit(
        model, rings(), rings(seed=1), loss=awn.likelihood.categorical, options=options,
        **{"callbacks": [shrink], **more},
    )  # fmt: skip


def enough(units: int) -> Callable[[nn.Module, Data], float]:
    """A score that is 1 for networks of at least so many units, and otherwise 0."""
    return lambda model, data: float(total(model) >= units)


def same_state(first: nn.Module, second: nn.Module) -> bool:
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


# How small


@pytest.mark.parametrize("units", [1, 2, 13, 39])
@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_one_layer_ends_at_the_fewest_units_that_are_enough(units: int, fraction: float) -> None:
    model, shrink = network(), Shrink(0.0, start=1, patience=1, fraction=fraction)
    train(model, shrink, replace(OPTIONS, width_lr=1e-9), score=enough(units))
    assert shrink.done
    assert total(model) == units


@pytest.mark.parametrize("units", [3, 20, 55])
def test_several_layers_end_within_a_unit_each_of_the_fewest(units: int) -> None:
    model, shrink = network(30, layers=3), Shrink(0.0, start=1, patience=1)
    train(model, shrink, replace(OPTIONS, width_lr=1e-9), score=enough(units))
    assert shrink.done
    assert units <= total(model) < units + 3


@pytest.mark.parametrize("max_drop", [0.0, 0.03, 0.3])
@pytest.mark.parametrize("by_hand", [True, False])
def test_the_result_is_within_max_drop_of_the_best_uncut_network(max_drop: float, by_hand: bool) -> None:
    """For the rows that judge it; and it is the network that was judged."""
    model, shrink = network(layers=2), Shrink(max_drop, patience=2, start=6)
    history = train(model, shrink, replace(OPTIONS, epochs=30, by_hand=by_hand), score=accuracy)
    uncut = max(history.rows[:6], key=lambda row: row["score"])
    assert shrink.best_score == uncut["score"]
    assert accuracy(model, rings(seed=1)) == shrink.kept_score >= uncut["score"] - max_drop - 1e-9
    assert total(model) <= sum(uncut["widths"].values())
    assert history.choice is None  # although `options.choose` asks for one
    assert not model.training


def test_a_larger_drop_gives_a_smaller_network() -> None:
    sizes = []
    for max_drop in (0.0, 0.4):
        model = network(layers=2)
        train(model, Shrink(max_drop, patience=2), replace(OPTIONS, epochs=40), score=accuracy)
        sizes.append(total(model))
    assert sizes[1] < sizes[0]


def test_fewest_units_are_respected_and_bounds_come_back() -> None:
    model = network(min_units=7, max_units=90)
    train(model, Shrink(0.0, start=1), score=enough(1))
    (width,) = [group.width for group in awn.advanced.find_groups(model)]
    assert (width.units, width.min_units, width.max_units) == (7, 7, 90)
    before = awn.widths(model)
    awn.resize_(model)
    assert awn.widths(model) == before


# Restoring


def test_a_cut_that_fails_is_undone_to_the_bit_and_the_next_is_half_as_large() -> None:
    model, x = network(), rings().x
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.01))
    shrink = Shrink(0.1, start=1, patience=2, fraction=0.5, repair=x)

    def epoch() -> None:
        for _ in range(3):
            loss = awn.objective(awn.likelihood.categorical(model(x), rings().y), model, len(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            awn.resize_(model, optimizer)

    epoch()
    uncut, state = copy.deepcopy(model), copy.deepcopy(optimizer.state_dict())
    assert not shrink.step_(model, optimizer, 0.9)
    half = total(model)
    assert half == total(uncut) - round(0.5 * total(uncut))
    epoch()
    shrink.step_(model, optimizer, 0.7)
    assert total(model) <= half  # one epoch more
    epoch()
    shrink.step_(model, optimizer, 0.7)
    assert total(model) == total(uncut) - round(0.25 * total(uncut))
    epoch()
    shrink.restore_(model, optimizer)
    assert same_state(model, uncut)
    for one, other in zip(optimizer.state_dict()["state"].values(), state["state"].values(), strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    epoch()  # the optimizer stays in use


@pytest.mark.parametrize("score", [-1.0, float("nan")])
def test_when_nothing_smaller_is_good_enough_the_best_uncut_network_comes_back(score: float) -> None:
    """Also if the run ends by its epochs."""

    class Note(Callback):
        def on_epoch_end(self, progress: Progress) -> None:
            if progress.epoch == 3:
                self.best = copy.deepcopy(progress.model)

    for epochs in (8, 60):
        left = [0.1, 0.2, 0.9, 0.5, 0.4, *[score] * 100]
        model, note = network(), Note()
        train(
            model, Shrink(0.1, patience=2), replace(OPTIONS, epochs=epochs),
            score=lambda model, data, left=left: left.pop(0), callbacks=[note, Shrink(0.1, start=5, patience=2)],
        )  # fmt: skip
        assert same_state(model, note.best)


def test_early_stopping_begins_the_cuts_instead_of_ending_the_run() -> None:
    model = network()
    history = train(model, Shrink(0.0, patience=50), replace(OPTIONS, epochs=500, patience=3), score=enough(10))
    assert total(model) == 10
    assert 3 < len(history) < 500


def test_cuts_begin_after_half_of_the_epochs_at_the_latest() -> None:
    scores = [number / 10 for number in range(100)]  # better after every epoch
    history = train(network(), Shrink(1.0), replace(OPTIONS, epochs=10), score=lambda model, data: scores.pop(0))
    sizes = history.widths("hidden.0")
    assert sizes[5] < 0.8 * sizes[4]


# Resume


class Stop(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch_end(self, progress: Progress) -> None:
        if progress.epoch == self.epoch:
            raise KeyboardInterrupt


def comparable(history: History) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


@pytest.mark.parametrize("epoch", [2, 4, 6, 9])
def test_a_stopped_run_goes_on_as_if_it_had_not_been(
    epoch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(OPTIONS, epochs=16)

    def make() -> Shrink:
        return Shrink(0.02, start=3, patience=2, fraction=0.4)

    whole, stopped, resumed = (network(layers=2, dropout=0.1) for _ in range(3))
    expected = train(whole, make(), options, score=accuracy)
    assert len({sum(row["widths"].values()) for row in expected}) > 4, "few cuts, so the test says little"
    assert len(expected) > 9
    monkeypatch.setattr(run_module, "_SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    with pytest.raises(KeyboardInterrupt):
        train(stopped, make(), options, score=accuracy, folder=tmp_path, callbacks=[make(), Stop(epoch)])
    history = train(resumed, make(), options, score=accuracy, folder=tmp_path, resume=True)
    assert comparable(history) == comparable(expected)
    assert same_state(whole, resumed)


def test_a_finished_run_that_is_resumed_gives_its_smallest_network_again(tmp_path: Path) -> None:
    first, second = network(), network()
    history = train(first, Shrink(start=2), score=enough(9), folder=tmp_path)
    assert train(second, Shrink(start=2), score=enough(9), folder=tmp_path, resume=True) == history
    assert same_state(first, second)


def test_a_run_is_not_resumed_without_a_callback_whose_state_it_has(tmp_path: Path) -> None:
    train(network(), Shrink(start=2), replace(OPTIONS, epochs=3), folder=tmp_path)
    with pytest.raises(CheckpointError, match="with a Shrink callback"):
        train(network(), Callback(), replace(OPTIONS, epochs=4), folder=tmp_path, resume=True)


def test_callbacks_get_their_states_back_in_order(tmp_path: Path) -> None:
    class Count(Callback):
        def __init__(self, step: int) -> None:
            self.step, self.number = step, 0

        def on_epoch_end(self, progress: Progress) -> None:
            self.number += self.step

        def state_dict(self) -> dict[str, Any]:
            return {"number": self.number}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.number = state_dict["number"]

    for epochs in (2, 5):
        counts = Count(1), Count(10)
        train(network(), counts[0], replace(OPTIONS, epochs=epochs), callbacks=[counts[0], Callback(), counts[1]],
              folder=tmp_path, resume=epochs == 5)  # fmt: skip
        assert [count.number for count in counts] == [epochs, 10 * epochs]


def test_a_second_run_starts_afresh() -> None:
    shrink, models = Shrink(start=2), [network(), network()]
    for model in models:
        train(model, shrink, score=enough(9))
    assert same_state(*models)
    assert total(models[0]) == 9


# Arguments


@pytest.mark.parametrize(
    "options",
    [
        {"max_drop": -0.1},
        {"max_drop": float("nan")},
        {"fraction": 0.0},
        {"fraction": 1.0},
        {"patience": 0},
        {"start": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(options))):
        Shrink(**options)


def test_what_it_needs_is_named() -> None:
    with pytest.raises(ArgumentError, match="validation="):
        fit(network(), rings(), loss=awn.likelihood.categorical, options=OPTIONS, callbacks=[Shrink()])
    with pytest.raises(ArgumentError, match="repair=x"):
        Shrink().step_(network(), None, 0.5)
    with pytest.raises(ArgumentError, match="adaptive"):
        train(nn.Linear(2, 2), Shrink())
