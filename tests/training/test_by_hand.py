"""Training by hand: it is the training by autograd, for every option, in less time."""

from __future__ import annotations

import copy
import itertools
import logging
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import awn
from awn.core.width import Width
from awn.errors import ArgumentError, NonFiniteError, ResizeError
from awn.loss.prior import Anneal
from awn.nn.activations import ACTIVATIONS
from awn.training import Callback, Cosine, Data, FitOptions, History, Progress, fit
from awn.training import run as run_module
from awn.training.by_hand import activations, products
from awn.training.by_hand.activations import activation_by_hand, by_autograd
from awn.training.by_hand.layout import FIRST, GRADIENT, SECOND, WEIGHT, Buffers
from awn.training.by_hand.network import Network
from awn.training.by_hand.optimizers import FlatAdam
from awn.training.by_hand.width_terms import soft_width_slope

Table = Mapping[str, Mapping[str, Any]]


def covering(table: Table, seed: int = 0) -> list[dict[str, str]]:
    """Rows of choices in which every two values of two factors meet; the factors are too many for their product."""
    draw = random.Random(seed)
    pairs = {
        ((a, x), (b, y)) for a, b in itertools.combinations(table, 2) for x, y in itertools.product(table[a], table[b])
    }
    rows = []
    while pairs:
        wanted = min(pairs)
        best, covered = {}, set()
        for _ in range(20):
            row = {name: draw.choice(list(values)) for name, values in table.items()} | dict(wanted)
            found = {pair for pair in itertools.combinations(row.items(), 2) if pair in pairs}
            if len(found) > len(covered):
                best, covered = row, found
        rows.append(best)
        pairs -= covered
    return rows


def chosen(table: Table, row: Mapping[str, str]) -> dict[str, Any]:
    return {name: table[name][value] for name, value in row.items()}


def row_id(row: Mapping[str, str]) -> str:
    return " · ".join(row.values())


LOSSES: dict[str, Any] = {
    "categorical": awn.likelihood.categorical,
    "gaussian": awn.likelihood.gaussian,
    "deviation": partial(awn.likelihood.gaussian, deviation=0.7),
    "bernoulli": awn.likelihood.bernoulli,
}


def samples(number: int, inputs: int, outputs: int, loss: str, *, weighted: bool, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, inputs, generator=generator, dtype=torch.float64)
    y: Tensor = torch.stack([(x[:, 0] * (1 + k)).sin() for k in range(outputs)], 1)
    if loss == "categorical":
        y = (y[:, 0] * 1.5 + 1.5).long().clamp(0, outputs - 1)
    elif loss == "bernoulli":
        y = (y > 0).double()
    weight = 2 * torch.rand(number, generator=generator, dtype=torch.float64) if weighted else None
    return Data(x, y, weight)


FAMILIES: dict[str, Any] = {
    "exponential": lambda units: awn.Exponential.for_units(units),
    "exponential mass": lambda units: awn.Exponential.for_units(units, scale="mass"),
    "exponential unit": lambda units: awn.Exponential.for_units(units, scale="unit"),
    "power law": lambda units: awn.PowerLaw.for_units(units),
    "power law mass": lambda units: awn.PowerLaw.for_units(units, scale="mass"),
    "power law unit": lambda units: awn.PowerLaw.for_units(units, scale="unit", saturation=2.0),
    "sigmoid": lambda units: awn.Sigmoid.for_units(units, steepness=3.0),
    "sigmoid mass": lambda units: awn.Sigmoid.for_units(units, scale="mass", steepness=3.0),
    "sigmoid unit": lambda units: awn.Sigmoid.for_units(units, scale="unit", steepness=3.0),
    "mixed": lambda units: [awn.Exponential.for_units(units), awn.PowerLaw.for_units(units, scale="mass")],
    "mixed scales": lambda units: [awn.Exponential.for_units(units), awn.Exponential.for_units(units, scale="unit")],
}
PRIORS: dict[str, Any] = {
    "one scale": awn.Prior(2.0),
    "by layer": awn.Prior({"hidden.0": 0.5, "hidden.*": 2.0, "output": None}),
    "none": awn.Prior(None),
    "width": awn.Prior(2.0, width_mean=0.3, width_scale=0.02),
    "folded": awn.Prior(None, width_mean=0.3, width_scale=Anneal(0.1, 0.01, 0, 10), folded=True),
    "not begun": awn.Prior(2.0, width_mean=0.3, width_scale=Anneal(0.1, 0.01, 5, 10)),
    "price": awn.Prior({"hidden.*": 2.0, "output": None}, price=awn.loss.Price()),
    "price and width": awn.Prior(0.5, width_mean=0.3, width_scale=0.02, price=awn.loss.Price("first order")),
}
BUDGETS: dict[str, Any] = {
    "no budget": None,
    "units": awn.Budget(max_units=5, strength=3.0),
    "params": awn.Budget(max_params=60),
    "flops": awn.Budget(max_flops=50, positions={"output": 3}),
    "not reached": awn.Budget(max_units=10_000),
}


def model_of(inputs: int, outputs: int, *, family: str, depth: int, units: int = 11, **options: Any) -> awn.AdaptiveMLP:
    importance = FAMILIES[family](units)
    if isinstance(importance, list):
        importance = importance[0] if options.get("shared_width") else (importance * depth)[:depth]
    generator = torch.Generator().manual_seed(1)
    made = {"dtype": torch.float64, "generator": generator, **options}
    return awn.AdaptiveMLP(inputs, outputs, depth, importance=importance, **made)


def both(run: Any) -> tuple[Any, Any]:
    """The results of a training by hand and of the same through autograd."""
    return run(True), run(False)


def assert_close(one: Any, other: Any, tolerance: float, where: str = "") -> None:
    """The same structure, and the same numbers up to a tolerance, relative to the largest of a tensor."""
    if isinstance(one, Tensor):
        assert one.shape == other.shape, where
        assert one.dtype == other.dtype, where
        scale = 1 + other.abs().max().item() if other.numel() else 1.0
        assert not one.numel() or (one - other).abs().max().item() <= tolerance * scale, where
    elif isinstance(one, Mapping):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_close(one[key], other[key], tolerance, f"{where}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_close(*pair, tolerance, f"{where}/{number}")
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=tolerance, abs=tolerance), where
    else:
        assert one == other, where


# Gradients

GRADIENT_TABLE: dict[str, dict[str, Any]] = {
    "activation": {
        **{name: name for name in ACTIVATIONS},
        "leaky 0.3": nn.LeakyReLU(0.3),
        "tanh gelu": nn.GELU("tanh"),
    },
    "family": {name: name for name in FAMILIES},
    "prior": PRIORS,
    "budget": BUDGETS,
    "loss": {name: name for name in LOSSES},
    "depth": {"1": 1, "2": 2, "4": 4},
    "batch": {"few": 6, "many": 40},
    "inputs": {"2": 2, "9": 9, "70": 70},  # transposed, as they are, with gaps between the rows
    "outputs": {"3": 3, "12": 12},
    "shared_width": {"apart": False, "shared": True},
    "bias": {"bias": True, "no bias": False},
    "dropout": {"no dropout": 0.0, "dropout": 0.3},
    "weighted": {"equal": False, "weighted": True},
    "clip": {"no clip": None, "clip": 0.05},
    "block": {"block 1": 1, "block 8": 8},
    "in_optimizer": {"loss's prior": False, "optimizer's prior": True},
    "ordered": {"not ordered": 0.0, "ordered": 1.0},
    "amplitude": {"amplitude 1": 1.0, "amplitude 0.4": 0.4},
}


# A step of gradient descent shows the gradients. It is large enough to keep their digits, too small to change a width.
RATE = 1e-4


@pytest.mark.parametrize("row", covering(GRADIENT_TABLE), ids=row_id)
def test_every_gradient_is_autograds(row: dict[str, str]) -> None:
    case = chosen(GRADIENT_TABLE, row)
    data = samples(case["batch"], case["inputs"], case["outputs"], case["loss"], weighted=case["weighted"])
    names = ("family", "depth", "activation", "shared_width", "bias", "dropout", "block", "ordered", "amplitude")
    made = {name: case[name] for name in names}
    prior = case["prior"]
    if case["depth"] == 1 and isinstance(prior.weight_scale, dict):
        prior = replace(prior, weight_scale={"hidden.0": 0.5, "output": 2.0})

    def gradients(by_hand: bool) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        model = model_of(case["inputs"], case["outputs"], **made)
        inside = {"prior": prior, "n_samples": len(data.y)} if case["in_optimizer"] else {}
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer = torch.optim.SGD(awn.param_groups(model, RATE, **inside))
        options = FitOptions(epochs=1, batch_size=64, clip=case["clip"], resize_every=9, by_hand=by_hand)
        history = fit(
            model,
            data,
            loss=LOSSES[case["loss"]],
            options=options,
            prior=prior,
            budget=case["budget"],
            optimizer=optimizer,
        )
        assert history.path == ("by hand" if by_hand else "autograd")
        return {name: (before[name] - p.detach()) / RATE for name, p in model.named_parameters()}, comparable(history)

    (found, rows), (expected, expected_rows) = both(gradients)
    assert_close(found, expected, 1e-10)
    assert_close(rows, expected_rows, 1e-10)
    assert any(gradient.abs().max() > 1e-4 for gradient in found.values())


@pytest.mark.parametrize("units", [10, 40, 3000])
@pytest.mark.parametrize("family", [name for name in FAMILIES if "mixed" not in name])
def test_the_slope_of_the_soft_width_is_that_of_autograd(family: str, units: int) -> None:
    width = Width(FAMILIES[family](units)).double()
    (expected,) = torch.autograd.grad(width.soft_units(), width.log_nu)
    assert soft_width_slope(width, width.log_nu.item()) == pytest.approx(expected.item(), rel=1e-9)


def comparable(history: History) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in ("seconds", "path")} for row in history]


# Whole trainings

# Each with its learning rate. The importance of a layer's first units is about 10 here, and SGD's steps with it.
OPTIMIZERS: dict[str, Any] = {
    "own": None,
    "Adam": (0.05, partial(torch.optim.Adam, betas=(0.8, 0.95), eps=1e-6)),
    # Before torch 2.7, AdamW does not say how it decays, and is trained by autograd.
    **({"AdamW": (0.05, torch.optim.AdamW)} if issubclass(torch.optim.AdamW, torch.optim.Adam) else {}),
    "SGD": (0.002, torch.optim.SGD),
    "momentum": (0.002, partial(torch.optim.SGD, momentum=0.9, dampening=0.2)),
    "nesterov": (0.002, partial(torch.optim.SGD, momentum=0.9, nesterov=True)),
}
TRAINING_TABLE: dict[str, dict[str, Any]] = {
    "optimizer": OPTIMIZERS,
    "family": {name: name for name in FAMILIES if "sigmoid" not in name} | {"sigmoid": "sigmoid"},
    "new_units": {"zero": "zero", "rescaled": "rescaled", "normal": "normal"},
    "prior": {name: PRIORS[name] for name in ("one scale", "by layer", "folded")},
    "bounds": {"free": {}, "bounded": {"min_units": 10, "max_units": 13}},
    "block": {"block 1": 1, "block 8": 8},
    "depth": {"1": 1, "3": 3},
    "shared_width": {"apart": False, "shared": True},
    "bias": {"bias": True, "no bias": False},
    "loss": {"categorical": "categorical", "gaussian": "gaussian"},
    "dropout": {"no dropout": 0.0, "dropout": 0.2},
    "samples": {"whole batches": 64, "a smaller batch": 61},
    "decay": {"no decay": 0.0, "decay": 0.02},
    "schedule": {"constant": "constant", "cosine": Cosine(4)},
    "width_lr": {"one rate": None, "width_lr": 0.05},
    "resize_every": {"every step": 1, "every third": 3},
    "clip": {"no clip": None, "clip": 0.5},
    "ordered": {"not ordered": 0.0, "half ordered": 0.5, "ordered": 1.0},
}


def training(case: dict[str, Any], by_hand: bool | None, **more: Any) -> tuple[awn.AdaptiveMLP, Any, History]:
    """A model after its training, the optimizer and the history."""
    data = samples(case["samples"], 2, 3, case["loss"], weighted=False)
    names = ("family", "depth", "shared_width", "new_units", "block", "bias", "dropout", "ordered")
    model = model_of(2, 3, activation="tanh", **{name: case[name] for name in names}, **case["bounds"])
    prior = case["prior"]
    if case["depth"] == 1 and isinstance(prior.weight_scale, dict):
        prior = replace(prior, weight_scale={"hidden.0": 0.5, "output": 2.0})
    optimizer = None
    if case["optimizer"] is not None:
        rate, make = case["optimizer"]
        optimizer = make(awn.param_groups(model, rate, width_lr=case["width_lr"], weight_decay=case["decay"]))
    options = FitOptions(
        epochs=4,
        batch_size=16,
        lr=0.05,
        width_lr=case["width_lr"],
        weight_decay=case["decay"],
        schedule=case["schedule"],
        resize_every=case["resize_every"],
        clip=case["clip"],
        patience=None,
        by_hand=by_hand,
    )
    kept: list[Any] = []

    class Keep(Callback):
        def on_fit_start(self, progress: Progress) -> None:
            kept.append(progress.optimizer)

    callbacks = [Keep(), *more.pop("callbacks", [])]
    made = {"options": options, "prior": prior, "optimizer": optimizer, "callbacks": callbacks, **more}
    history = fit(model, data, loss=LOSSES[case["loss"]], **made)
    return model, kept[0], history


@pytest.mark.parametrize("row", covering(TRAINING_TABLE), ids=row_id)
def test_a_whole_training_is_autograds(row: dict[str, str]) -> None:
    (model, optimizer, history), (same_model, same_optimizer, same_history) = both(
        partial(training, chosen(TRAINING_TABLE, row))
    )
    assert_close(comparable(history), comparable(same_history), 1e-9)
    assert_close(dict(model.state_dict()), dict(same_model.state_dict()), 1e-9)
    assert_close(optimizer.state_dict(), same_optimizer.state_dict(), 1e-9)


@pytest.mark.parametrize("family", ["exponential", "power law", "sigmoid"])
def test_a_whole_training_with_a_price_is_autograds(family: str) -> None:
    plain = {name: next(iter(values)) for name, values in TRAINING_TABLE.items()}
    case = chosen(TRAINING_TABLE, plain | {"family": family, "depth": "3"})
    (model, _, history), (same_model, _, same_history) = both(partial(training, case | {"prior": PRIORS["price"]}))
    assert len({tuple(epoch["widths"].values()) for epoch in history}) > 1
    assert_close(comparable(history), comparable(same_history), 1e-9)
    assert_close(dict(model.state_dict()), dict(same_model.state_dict()), 1e-9)


def test_widths_change_in_whole_trainings() -> None:
    """Otherwise the law above would say little."""
    rows = covering(TRAINING_TABLE)[:40]
    widths = []
    for row in rows:
        history = training(chosen(TRAINING_TABLE, row), by_hand=True)[2]
        widths.append({tuple(epoch["widths"].values()) for epoch in history})
    assert sum(len(seen) > 1 for seen in widths) > len(rows) / 2
    assert len(set().union(*widths)) > 24


# Resume

LONG = FitOptions(epochs=8, batch_size=16, lr=0.05, schedule="plateau", patience=4, seed=7, choose=None)


def rings(number: int = 64, seed: int = 0) -> Data:
    x = torch.randn(number, 2, generator=torch.Generator().manual_seed(seed))
    return Data(x, (x.norm(dim=1) > 1.2).long())


def network(**options: Any) -> awn.AdaptiveMLP:
    made = {"importance": awn.Exponential.for_units(12), "dropout": 0.2, **options}
    return awn.AdaptiveMLP(2, 2, 2, generator=torch.Generator().manual_seed(1), **made)


def train(model: nn.Module, options: FitOptions = LONG, data: Data | None = None, **more: Any) -> History:
    made = {"loss": awn.likelihood.categorical, "options": options, **more}
    return fit(model, rings() if data is None else data, rings(seed=1), **made)


class Stop(Callback):
    def on_epoch_end(self, progress: Progress) -> None:
        if progress.epoch == 5:  # the checkpoint of the fourth epoch is written
            raise KeyboardInterrupt


def stopped(folder: Path, options: FitOptions, monkeypatch: pytest.MonkeyPatch, **made: Any) -> None:
    monkeypatch.setattr(run_module, "_SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    with pytest.raises(KeyboardInterrupt):
        train(network(**made), options, folder=folder, callbacks=[Stop()])


@pytest.mark.parametrize(("by_hand", "ordered"), [(True, 0.0), (True, 0.6), (False, 0.6)])
def test_a_stopped_run_goes_on_bit_for_bit(
    by_hand: bool, ordered: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In single precision, in which ν has fewer digits in the checkpoint than a Python number has."""
    options = replace(LONG, by_hand=by_hand)
    whole, resumed = network(ordered=ordered), network(ordered=ordered)
    expected = train(whole, options)
    stopped(tmp_path, options, monkeypatch, ordered=ordered)
    history = train(resumed, options, folder=tmp_path, resume=True)
    assert comparable(history) == comparable(expected)
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in resumed.state_dict().items())
    assert len({tuple(row["widths"].values()) for row in history}) > 2, "no width moved, so the test says little"


@pytest.mark.parametrize("first", [True, False])
def test_a_run_may_go_on_along_the_other_path(first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = train(network(), replace(LONG, by_hand=first))
    stopped(tmp_path, replace(LONG, by_hand=first), monkeypatch)
    history = train(network(), replace(LONG, by_hand=not first), folder=tmp_path, resume=True)
    assert [row["path"] for row in history] == ["by hand" if first else "autograd"] * 4 + [
        "autograd" if first else "by hand"
    ] * (len(history) - 4)
    assert_close(comparable(history), comparable(expected), 1e-3)


def test_both_paths_write_the_same_kind_of_checkpoint(tmp_path: Path) -> None:
    """Names, shapes and types; the numbers differ by rounding."""
    layouts = []
    for by_hand in (True, False):
        folder = tmp_path / str(by_hand)
        folder.mkdir()
        train(network(), replace(LONG, epochs=2, by_hand=by_hand), folder=folder)
        tensors = load_file(folder / "run.safetensors")
        layouts.append({name: (tuple(t.shape), t.dtype) for name, t in tensors.items()})
    assert layouts[0] == layouts[1]


def test_after_an_interruption_the_model_is_where_its_training_was() -> None:
    class Interrupt(Callback):
        def on_epoch_end(self, progress: Progress) -> None:
            before.append({name: value.clone() for name, value in progress.model.state_dict().items()})

    before: list[dict[str, Tensor]] = []
    model, data = network(dropout=0.0), rings()
    data.x[0] = math.nan  # the batch with this sample ends the run, wherever it is in the first epoch
    with pytest.raises(NonFiniteError, match="not finite"):
        train(model, replace(LONG, batch_size=4, by_hand=True), data, callbacks=[Interrupt()])
    assert not before
    untrained = network(dropout=0.0)
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert not torch.equal(model.output.bias, untrained.output.bias)


@pytest.mark.parametrize("row", [0, 1, 2, "step"])
def test_an_interrupted_epoch_gives_everything_back(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and moments, whether the epoch ends while rows of the buffers are filled or at its first step."""
    model = network()
    optimizer = torch.optim.Adam(awn.param_groups(model, 0.01))
    data = rings()
    options = replace(LONG, epochs=1, by_hand=True)
    fit(model, data, loss=awn.likelihood.categorical, options=options, prior=awn.Prior(None), optimizer=optimizer)
    before = copy.deepcopy((dict(model.state_dict()), optimizer.state_dict()["state"]))

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    if row == "step":
        monkeypatch.setattr(Network, "step", interrupt)
    else:
        make, made = Buffers.make, itertools.count()
        monkeypatch.setattr(Buffers, "make", lambda *a: interrupt() if next(made) == row else make(*a))
    with pytest.raises(KeyboardInterrupt):
        fit(model, data, loss=awn.likelihood.categorical, options=options, prior=awn.Prior(None), optimizer=optimizer)
    assert_close((dict(model.state_dict()), optimizer.state_dict()["state"]), before, 0.0)


# Numbers that are lost, or too small


def test_a_lost_number_is_named_by_its_layer_within_the_epoch_and_changes_nothing() -> None:
    model = network(dropout=0.0)
    with torch.no_grad():
        model.hidden[1].bias[0] = math.inf
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(NonFiniteError, match=r"at step 1: .* in layer 'hidden.*not finite: hidden.1.bias"):
        train(model, replace(LONG, by_hand=True))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_width_past_all_memory_is_an_error_and_the_model_stays_whole() -> None:
    model = network()
    with torch.no_grad():
        model.hidden[0].width.log_nu.fill_(-35.0)
    with pytest.raises(ResizeError, match=r"layer 'hidden.0' would grow from 12 to .* ν has probably diverged"):
        train(model, replace(LONG, by_hand=True))
    assert awn.widths(model) == {"hidden.0": 12, "hidden.1": 12}
    model(torch.zeros(3, 2))


def test_numbers_too_small_to_matter_are_zero() -> None:
    """Weights of 1e-40, which an update at a rate of 0 would otherwise leave as they are."""
    model = network(dropout=0.0)
    with torch.no_grad():
        model.hidden[0].weight.fill_(1e-40)
    optimizer = torch.optim.SGD(awn.param_groups(model, 0.0), momentum=0.9)
    train(model, replace(LONG, epochs=1, by_hand=True), optimizer=optimizer)
    assert not model.hidden[0].weight.any()


# Private functions of torch, each beside the public way


@pytest.mark.parametrize(
    "module", [*(make() for make in ACTIVATIONS.values()), nn.LeakyReLU(-0.5), nn.ELU(-0.5), nn.GELU("tanh")], ids=repr
)
def test_every_activation_has_the_slope_that_autograd_finds(module: nn.Module) -> None:
    z = torch.randn(7, 5, dtype=torch.float64) * 4
    d = torch.randn_like(z)
    activation = activation_by_hand(module)
    assert activation is not None
    public = by_autograd(module)
    found = []
    for one in (activation, public):
        before, back = z.clone(), d.clone()
        h = torch.empty_like(z) if one.keeps_input else before
        with torch.inference_mode():
            one.forward(before, h)
            one.backward(back, before, h)
        found.append((h, back))
    assert_close(found[0], found[1], 1e-14)
    assert_close(found[0][0], module(z), 1e-14)


def test_without_the_private_functions_activations_go_the_public_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> Any:
        raise AttributeError

    monkeypatch.setattr(activations, "_private", missing)
    activation = activation_by_hand(nn.ReLU())
    assert activation is not None
    assert activation.keeps_input


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1, "by weight"])
def test_fused_adam_is_adam_in_public_operations(decay: Any, decoupled: bool) -> None:
    options = {"lr": 0.02, "betas": (0.9, 0.99), "eps": 1e-7, "decoupled_weight_decay": decoupled}
    found = []
    for public in (False, True):
        buffers = Buffers([(5, 9), (2, 5)], lead=1, dtype=torch.float64, rows=[WEIGHT, GRADIENT, FIRST, SECOND])
        generator = torch.Generator().manual_seed(0)
        each = buffers.spread([(0.1, 0.0), (0.2, 0.3)]) if decay == "by weight" else decay
        optimizer = FlatAdam(options, count=0)
        optimizer.attach(buffers, each)
        buffers.rows[WEIGHT].normal_(generator=generator)
        if public:
            optimizer.fused = None
        assert public or optimizer.fused is not None
        for _ in range(4):
            buffers.rows[GRADIENT].normal_(generator=generator)
            optimizer.update()
        found.append([buffers.rows[row] for row in (WEIGHT, FIRST, SECOND)])
    assert_close(found[0], found[1], 1e-13)


# When it is by hand


class Subclass(awn.AdaptiveMLP):
    """A model of one's own."""


def hooked() -> awn.AdaptiveMLP:
    model = network()
    model.hidden[0].register_forward_hook(lambda *_: None)
    return model


def frozen() -> awn.AdaptiveMLP:
    model = network()
    model.output.requires_grad_(False)
    return model


class Look(Callback):
    def on_step_end(self, progress: Progress, resized: Any) -> None:
        assert progress.model.output.bias.grad is not None


def amsgrad(model: nn.Module) -> Any:
    return torch.optim.Adam(model.parameters(), amsgrad=True)


def uneven(model: Any) -> Any:
    return torch.optim.SGD([{"params": model.hidden.parameters()}, {"params": model.output.parameters(), "lr": 0.1}])


OBSTACLES: dict[str, tuple[dict[str, Any], str]] = {
    "subclass": ({"model": lambda: Subclass(2, 2)}, "the model is a Subclass"),
    "plain": ({"model": lambda: nn.Linear(2, 2)}, "the model is a Linear"),
    "batch norm": ({"model": lambda: network(batch_norm=True)}, "batch norm"),
    "hooks": ({"model": hooked}, "hooks"),
    "frozen": ({"model": frozen}, "frozen"),
    "activation": ({"model": lambda: network(activation=nn.PReLU())}, "PReLU"),
    "autocast": ({"precision": "bfloat16"}, "autocast"),
    "callback": ({"callbacks": [Look()]}, "Look.on_step_end"),
    "loss": ({"loss": lambda z, y, w: nn.functional.cross_entropy(z, y)}, "the loss is none of"),
    "optimizer": ({"optimizer": lambda model: torch.optim.RMSprop(model.parameters())}, "RMSprop"),
    "amsgrad": ({"optimizer": amsgrad}, "amsgrad=True"),
    "rates": ({"optimizer": uneven}, "differ in more than"),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_cannot_be_by_hand_goes_through_autograd_and_says_why(name: str, caplog: pytest.LogCaptureFixture) -> None:
    more, why = OBSTACLES[name]
    more = dict(more)
    make, make_optimizer = more.pop("model", network), more.pop("optimizer", None)
    options = replace(LONG, epochs=1, precision=more.pop("precision", "auto"))
    for by_hand in (None, True):
        model = make()
        optimizer = None if make_optimizer is None else make_optimizer(model)
        with caplog.at_level(logging.INFO, logger="awn.training"):
            if by_hand is None:
                assert train(model, options, optimizer=optimizer, **more).path == "autograd"
                assert why in caplog.text
            else:
                with pytest.raises(ArgumentError, match=why):
                    train(model, replace(options, by_hand=True), optimizer=optimizer, **more)


def test_by_hand_is_said_in_the_history_and_the_log(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.INFO, logger="awn.training"):
        history = train(network(), replace(LONG, epochs=2), folder=tmp_path)
    assert history.path == "by hand"
    assert [row["path"] for row in History.load(tmp_path / "history.jsonl")] == ["by hand"] * 2
    assert caplog.messages == ["training by hand"]
    history = train(network(), replace(LONG, epochs=2, by_hand=False))
    assert history.path == "autograd"


def test_a_family_without_a_slope_goes_through_autograd() -> None:
    class Plain(awn.Exponential):
        def slope(self, index: Tensor, value: Tensor, mass: Tensor) -> Any:
            return None

    assert train(network(importance=Plain.for_units(12)), replace(LONG, epochs=1)).path == "autograd"


def test_what_callbacks_change_between_epochs_counts() -> None:
    """Rates, weights and widths."""

    class Change(Callback):
        def on_epoch_end(self, progress: Progress) -> None:
            for group in progress.optimizer.param_groups:
                group["lr"] *= 0.5
            awn.advanced.set_units_(progress.model, {"hidden.0": 30 - progress.epoch}, progress.optimizer)
            with torch.no_grad():
                progress.model.output.bias += 1

    results = []
    for by_hand in (True, False):
        model = network(dtype=torch.float64)
        data = rings()
        double = Data(data.x.double(), data.y)
        options = replace(LONG, epochs=4, schedule="constant", resize_every=3, by_hand=by_hand)
        history = fit(model, double, loss=awn.likelihood.categorical, options=options, callbacks=[Change()])
        results.append((comparable(history), dict(model.state_dict())))
    assert_close(results[0], results[1], 1e-9)


# Products


def padded(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns + 5, generator=torch.Generator().manual_seed(rows))[:, :columns]


MATRICES: dict[str, Any] = {
    "rows": lambda rows, columns: padded(rows, columns).contiguous(),
    "columns": lambda rows, columns: padded(columns, rows).contiguous().t(),
    "rows with gaps": padded,
    "columns with gaps": lambda rows, columns: padded(columns, rows).t(),
}


@pytest.mark.parametrize("right", MATRICES)
@pytest.mark.parametrize("left", MATRICES)
@pytest.mark.parametrize("at_once", [1, 100, 2**16])
def test_a_product_by_onednn_is_the_product(
    at_once: int, left: str, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_AT_ONCE", at_once)  # in parts of a row, of six rows, and whole
    product = products.by_onednn()
    if product is None:
        pytest.skip("this torch has no such operation")
    a, b = MATRICES[left](23, 40), MATRICES[right](40, 16)
    out = padded(23, 16)
    with torch.inference_mode():
        product(a, b, out=out)
    assert_close(out, (a.double() @ b.double()).float(), 1e-5)


def test_a_training_by_onednn_is_that_of_torch_mm(monkeypatch: pytest.MonkeyPatch) -> None:
    if products.by_onednn() is None:
        pytest.skip("this torch has no such operation")
    results = []
    for faster in (False, True):
        monkeypatch.setattr(products, "_onednn_is_faster", lambda faster=faster: faster)
        monkeypatch.setattr(products, "_LARGE", 0)
        model = network()
        history = train(model, replace(LONG, epochs=2, by_hand=True))
        results.append((comparable(history), dict(model.state_dict())))
    assert_close(results[0], results[1], 1e-3)


def test_without_onednn_products_go_the_public_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "by_onednn", lambda: None)
    assert products.product_for(10**9, torch.float32) is torch.mm
    assert products.product_for(10**9, torch.float64) is torch.mm
