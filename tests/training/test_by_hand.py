"""Training by hand: it is the training by autograd, for every option, in less time."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import awn
from awn.loss.prior import Anneal
from awn.nn.activations import ACTIVATIONS
from awn.training import Callback, Cosine, Data, FitOptions, History, Progress, fit

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
    "exponential unit": lambda units: awn.Exponential.for_units(units, scale="unit"),
    "power law": lambda units: awn.PowerLaw.for_units(units),
    "power law unit": lambda units: awn.PowerLaw.for_units(units, scale="unit", saturation=2.0),
    "sigmoid": lambda units: awn.Sigmoid.for_units(units, steepness=3.0),
    "sigmoid unit": lambda units: awn.Sigmoid.for_units(units, scale="unit", steepness=3.0),
    "mixed": lambda units: [awn.Exponential.for_units(units), awn.PowerLaw.for_units(units)],
}
PRIORS: dict[str, Any] = {
    "one scale": awn.Prior(2.0),
    "by layer": awn.Prior({"hidden.0": 0.5, "hidden.*": 2.0, "output": None}),
    "none": awn.Prior(None),
    "width": awn.Prior(2.0, width_mean=0.3, width_scale=0.02),
    "folded": awn.Prior(None, width_mean=0.3, width_scale=Anneal(0.1, 0.01, 0, 10), folded=True),
    "not begun": awn.Prior(2.0, width_mean=0.3, width_scale=Anneal(0.1, 0.01, 5, 10)),
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
    "inputs": {"2": 2, "9": 9},
    "outputs": {"3": 3, "12": 12},
    "shared_width": {"apart": False, "shared": True},
    "bias": {"bias": True, "no bias": False},
    "dropout": {"no dropout": 0.0, "dropout": 0.3},
    "weighted": {"equal": False, "weighted": True},
    "clip": {"no clip": None, "clip": 0.05},
    "block": {"block 1": 1, "block 8": 8},
    "in_optimizer": {"loss's prior": False, "optimizer's prior": True},
}


@pytest.mark.parametrize("row", covering(GRADIENT_TABLE), ids=row_id)
def test_every_gradient_is_autograds(row: dict[str, str]) -> None:
    case = chosen(GRADIENT_TABLE, row)
    data = samples(case["batch"], case["inputs"], case["outputs"], case["loss"], weighted=case["weighted"])
    names = ("family", "depth", "activation", "shared_width", "bias", "dropout", "block")
    made = {name: case[name] for name in names}
    prior = case["prior"]
    if case["depth"] == 1 and isinstance(prior.weight_scale, dict):
        prior = awn.Prior({"hidden.0": 0.5, "output": 2.0})

    def gradients(by_hand: bool) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        model = model_of(case["inputs"], case["outputs"], **made)
        inside = {"prior": prior, "n_samples": len(data.y)} if case["in_optimizer"] else {}
        optimizer = torch.optim.SGD(awn.param_groups(model, 0.0, **inside))
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
        return {name: p.grad for name, p in model.named_parameters()}, comparable(history)

    (found, rows), (expected, expected_rows) = both(gradients)
    assert_close(found, expected, 1e-10)
    assert_close(rows, expected_rows, 1e-10)
    assert any(gradient.abs().max() > 1e-4 for gradient in found.values())


def comparable(history: History) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in ("seconds", "path")} for row in history]


# Whole trainings

OPTIMIZERS: dict[str, Any] = {
    "own": None,
    "Adam": lambda groups: torch.optim.Adam(groups, betas=(0.8, 0.95), eps=1e-6),
    "AdamW": lambda groups: torch.optim.AdamW(groups),
    "SGD": lambda groups: torch.optim.SGD(groups),
    "momentum": lambda groups: torch.optim.SGD(groups, momentum=0.9, dampening=0.2),
    "nesterov": lambda groups: torch.optim.SGD(groups, momentum=0.9, nesterov=True),
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
}


def training(case: dict[str, Any], by_hand: bool | None, **more: Any) -> tuple[awn.AdaptiveMLP, Any, History]:
    """A model after its training, the optimizer and the history."""
    data = samples(case["samples"], 2, 3, case["loss"], weighted=False)
    names = ("family", "depth", "shared_width", "new_units", "block", "bias", "dropout")
    model = model_of(2, 3, activation="tanh", **{name: case[name] for name in names}, **case["bounds"])
    prior = case["prior"]
    if case["depth"] == 1 and isinstance(prior.weight_scale, dict):
        prior = awn.Prior({"hidden.0": 0.5, "output": 2.0})
    optimizer = None
    if case["optimizer"] is not None:
        decays = {"weight_decay": case["decay"]}
        optimizer = case["optimizer"](awn.param_groups(model, 0.05, width_lr=case["width_lr"], **decays))
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


def test_widths_change_in_whole_trainings() -> None:
    """Otherwise the law above would say little."""
    widths = set()
    for row in covering(TRAINING_TABLE)[:12]:
        history = training(chosen(TRAINING_TABLE, row), by_hand=True)[2]
        widths |= {tuple(epoch["widths"].values()) for epoch in history}
    assert len(widths) > 12


def test_training_needs_no_numpy() -> None:
    """Torch does without it, and so does the path through autograd."""
    code = """
import sys
sys.modules["numpy"] = None
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "numpy" else real(name, *more)
import torch, awn
from awn.training import Data, FitOptions, fit
x = torch.linspace(-1, 1, 40).view(20, 2)
data = Data(x, (x[:, 0] > 0).long())
history = fit(awn.AdaptiveMLP(2, 2), data, loss=awn.likelihood.categorical, options=FitOptions(epochs=1))
print(history.path)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "autograd", done.stderr
