"""Learned channels: all layers of ResNet-20 learn their width, beside fixed ones of several sizes."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from awn.core.families import Exponential
from awn_paper.experiments.table1 import one_cycle
from awn_paper.models import Budgeted, BudgetedUnevenly, ChannelResNet20, Fixed, Learned
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.run import Record
from awn_paper.settings import Settings
from awn_paper.show import Plot, Results, Series, Shown, Table, mean_std, score, scores, width_and_score, widths

FIXED = (8, 12, 16)  # channels of the first stage: widths multiplied by 1/2, 3/4 and 1
STARTS = (8, 16)
BUDGETS = {8: 20.6e6, 12: 46.1e6}  # the FLOPs that fixed networks of so many channels have
PART = "CIFAR10 (10,000 images)"
_LR = 0.2  # of the weights, and by default of λ


def _learned(channels: int) -> Learned:
    """The scale that awn has by default, from so many channels in the first stage, and a weak prior on the weights."""
    return Learned(Exponential.for_units(channels), new_units="zero", weight_scale=1.0)


def _budgeted(
    channels: int, flops: float, kind: type[Budgeted] = Budgeted, *, width_lr: float = 0.02, strength: float = 0.07
) -> Budgeted:
    """The same under a budget of the FLOPs at the start."""
    return kind(
        Exponential.for_units(channels),
        new_units="zero",
        weight_scale=1.0,
        width_lr=width_lr,
        max_flops=flops,
        strength=strength,
    )


def _trials() -> dict[str, Budgeted]:
    """The smaller budget with what is otherwise usual: why the settings of the budgets are what they are."""
    smaller = next(iter(BUDGETS.items()))
    return {
        "AWN, plain steps": _budgeted(*smaller, BudgetedUnevenly),
        "AWN, fast λ": _budgeted(*smaller, width_lr=_LR, strength=1.0),
    }


def _fixed_label(channels: int) -> str:
    return f"Fixed, {channels} channels"


def _awn_label(channels: int) -> str:
    return f"AWN, from {channels} channels"


def _budget_label(flops: float) -> str:
    return f"AWN, budget of {flops / 1e6:g} million FLOPs"


def _cases(dataset: str, epochs: int, *, seeds_without_budget: int | None = None) -> tuple[Case, ...]:
    base = dataclasses.replace(
        one_cycle("CIFAR10", epochs).change(lr=_LR, weight_decay=5e-4),
        dataset=dataset,
        network=ChannelResNet20(),
        measure=("flops",),
    )
    by_label: dict[str, Settings] = {
        **{_fixed_label(channels): base.change(widths=Fixed(channels)) for channels in FIXED},
        **{_awn_label(channels): base.change(widths=_learned(channels)) for channels in STARTS},
        **{_budget_label(pair[1]): base.change(widths=_budgeted(*pair)) for pair in BUDGETS.items()},
        **{label: base.change(widths=widths) for label, widths in _trials().items()},
    }
    free = set(map(_awn_label, STARTS))
    return tuple(
        Case(label, (settings,), seeds=seeds_without_budget if label in free else None)
        for label, settings in by_label.items()
    )


def show(results: Results) -> list[Shown]:
    """Accuracy, FLOPs and parameters, and the one by the other."""
    budgets = [*map(_budget_label, BUDGETS.values()), *_trials()]
    labels = [*map(_fixed_label, FIXED), *map(_awn_label, STARTS), *budgets]
    dataset = results.datasets[-1] if results.datasets else PART
    named = {label: results.final(dataset, label) for label in labels}
    rows = []
    for label, runs in named.items():
        flops = mean_std([_flops(run) / 1e6 for run in runs])
        parameters = f"{statistics.fmean(run['parameters'] for run in runs):,.0f}" if runs else "–"
        units = widths(runs) if runs and label.startswith("AWN") else "–"
        rows.append((label, units, flops, parameters, scores(runs), scores(runs, "validation"), str(len(runs))))
    head = ("", "learned channels", "million FLOPs an image", "parameters", "test accuracy", "validation", "runs")
    shown: list[Shown] = [Table(head, tuple(rows))]
    curves = _by_flops(named)
    if curves:
        axes = ("million FLOPs an image", "test accuracy, %")
        shown.append(Plot("channels-flops", "Accuracy by FLOPs: ResNet-20", *axes, curves))
    return [*shown, *width_and_score("channels", "channels of ResNet-20", named)]


def _by_flops(named: Mapping[str, Sequence[Record]]) -> tuple[Series, ...]:
    curves = []
    for kind, name in {"Fixed": "Fixed", "AWN, from": "AWN", "AWN, budget": "AWN, budget"}.items():
        points = sorted(
            (statistics.fmean(map(_flops, runs)) / 1e6, statistics.fmean(map(score, runs)))
            for label, runs in named.items()
            if runs and label.startswith(kind)
        )
        if points:
            x, y = zip(*points, strict=True)
            curves.append(Series(name, x, y))
    return tuple(curves)


def _flops(run: Record) -> float:
    return float(run["measured"]["flops"]["forward"])


CHANNELS = Experiment(
    name="channels",
    title="Learned channels of ResNet-20",
    says="The paper learns only the width of the head. Here, the channels of all convolutions of ResNet-20 are "
    "learned, from two starts, and compared with fixed networks of 1/2, 3/4 and the full width. With a budget, "
    "they start from the two smaller fixed networks, whose FLOPs are a soft cap. SGD then takes even steps "
    "(`awn.advanced.even_steps_`), λ has a learning rate of 0.02 instead of 0.2, and the budget a strength of "
    "0.07 instead of 1. Plain steps are without even steps. Fast λ has them, with a learning rate of 0.2 for λ "
    "and a strength of 1. Both have the smaller budget. Shortcuts are convolutions where the resolution "
    "changes, so that each stage has its own channels. FLOPs count the convolutions and matrix products for "
    "one image, two for each multiplication and addition, without unused channels.",
    paper=Protocol(
        _cases("CIFAR10", 30),
        seeds=3,
        says="CIFAR-10, 30 epochs, three runs. The learning rate rises to 0.2 and falls along a cosine; weight decay "
        "0.0005.",
    ),
    long=Protocol(
        _cases(PART, 12, seeds_without_budget=1),
        seeds=3,
        says="Shortened: a fifth of the images (8,330 for training, 1,670 for validation, all 10,000 for the test), 12 "
        "epochs; three runs, one of learned channels without a budget. The learning rate rises to 0.2 and falls along "
        "a cosine; weight decay 0.0005. The accuracies compare with each other, not with Table 1's.",
    ),
    small=Protocol(_cases(PART, 2), seeds=1, says="A fifth of the images, 2 epochs, one run."),
)
