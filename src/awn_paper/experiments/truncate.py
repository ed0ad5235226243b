"""Truncation: a trained network cut at its tail, against random units and units of small activations."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence

from awn.core.families import Exponential
from awn_paper.experiments.table1 import LEARNED
from awn_paper.models import MLP, LearnedInOrder
from awn_paper.protocol import Case, Experiment, Protocol
from awn_paper.run import Record, total_width
from awn_paper.settings import Settings, Training
from awn_paper.show import NOT_RUN, Plot, Results, Series, Shown, Table, at_end, mean_std, score, scores, widths

RULES = {"importance": "the least important", "random": "random ones", "magnitude": "of the smallest activations"}
QUANTILES = (0.9, 0.95, 0.97, 0.99)
CUT = Settings(
    "Spiral",
    MLP(layers=1, activation="relu6"),
    LEARNED,
    Training(1000),
    measure=("truncation", "activations", "removal", "repaired"),
)


def label(quantile: float, *, ordered: bool = False) -> str:
    """The name of a case."""
    return f"k = {quantile:g}" + (", trained in order" if ordered else "")


def cases() -> Iterator[Case]:
    """Networks cut at several quantiles, all from 231 units, trained as in the paper and in order."""
    for ordered in (False, True):
        for quantile in QUANTILES:
            rate = round(0.01 * math.log(1 - quantile) / math.log(1 - 0.9), 4)
            learned = dataclasses.replace(LEARNED, importance=Exponential(rate=rate, scale="mass"), quantile=quantile)
            if ordered:
                learned = LearnedInOrder(**{field.name: getattr(learned, field.name) for field in _FIELDS})
            yield Case(label(quantile, ordered=ordered), (CUT.change(widths=learned),))


_FIELDS = dataclasses.fields(LEARNED)


def accuracies(
    runs: Sequence[Record], keep: float, rule: str = "importance", measure: str = "truncation"
) -> list[float]:
    """The accuracy of every run with a share of its units, in per cent."""
    curves = [run["measured"][measure] for run in runs]
    return [100 * curve[rule][curve["keep"].index(keep)] for curve in curves]


def free_cut(runs: Sequence[Record]) -> float:
    """The largest share of the units that can go for less than half a point of accuracy, in the mean over runs."""
    whole = statistics.fmean(map(score, runs))
    shares: list[float] = runs[0]["measured"]["truncation"]["keep"]
    return 1 - min(keep for keep in shares if statistics.fmean(accuracies(runs, keep)) >= whole - 0.5)


def _free(runs: Sequence[Record]) -> tuple[str, str]:
    """The free cut, and the units that it leaves."""
    if not runs:
        return NOT_RUN, NOT_RUN
    cut = free_cut(runs)
    return f"{100 * cut:.0f} %", f"{(1 - cut) * statistics.fmean(map(total_width, runs)):.0f}"


def show(results: Results) -> list[Shown]:
    """The cost of a cut at each quantile, the accuracy by the share of units removed, and the activations."""
    rows = []
    for name in [label(k, ordered=ordered) for ordered in (False, True) for k in QUANTILES]:
        kept = results.final("Spiral", name)
        ends = [at_end(run) for run in kept]
        cuts = [mean_std(accuracies(runs, keep)) for runs, keep in ((ends, 0.7), (kept, 0.7), (ends, 0.5))]
        others = [mean_std(accuracies(ends, 0.7, rule)) for rule in ("random", "magnitude")]
        repaired = [mean_std(accuracies(ends, keep, measure="repaired")) for keep in (0.7, 0.5)]
        facts = (name, str(len(kept)), widths(ends), widths(kept), scores(ends))
        rows.append((*facts, *cuts, *_free(ends), *others, *repaired))
    head = ("network", "runs", "units, last epoch", "kept", "whole", "−30 %, last epoch", "kept", "−50 %, last epoch")
    others_head = (
        "free cut, last epoch",
        "leaves units",
        "−30 % at random",
        "of the smallest activations",
        "−30 %, repaired",
        "−50 %, repaired",
    )
    shown: list[Shown] = [Table((*head, *others_head), tuple(rows))]
    runs = [at_end(run) for run in results.final("Spiral", label(0.9))]
    if runs:
        bands = next(iter(runs[0]["measured"]["activations"].values()))
        units = tuple(float(unit) for unit in range(len(bands["mean"])))
        band = Series("mean and range", units, tuple(bands["mean"]), tuple(bands["low"]), tuple(bands["high"]))
        by_rule = tuple(_curve(words, runs, rule) for rule, words in RULES.items())
        by_quantile = tuple(
            _curve(name, [at_end(run) for run in found])
            for name in map(label, QUANTILES)
            if (found := results.final("Spiral", name))
        )
        shown += [
            Plot("truncate", "k = 0.9: accuracy after removing units", *_AXES, by_rule),
            Plot("truncate-quantile", "Accuracy after removing the least important units", *_AXES, by_quantile),
            Plot("truncate-activations", "Activations by unit, scaled by importance", "unit", "activation", (band,)),
        ]
    return shown


_AXES = ("units removed, %", "test accuracy, %")


def _curve(name: str, runs: Sequence[Record], rule: str = "importance") -> Series:
    """The mean over runs by the share of units removed, with a band from the worst to the best."""
    shares = runs[0]["measured"]["truncation"]["keep"]
    by_share = [accuracies(runs, keep, rule) for keep in shares]
    removed = tuple(100 * (1 - keep) for keep in shares)
    means = tuple(sum(found) / len(found) for found in by_share)
    if len(runs) == 1:
        return Series(name, removed, means)
    return Series(name, removed, means, tuple(map(min, by_share)), tuple(map(max, by_share)))


_PROTOCOL = Protocol(
    tuple(cases()),
    seeds=10,
    says="The paper's 1,000 epochs and k = 0.9, and higher k from the same 231 units. The paper shows one network. "
    "Repaired and ordered networks go past the paper.",
)

TRUNCATE = Experiment(
    name="truncate",
    title="Truncation after training",
    says="Spiral, one hidden layer with ReLU6. The paper: of 83 units, the 30 % of the lowest importance can be "
    "removed at no loss; beyond that, the accuracy falls smoothly. Removing random units, or those of small "
    "activations, costs more. The free cut is the largest that costs less than half a point in the mean.",
    paper=_PROTOCOL,
    small=_PROTOCOL.with_seeds(3),
)
