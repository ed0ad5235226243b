"""Data for reports, from two small real runs on the paper's spiral."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import awn
from awn.datasets import spiral, split
from awn.loss import terms
from awn.report import Confusion, LayerCurve, ReportData, Residuals, TruncationPoint
from awn.report.table_data import ColumnFacts, Dependence, HardRows, Leader, SizeCurve

EPOCHS = 10
KEEPS = [round(1 - 0.05 * i, 2) for i in range(20)]  # 1.0, 0.95, … 0.05
Score = Callable[[nn.Module, Tensor, Tensor], float]


@functools.cache
def classified() -> ReportData:
    """Which arm of the spiral a point is on."""
    parts = split(spiral(0, per_class=500))
    (x, y), (x_test, y_test) = parts.train, parts.test
    model, history = _train(x, y, 2, awn.likelihood.categorical, _accuracy, parts.validation)
    guessed = _outputs(model, x_test).argmax(1)
    counts = [[int(((y_test == a) & (guessed == p)).sum()) for p in (0, 1)] for a in (0, 1)]
    data = _report(model, history, x_test, y_test, "classification", "accuracy", _accuracy)
    return dataclasses.replace(data, title="Arms of a spiral", confusion=Confusion(["inner", "outer"], counts))


@functools.cache
def regressed() -> ReportData:
    """How far from the centre a point is."""
    parts = split(spiral(0, per_class=500))
    x, x_test = parts.train.x, parts.test.x
    y, y_test = x.norm(dim=1, keepdim=True), x_test.norm(dim=1, keepdim=True)
    held = (parts.validation.x, parts.validation.x.norm(dim=1, keepdim=True))
    model, history = _train(x, y, 1, nn.functional.mse_loss, _r2, held)
    residuals = Residuals(y_test[:, 0].tolist(), _outputs(model, x_test)[:, 0].tolist())
    data = _report(model, history, x_test, y_test, "regression", "R²", _r2)
    return dataclasses.replace(data, title="Distance from the centre", residuals=residuals)


def _train(
    x: Tensor, y: Tensor, outputs: int, likelihood: Any, score: Score, held: tuple[Tensor, Tensor]
) -> tuple[Any, list[dict[str, Any]]]:
    torch.manual_seed(0)
    family = awn.Exponential.for_units(60, scale="unit")
    model = awn.AdaptiveMLP(2, outputs, hidden_layers=3, activation="relu6", importance=family)
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.01, width_lr=0.05))
    history: list[dict[str, Any]] = []
    prior = awn.Prior(weight_scale=1.0)
    for epoch in range(1, EPOCHS + 1):
        started = time.perf_counter()
        for rows in torch.randperm(len(x)).split(32):
            nll = likelihood(model(x[rows]), y[rows])
            optimizer.zero_grad()
            awn.objective(nll, model, len(x), prior=prior).backward()
            optimizer.step()
            awn.resize_(model, optimizer)
        found = {name: term.item() for name, term in terms(nll, model, len(x), prior=prior).items()}
        now = score(model, *held)
        best = now > max((row["score"] for row in history), default=float("-inf"))
        history.append(
            {
                "epoch": epoch,
                **found,
                "total": sum(found.values()),
                "score": now,
                "train_score": score(model, x, y),
                "lr": 0.01,
                "seconds": time.perf_counter() - started,
                "widths": awn.widths(model),
                "nu": {group.name: group.width.value for group in awn.advanced.find_groups(model)},
                "best": best,
            }
        )
    return model, history


def _report(
    model: Any, history: list[dict[str, Any]], x: Tensor, y: Tensor, task: Any, score_name: str, score: Score
) -> ReportData:
    parameters = awn.advanced.count_parameters(model)
    seconds = sum(row["seconds"] for row in history)
    return ReportData(
        title="run",
        task=task,
        score_name=score_name,
        headline=[
            (f"{score_name} on test rows", score(model, x, y)),
            ("parameters", parameters),
            ("units", sum(awn.widths(model).values())),
            ("time", f"{seconds:.1f} s"),
        ],
        history=history,
        layers=[_curve(group) for group in awn.advanced.find_groups(model)],
        truncation=[_truncated(model, keep, x, y, score) for keep in KEEPS],
        activations=_activations(model, x),
        settings={
            "hidden_layers": 3,
            "activation": "relu6",
            "lr": 0.01,
            "batch_size": 32,
            "epochs": EPOCHS,
        },
        environment={"awn": awn.__version__, "torch": torch.__version__, "device": "cpu"},
        notes=["All rows were made by a formula; none was dropped."],
    )


def _curve(group: awn.advanced.WidthGroup) -> LayerCurve:
    width = group.width
    places = torch.arange(width.units * 3 // 2, dtype=torch.float32)
    importance = width.family.importance(places, torch.tensor(width.value)).tolist()
    return LayerCurve(group.name, importance, width.units, width.quantile, width.value)


def _truncated(model: Any, keep: float, x: Tensor, y: Tensor, score: Score) -> TruncationPoint:
    small = awn.truncate(model, keep=keep)
    started = time.perf_counter()
    found = score(small, x, y)
    latency = 1000 * (time.perf_counter() - started)
    return TruncationPoint(keep, awn.widths(small), awn.advanced.count_parameters(small), found, latency)


def _activations(model: Any, x: Tensor) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for group in awn.advanced.find_groups(model):
        units = group.width.units

        def note(_: Any, args: tuple[Tensor, ...], name: str = group.name, units: int = units) -> None:
            out = args[0][:, :units]
            found[name] = {
                "low": out.min(0).values.tolist(),
                "mean": out.mean(0).tolist(),
                "high": out.max(0).values.tolist(),
            }

        hook = group.consumers[0].module.register_forward_pre_hook(note)
        _outputs(model, x)
        hook.remove()
    return found


def _outputs(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x)


def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return (_outputs(model, x).argmax(1) == y).float().mean().item()


def _r2(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return (1 - (y - _outputs(model, x)).square().sum() / (y - y.mean()).square().sum()).item()


def tabled(name: str = "age") -> ReportData:
    """The classified run as if it were that of a table, with a column and a model of this name."""
    points = [
        Leader(f"{units} units", score, score - 0.03, score + 0.03, units=units, parameters=9 * units)
        for units, score in ((120, 0.97), (60, 0.97), (22, 0.965), (9, 0.8), (2, 0.6))
    ]
    kept = Leader("adaptive", 0.966, 0.936, 0.996, units=22, parameters=198)
    others = [
        Leader("fixed, same widths", 0.96, 0.93, 0.99, units=22, parameters=198),
        Leader("gradient boosting", 0.95, 0.92, 0.98),
    ]
    leaders = [
        dataclasses.replace(kept, loss=0.1, loss_low=0.05, loss_high=0.2, seconds=3.2),
        Leader(name, 0.95, 0.91, 0.98, loss=0.12, loss_low=0.1, loss_high=0.2, seconds=0.001),
    ]
    columns = [
        ColumnFacts(name, "number", 0.25, 80, list(range(16)), ["1", "99"], importance=0.3, spread=0.02),
        ColumnFacts("job", "category", 0.0, 3, [50, 30, 5], ["cook", "smith", name], importance=0.1, spread=0.01),
        ColumnFacts("comment", "text", 0.9, 700),
    ]
    return dataclasses.replace(
        classified(),
        answer="22 units are enough: accuracy 0.966 ± 0.030 on the test rows",
        size_curve=SizeCurve(points, 2, "the 300 validation rows", kept, others),
        leaders=leaders,
        leader_rows="the 200 test rows",
        columns=columns,
        importance_name="increase of the log-loss on 300 held-out rows",
        dependences=[
            Dependence(name, [1.0, 20.0, 99.0], {"inner": [0.2, 0.4, 0.9]}),
            Dependence("job", ["cook", name], {"inner": [0.2, 0.4], "outer": [0.8, 0.6]}),
        ],
        calibration={
            "confidence": [0.6, 0.8, 0.95],
            "accuracy": [0.55, 0.85, 0.97],
            "rows": [66, 67, 67],
            "error": 0.03,
            "temperature": 1.2,
        },
        hard_rows=HardRows(
            ["row", "actual", "predicted", "probability", name], [["line 7", "inner", "outer", 0.01, 3]]
        ),
        truncation_rows="the 300 validation rows",
        kept_because="Epoch 9 of 10 is kept: its validation loss is the lowest.",
        max_units=70,
        settings={**classified().settings, "seed": 0},
    )


def vast(layers: int, epochs: int, classes: int) -> ReportData:
    """The classified run stretched: its epochs, its layers and its classes, many times over."""
    data = classified()
    names = [f"encoder.layer.{i}.linear1" for i in range(layers)]
    widths = {name: 60 + i for i, name in enumerate(names)}
    bands = list(data.activations.values())
    labels = [f"class number {i}" for i in range(classes)]
    return dataclasses.replace(
        data,
        title="A vast run",
        history=[
            {**data.history[i * EPOCHS // epochs], "epoch": i + 1, "widths": widths, "best": i == epochs * 3 // 4 + 3}
            for i in range(epochs)
        ],
        layers=[dataclasses.replace(data.layers[i % 3], name=name) for i, name in enumerate(names)],
        activations={name: bands[i % 3] for i, name in enumerate(names)},
        truncation=[
            dataclasses.replace(point, units={name: max(1, round(widths[name] * point.keep)) for name in names})
            for point in data.truncation
        ],
        confusion=Confusion(labels, [[9 if i == j else (i + j) % 5 for j in range(classes)] for i in range(classes)]),
    )
