"""Verdicts: whether a claim of the paper holds, by the numbers of its experiment's runs."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from awn_paper.experiments.anneal import RATES
from awn_paper.experiments.anneal import label as anneal_label
from awn_paper.experiments.batch import SIZES, equal_steps
from awn_paper.experiments.quantile import QUANTILES
from awn_paper.experiments.remove import FIRST, costly, later, without_first
from awn_paper.experiments.retrain import SAME_DEPTH
from awn_paper.experiments.search import SEARCHES
from awn_paper.experiments.start import variance_ratio
from awn_paper.experiments.text import DATASET as TRANSLATED
from awn_paper.experiments.text import PAPER_DISTANCE, best_fixed, fixed_label, mean_parameters
from awn_paper.experiments.text import WIDTHS as FFN_WIDTHS
from awn_paper.experiments.truncate import accuracies
from awn_paper.experiments.truncate import label as cut_label
from awn_paper.run import Record, total_width
from awn_paper.show import Results, at_end, score, score_curve, width_after, width_curve

_HALF_A_POINT = 0.5  # of accuracy: less is no loss, whatever the standard deviation
_A_QUARTER = 1.25  # ratio of widths: less is the same
WITHOUT = 20  # units, about the same share of our 44 as the paper's 40 of its 83
TEN = 10  # times fewer parameters, where the paper has 200
_LEARNED = 99.5  # per cent: a task that is learned


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds, by which numbers, and the groups of runs that these are of."""

    holds: bool
    found: str
    groups: Sequence[Sequence[Record]]


def as_accurate(results: Results) -> Verdict | None:
    """Table 1: adaptive against fixed, on every data set that has both."""
    found, held, groups = [], [], []
    for name in results.datasets:
        awn, fixed = (results.final(name, label) for label in ("AWN", "Fixed"))
        if awn and fixed:
            groups += [awn, fixed]
            held.append(_no_worse(awn, fixed))
            found.append(f"{name} {_score(awn)} / {_score(fixed)}" + ("" if held[-1] else " (worse)"))
    return Verdict(all(held), f"{sum(held)} of {len(held)}: {', '.join(found)}", groups) if held else None


def wider_when_harder(results: Results) -> Verdict | None:
    """Table 1: the widths of tasks in the order of their difficulty."""
    found, held, groups = [], [], []
    for family in (("DoubleMoon", "Spiral", "SpiralHard"), ("MNIST", "CIFAR10", "CIFAR100")):
        known = [(name, runs) for name in family if (runs := results.final(name, "AWN"))]
        if len(known) > 1:
            groups += [runs for _, runs in known]
            means = [_width(runs) for _, runs in known]
            held.append(all(easy < hard for easy, hard in itertools.pairwise(means)))
            found.append(" < ".join(name for name, _ in known) + ": " + ", ".join(f"{mean:.0f}" for mean in means))
    return Verdict(all(held), "; ".join(found), groups) if held else None


def same_from_any_start(results: Results) -> Verdict | None:
    """The starts: how far apart the widths are in the end, under each activation, and beside that of single runs."""
    found, ratios, judged = [], {}, []
    for activation in ("relu6", "relu", "leaky_relu"):
        labels = [label for label in results.labels("SpiralHard") if label.startswith(f"{activation},")]
        groups = [runs for label in labels if (runs := results.final("SpiralHard", label))]
        if len(groups) > 1:
            judged += groups if activation == "relu6" else []
            first, last = (_mean_widths(groups, place) for place in (0, -1))
            ratios[activation] = max(last) / min(last)
            ends = [[width_curve(run)[-1] for run in runs] for runs in groups]
            ratio = f"ratio {ratios[activation]:.2f}{_beside(ends)}"
            found.append(f"{activation}: {_range(first)} → {_range(last)}, {ratio}")
    return Verdict(ratios["relu6"] <= _A_QUARTER, "; ".join(found), judged) if judged else None


def same_for_any_batch(results: Results) -> Verdict | None:
    """The batch sizes: how far apart the widths are after equal epochs, the last, and after equal steps."""
    found = {size: results.final("SpiralHard", f"relu6, batch {size}") for size in SIZES}
    groups = {size: runs for size, runs in found.items() if runs}
    if len(groups) < 2:
        return None
    steps = equal_steps(groups)
    ends = {
        "": [[width_curve(run)[-1] for run in runs] for runs in groups.values()],
        "after equal steps ": [[width_after(run, steps[size]) for run in runs] for size, runs in groups.items()],
    }
    said, ratios = [], []
    for when, widths in ends.items():
        means = list(map(statistics.fmean, widths))
        ratios.append(max(means) / min(means))
        said.append(f"{when}{', '.join(f'{mean:.0f}' for mean in means)}, ratio {ratios[-1]:.2f}{_beside(widths)}")
    sizes = f"batch {min(groups)} to {max(groups)}"
    return Verdict(max(ratios) <= _A_QUARTER, f"{sizes}: {'; '.join(said)}", [*groups.values()])


def smaller_by(prior: str, results: Results) -> Verdict | None:
    """An annealed prior: width and accuracy after the last epoch, against runs without it from the same start."""
    found, held, groups = [], [], []
    for rate in RATES:
        priors, frees = (results.final("SpiralHard", anneal_label(name, rate)) for name in (prior, "no prior"))
        if priors and frees:
            groups += [priors, frees]
            annealed, free = ([at_end(run) for run in runs] for runs in (priors, frees))
            before = statistics.fmean(width_after(run, _begin(run)) for run in priors)
            held.append(_width(annealed) <= 2 / 3 * _width(free) and _no_worse(annealed, free))
            ends = [f"{_width(runs):.0f} units at {_score(runs)} %" for runs in (annealed, free)]
            found.append(f"rate {rate:g}: {before:.0f} → {ends[0]}; without it {ends[1]}")
    return Verdict(all(held), "; ".join(found), groups) if held else None


def cut_for_free(quantile: float, results: Results) -> Verdict | None:
    """The truncation: what 30 % of the units cost, chosen by importance, at random and by magnitude."""
    kept = results.final("Spiral", cut_label(quantile))
    if not kept:
        return None
    runs = [at_end(run) for run in kept]
    whole = statistics.fmean(map(score, runs))
    important, random, small = (
        statistics.fmean(accuracies(runs, 0.7, rule)) for rule in ("importance", "random", "magnitude")
    )
    holds = important >= whole - _HALF_A_POINT and important > max(random, small)
    said = f"cut by importance {important:.1f}, at random {random:.1f}, by magnitude {small:.1f}"
    at_kept = f"{statistics.fmean(map(score, kept)):.1f} → {statistics.fmean(accuracies(kept, 0.7)):.1f}"
    return Verdict(holds, f"{_width(runs):.0f} units, whole {whole:.1f}; {said}; at the kept epoch {at_kept}", [kept])


def first_units_matter(results: Results) -> Verdict | None:
    """The removal: the first units together, and each one alone, after the last epoch."""
    runs = [at_end(run) for run in results.final("Spiral", cut_label(0.9))]
    if not runs:
        return None
    without = without_first(runs, WITHOUT)
    chance = not without or statistics.fmean(without) <= 60
    pairs = [costly(run) for run in runs]
    first, after = (statistics.fmean(pair[place] for pair in pairs) for place in (0, 1))
    later_ones = statistics.fmean(map(later, runs))
    found = f"{first:.0f} of the first {FIRST}, {after:.1f} of {later_ones:.0f} later ones cost more than a point"
    together = f"; without the first {WITHOUT}: {statistics.fmean(without):.1f} %" if without else ""
    return Verdict(chance and first > FIRST / 2 and after < later_ones / 4, found + together, [runs])


def needs_kaiming_plus(results: Results) -> Verdict | None:
    """The starts of deep networks: accuracy with and without regard to the importance."""
    found, held, groups = [], [], []
    for layers in (4, 8):
        plus, usual = (results.final("SpiralHard", f"{start}, {layers} layers") for start in ("kaiming+", "kaiming"))
        if plus and usual:
            groups += [plus, usual]
            held.append(statistics.fmean(map(score, plus)) > statistics.fmean(map(score, usual)) + _spread(plus, usual))
            found.append(f"{layers} layers: {_score(plus)} / {_score(usual)}")
    return Verdict(all(held), "; ".join(found), groups) if held else None


def fewer_feed_forward(results: Results) -> Verdict | None:
    """The feed-forward networks of the Transformer: parameters and loss, learned against the best fixed width."""
    learned, best = results.final(TRANSLATED, "AWN"), best_fixed(results)
    if not learned or best is None:
        return None
    units, runs = best
    factor = mean_parameters(runs) / mean_parameters(learned)
    losses = [statistics.fmean(map(score, group)) for group in (learned, runs)]
    found = f"{factor:.1f} times fewer, loss {losses[0]:.2f}; best fixed width {units}, loss {losses[1]:.2f}"
    for width in FFN_WIDTHS[: FFN_WIDTHS.index(units)]:
        group = results.final(TRANSLATED, fixed_label(width))
        if group and statistics.fmean(map(score, group)) <= losses[1] + PAPER_DISTANCE:
            smaller = mean_parameters(runs) / mean_parameters(group)
            found += f"; a fixed width of {width} is within {PAPER_DISTANCE} too, with {smaller:.0f} times fewer"
            break
    return Verdict(factor >= TEN and losses[0] <= losses[1] + PAPER_DISTANCE, found, [learned, runs])


def as_good_as_a_search(results: Results) -> Verdict | None:
    """One adaptive training against the best of the searches, on every data set that has both."""
    found, held, groups = [], [], []
    for name in results.datasets:
        searched = [runs for label in SEARCHES.values() if (runs := results.final(name, label))]
        awn = results.final(name, "AWN")
        if awn and searched:
            groups += [awn, *searched]
            best = max(searched, key=lambda runs: statistics.fmean(map(score, runs)))
            held.append(_no_worse(awn, best))
            found.append(f"{name} {_score(awn)} / {_score(best)}" + ("" if held[-1] else " (worse)"))
    return Verdict(all(held), f"{sum(held)} of {len(held)}: {', '.join(found)}", groups) if held else None


def falls_behind_retrained(results: Results) -> Verdict | None:
    """Fixed+ on SpiralHard: whether a fixed network of the learned width and depth is worse than the adaptive one."""
    awn, deep, other = (results.final("SpiralHard", label) for label in ("AWN", SAME_DEPTH, "Fixed+"))
    if not awn or not deep:
        return None
    found = f"{_score(deep)} % with {_width(deep):.0f} units, against {_score(awn)} % with {_width(awn):.0f}"
    found += f"; of the depth of the best fixed network {_score(other)} % with {_width(other):.0f}" if other else ""
    return Verdict(not _no_worse(deep, awn), found, [awn, deep])


def steady_at_high_quantiles(results: Results) -> Verdict | None:
    """The quantiles: the accuracy after the last epoch at 0.9 and above, and below."""
    found, held, groups = [], [], []
    for name in results.datasets:
        runs = {k: results.selection(name, f"k = {k:g}") for k in QUANTILES}
        means = {k: statistics.fmean(score_curve(run)[-1] for run in those) for k, those in runs.items() if those}
        low, high = ([mean for k, mean in means.items() if (k >= QUANTILES[2]) == above] for above in (False, True))
        if low and high:
            groups += [those for those in runs.values() if those]
            held.append(min(high) > max(low))
            found.append(f"{name}: " + ", ".join(f"{mean:.1f} at {k:g}" for k, mean in means.items()))
    return Verdict(all(held), "; ".join(found), groups) if held else None


def families_in_order(results: Results) -> Verdict | None:
    """The importance families: the best of each, and their mean widths."""
    families = ("PowerLaw", "Exponential", "Sigmoid")
    runs = {name: results.selection("SpiralHard", name) for name in families}
    if not all(runs.values()):
        return None
    best = [max(score(run, "validation") for run in found) for found in runs.values()]
    means = [_width(found) for found in runs.values()]
    said = [f"{name} {top:.1f} %, {mean:.0f} units" for name, top, mean in zip(families, best, means, strict=True)]
    ordered = all(wide > narrow for wide, narrow in itertools.pairwise(means))
    return Verdict(ordered and min(best) >= _LEARNED, "; ".join(said), [*runs.values()])


def _no_worse(runs: Sequence[Record], others: Sequence[Record]) -> bool:
    """Whether the mean score is at most a standard deviation worse, or half a point; a loss is better when lower."""
    better = statistics.fmean(map(score, runs)) - statistics.fmean(map(score, others))
    if "accuracy" not in runs[0]["test"]:
        return -better >= -_spread(runs, others)
    return better >= -max(_HALF_A_POINT, _spread(runs, others))


def _spread(*groups: Sequence[Record]) -> float:
    """The largest standard deviation of the scores of several groups; one run has none."""
    return max(statistics.stdev(map(score, runs)) if len(runs) > 1 else 0.0 for runs in groups)


def _score(runs: Sequence[Record]) -> str:
    return f"{statistics.fmean(map(score, runs)):.{1 if 'accuracy' in runs[0]['test'] else 2}f}"


def _width(runs: Sequence[Record]) -> float:
    return statistics.fmean(map(total_width, runs))


def _mean_widths(groups: Sequence[Sequence[Record]], place: int) -> list[float]:
    """For every group, the mean width at a place of the history."""
    return [statistics.fmean(width_curve(run)[place] for run in runs) for runs in groups]


def _beside(groups: Sequence[Sequence[float]]) -> str:
    """The spread of the groups' means beside that of single runs, if there are enough of them."""
    return f", F = {variance_ratio(groups):.1f}" if min(map(len, groups)) > 2 else ""


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.0f}–{max(values):.0f}"


def _begin(run: Record) -> int:
    """The epoch at which an annealed prior sets in."""
    return int(run["settings"]["widths"]["width_scale"]["begin"])
