"""The paper's claims, each with a criterion: what holds here, and what does not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from awn_paper import verdicts
from awn_paper.experiments.text import PAPER_DISTANCE
from awn_paper.run import Record
from awn_paper.show import Results
from awn_paper.verdicts import TEN, Verdict


@dataclass(frozen=True)
class Claim:
    """What the paper says and its figure, the experiment that shows it, and when it counts as shown.

    Claims of one topic are told together. The verdict is None where the experiment was not run.
    """

    topic: str
    says: str
    paper: str
    experiment: str
    holds_if: str
    judge: Callable[[Results], Verdict | None]


CLAIMS = (
    Claim(
        "Accuracy",
        "Adaptive networks are as accurate as fixed ones",
        "on none of 13 data sets more than a standard deviation below",
        "table1",
        "the mean is below by at most half a point or the larger of the two standard deviations, whichever is larger; "
        "for a loss, by that standard deviation alone",
        verdicts.as_accurate,
    ),
    Claim(
        "Width and difficulty",
        "The width grows with the difficulty",
        "8, 66, 227; MNIST 19, CIFAR10 80, CIFAR100 162",
        "difficulty",
        "the mean widths rise",
        verdicts.wider_when_harder,
    ),
    Claim(
        "Starts",
        "Under ReLU6 the width ends the same wherever it starts",
        "the same, shown as curves",
        "start",
        "the mean widths after the last epoch are within a quarter",
        verdicts.same_from_any_start,
    ),
    Claim(
        "Batch sizes",
        "The width ends the same for every batch size",
        "the same, shown as curves",
        "batch",
        "the mean widths are within a quarter after the last epoch, and after equal steps",
        verdicts.same_for_any_batch,
    ),
    *(
        Claim(
            "Annealed prior",
            f"An annealed prior makes a network smaller without loss: {words}",
            "about 800 → about 300 units, no loss",
            "anneal",
            "after the last epoch the width is at least a third below that without the prior, and the mean accuracy is "
            "below by at most a standard deviation or half a point, whichever is larger",
            functools.partial(verdicts.smaller_by, prior),
        )
        for prior, words in {
            "divided by N": "divided by N, as the paper's text scales it",
            "not divided": "not divided by N, unlike in the text",
        }.items()
    ),
    *(
        Claim(
            "Truncation",
            f"30 % of the units can be cut without loss, and better than at random or by magnitude: {words}",
            "83 units, no loss",
            "truncate",
            "after the last epoch the cut costs at most half a point, and both others cost more",
            functools.partial(verdicts.cut_for_free, quantile),
        )
        for quantile, words in {0.9: "k = 0.9, the paper's", 0.97: "k = 0.97, not the paper's"}.items()
    ),
    Claim(
        "Important units",
        "The most important units matter most",
        "without the first 40 of 83 units the accuracy is at the level of chance; removed one at a time, most of the "
        "first 25 matter, and later ones hardly do",
        "remove",
        f"the accuracy after the last epoch is at most 60 % without the first {verdicts.WITHOUT} units, about the same "
        "share of our 44 as 40 of the paper's 83; removed one at a time, more than half of the first 25 units cost "
        "more than a point, and less than a quarter of the later ones do",
        verdicts.first_units_matter,
    ),
    Claim(
        "Kaiming+",
        "Deep networks need Kaiming+",
        "four layers hardly converge without it",
        "initialisation",
        "from four layers on, its mean accuracy is more than a standard deviation higher",
        verdicts.needs_kaiming_plus,
    ),
    Claim(
        "Quantiles",
        "A higher quantile k gives steadier accuracy",
        "shown as curves",
        "quantile",
        "on every data set the mean accuracy after the last epoch is higher at each k from 0.9 on than at 0.5 and 0.7",
        verdicts.steady_at_high_quantiles,
    ),
    Claim(
        "Importance families",
        "Every importance family learns SpiralHard; the power law ends the widest, the sigmoid the narrowest",
        "all 100 %; 2952, 954 and 427 units in the mean",
        "importance",
        "the best validation accuracy of each is 99.5 % or more, and the mean widths are in this order",
        verdicts.families_in_order,
    ),
    Claim(
        "Searches",
        "One adaptive training is as accurate as a search for the width",
        "MNIST 99.7 / 99.6, CIFAR10 91.4 / 91.4, CIFAR100 63.1 (4.0) / 66.5",
        "search",
        "the mean is at most a standard deviation or half a point, whichever is larger, below that of the best search",
        verdicts.as_good_as_a_search,
    ),
    Claim(
        "Retraining",
        "On SpiralHard a fixed network of the learned width falls behind the adaptive one",
        "83.2 (17.0) against 100.0",
        "retrain",
        "the mean of networks of the same depth is more than a standard deviation and more than half a point below "
        "that of the adaptive ones",
        verdicts.falls_behind_retrained,
    ),
    Claim(
        "Translation",
        "A Transformer needs far fewer feed-forward parameters than it is given",
        "200 times fewer, at a loss of 1.51 against 1.43",
        "text",
        f"at least {TEN} times fewer than the fixed width with the best validation loss, and a test loss at most "
        f"{PAPER_DISTANCE} above it, as in the paper",
        verdicts.fewer_feed_forward,
    ),
)


class Judged(NamedTuple):
    """A claim with its verdict: our figures and the paper's, the criterion, and the runs behind it."""

    topic: str
    claim: str
    verdict: str
    ours: str
    paper: str
    criterion: str
    runs: str


def judge_claims(results_of: Callable[[str], Results]) -> list[Judged]:
    """All claims, judged by the results of each experiment."""
    judged = []
    for claim in CLAIMS:
        verdict = claim.judge(results_of(claim.experiment))
        said = "not run" if verdict is None else "holds" if verdict.holds else "does not hold"
        found, length = ("–", "–") if verdict is None else (verdict.found, _length(verdict.groups))
        judged.append(Judged(claim.topic, claim.says, said, found, claim.paper, claim.holds_if, length))
    return judged


def _length(groups: Sequence[Sequence[Record]]) -> str:
    """How many runs a case has, and of how many epochs."""
    epochs = [int(run["epochs"]) for runs in groups for run in runs]
    return f"{_from_to([len(runs) for runs in groups])} per case, of {_from_to(epochs)} epochs"


def _from_to(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
