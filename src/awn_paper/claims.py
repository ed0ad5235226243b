"""The paper's claims, each with a criterion: what holds here, and what does not."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from awn_paper.experiments.anneal import ENDS
from awn_paper.run import Record, total_width
from awn_paper.show import Results, Table, score, width_curve

_HALF_A_POINT = 0.5  # of accuracy: less is no loss, whatever the deviation


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds, and by which numbers."""

    holds: bool
    found: str


@dataclass(frozen=True)
class Claim:
    """What the paper says, the experiment that shows it, and when it counts as shown; None means not run."""

    says: str
    experiment: str
    holds_if: str
    judge: Callable[[Results], Verdict | None]


def as_accurate(results: Results) -> Verdict | None:
    """Table 1: adaptive against fixed, on every data set that has both."""
    found, held = [], []
    for name in results.datasets:
        awn, fixed = (results.final(name, label) for label in ("AWN", "Fixed"))
        if awn and fixed:
            held.append(_no_worse(awn, fixed))
            found.append(f"{name} {_score(awn)} / {_score(fixed)}" + ("" if held[-1] else " (worse)"))
    return Verdict(all(held), f"{sum(held)} of {len(held)}: {', '.join(found)}") if held else None


def wider_when_harder(results: Results) -> Verdict | None:
    """Table 1: the widths of tasks in the order of their difficulty."""
    found, held = [], []
    for family in (("DoubleMoon", "Spiral", "SpiralHard"), ("MNIST", "CIFAR10", "CIFAR100")):
        known = [(name, runs) for name in family if (runs := results.final(name, "AWN"))]
        if len(known) > 1:
            means = [_width(runs) for _, runs in known]
            held.append(all(easy < hard for easy, hard in itertools.pairwise(means)))
            found.append(" < ".join(name for name, _ in known) + ": " + ", ".join(f"{mean:.0f}" for mean in means))
    return Verdict(all(held), "; ".join(found)) if held else None


def same_from_any_start(results: Results) -> Verdict | None:
    """The starts: how far apart the learned widths are, under each activation."""
    found, ratios = [], {}
    for activation in ("relu6", "relu", "leaky_relu"):
        labels = [label for label in results.labels("SpiralHard") if label.startswith(f"{activation},")]
        groups = [runs for label in labels if (runs := results.final("SpiralHard", label))]
        if len(groups) > 1:
            first = [statistics.fmean(width_curve(run)[0] for run in runs) for runs in groups]
            last = [_width(runs) for runs in groups]
            ratios[activation] = max(last) / min(last)
            found.append(f"{activation}: {min(first):.0f}–{max(first):.0f} → {min(last):.0f}–{max(last):.0f}")
    return Verdict(ratios["relu6"] <= 1.25, "; ".join(found)) if "relu6" in ratios else None


def smaller_by(label: str, results: Results) -> Verdict | None:
    """An annealed prior: the width and the accuracy, against runs without it."""
    annealed, free = (results.final("SpiralHard", name) for name in (label, "free"))
    if not annealed or not free:
        return None
    holds = _width(annealed) <= 2 / 3 * _width(free) and _no_worse(annealed, free)
    ends = [f"{_width(runs):.0f} units, accuracy {_score(runs)}" for runs in (annealed, free)]
    return Verdict(holds, f"{ends[0]}; without it {ends[1]}")


def cut_for_free(results: Results) -> Verdict | None:
    """The truncation: what 30 % of the units cost, chosen by importance, at random and by magnitude."""
    runs = results.final("Spiral", "AWN")
    if not runs:
        return None

    def kept(rule: str) -> float:
        curves = [run["measured"]["truncation"] for run in runs]
        return 100 * statistics.fmean(curve[rule][curve["keep"].index(0.7)] for curve in curves)

    whole = statistics.fmean(score(run) for run in runs)
    by = {rule: kept(rule) for rule in ("importance", "random", "magnitude")}
    holds = by["importance"] >= whole - _HALF_A_POINT and by["importance"] > max(by["random"], by["magnitude"])
    return Verdict(holds, f"whole {whole:.1f}; " + ", ".join(f"by {rule} {value:.1f}" for rule, value in by.items()))


def needs_kaiming_plus(results: Results) -> Verdict | None:
    """The starts of deep networks: accuracy with and without regard to the importance."""
    found, held = [], []
    for layers in (4, 8):
        plus, usual = (results.final("SpiralHard", f"{start}, {layers} layers") for start in ("kaiming+", "kaiming"))
        if plus and usual:
            held.append(statistics.fmean(map(score, plus)) > statistics.fmean(map(score, usual)) + _spread(plus, usual))
            found.append(f"{layers} layers: {_score(plus)} / {_score(usual)}")
    return Verdict(all(held), "; ".join(found)) if held else None


CLAIMS = (
    Claim(
        "Adaptive networks are as accurate as fixed ones",
        "table1",
        "the mean is not below by more than a deviation, or half a point",
        as_accurate,
    ),
    Claim("The width grows with the difficulty", "difficulty", "the mean widths rise", wider_when_harder),
    Claim(
        "Under ReLU6 the width ends the same wherever it starts",
        "start",
        "the learned widths are within a quarter",
        same_from_any_start,
    ),
    *(
        Claim(
            f"A prior that tightens to a deviation of {end:g} makes a network smaller without loss",
            "anneal",
            "the width is a third below that without the prior, and the accuracy is not below as above",
            functools.partial(smaller_by, label),
        )
        for label, end in ENDS.items()
    ),
    Claim(
        "30 % of the units can be cut without loss, and better than at random or by magnitude",
        "truncate",
        "less than half a point goes, and both others lose more",
        cut_for_free,
    ),
    Claim(
        "Deep networks need Kaiming+",
        "initialisation",
        "with four layers and more its mean accuracy is higher by more than a deviation",
        needs_kaiming_plus,
    ),
)


def claims_table(results_of: Callable[[str], Results]) -> Table:
    """All claims with their criteria, numbers and verdicts."""
    rows = []
    for claim in CLAIMS:
        verdict = claim.judge(results_of(claim.experiment))
        said = "not run" if verdict is None else "holds" if verdict.holds else "does not hold"
        rows.append((claim.says, claim.holds_if, "–" if verdict is None else verdict.found, said))
    return Table(("claim", "holds if", "found", ""), tuple(rows))


def _no_worse(runs: Sequence[Record], others: Sequence[Record]) -> bool:
    """Whether the mean score is not worse by more than a deviation, or half a point; a loss is better when lower."""
    better = statistics.fmean(map(score, runs)) - statistics.fmean(map(score, others))
    if "accuracy" not in runs[0]["test"]:
        return -better >= -_spread(runs, others)
    return better >= -max(_HALF_A_POINT, _spread(runs, others))


def _spread(*groups: Sequence[Record]) -> float:
    """The largest deviation of the scores of several groups; one run has none."""
    return max(statistics.stdev(map(score, runs)) if len(runs) > 1 else 0.0 for runs in groups)


def _score(runs: Sequence[Record]) -> str:
    return f"{statistics.fmean(map(score, runs)):.{1 if 'accuracy' in runs[0]['test'] else 2}f}"


def _width(runs: Sequence[Record]) -> float:
    return statistics.fmean(map(total_width, runs))
