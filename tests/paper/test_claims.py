"""The paper's claims: each verdict follows from the numbers of the runs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from awn_paper.claims import CLAIMS, Claim, judge_claims
from awn_paper.experiments.anneal import PRIORS, label
from awn_paper.experiments.batch import equal_steps
from awn_paper.experiments.retrain import SAME_DEPTH
from awn_paper.experiments.text import DATASET as TRANSLATED
from awn_paper.show import Results


def run(score: float, width: float = 10, first: float | None = None, **more: Any) -> dict[str, Any]:
    start = width if first is None else first
    kept = {"test": {"accuracy": score / 100}, "widths": {"a": width}, **more}
    return {
        **kept,
        "last": kept,
        "epochs": 2,
        "data": {"train": 512},
        "history": {"epoch": [1, 2], "widths": {"a": [start, width]}},
    }


def results(**cases: list[dict[str, Any]]) -> Results:
    """Runs by `dataset__label`."""
    parts = {name: name.split("__") for name in cases}
    return Results(tuple({"dataset": parts[name][0], "label": parts[name][1], "final": cases[name]} for name in cases))


def cut(importance: float) -> Results:
    shares = {"importance": importance, "random": 0.9, "magnitude": 0.8}
    curve: dict[str, Any] = {"keep": [1.0, 0.7], **{rule: [0.99, value] for rule, value in shares.items()}}
    return results(**{f"Spiral__k = {k:g}": [run(99.0, measured={"truncation": curve})] for k in (0.9, 0.97)})


def removed(costly_first: int, costly_later: int, without: float) -> Results:
    """100 units, of which some of the first 25 and some of the later ones cost two points alone."""
    each = [0.97] * costly_first + [0.99] * (25 - costly_first) + [0.97] * costly_later + [0.99] * (75 - costly_later)
    removal = {"first": [0.99] * 20 + [without] * 80, "each": each}
    return results(**{"Spiral__k = 0.9": [run(99.0, 100, measured={"removal": removal})]})


def starts(end: float) -> Results:
    groups = {"relu6, rate 0.01": (200, 100), "relu6, rate 0.1": (20, end), "relu, rate 0.01": (200, 500)}
    return results(**{f"SpiralHard__{label}": [run(99, last, first)] for label, (first, last) in groups.items()})


def batches(end: float) -> Results:
    return results(**{f"SpiralHard__relu6, batch {size}": [run(99, width)] for size, width in ((64, 100), (256, end))})


def annealed(width: float, score: float, free: float = 600) -> Results:
    settings = {"widths": {"width_scale": {"begin": 1}}}
    cases = {name: [{**run(score, width, 800), "settings": settings}] for name in PRIORS if name != "no prior"}
    cases["no prior"] = [run(99.4, free)]
    return results(**{f"SpiralHard__{label(name, 0.01)}": runs for name, runs in cases.items()})


def depths(usual: float) -> Results:
    labels = {"kaiming+, 4 layers": (99.0, 97.0), "kaiming, 4 layers": (usual, usual)}
    return results(**{f"SpiralHard__{label}": [run(score) for score in scores] for label, scores in labels.items()})


def translated(units: int, loss: float) -> Results:
    """A learned width beside fixed ones of 1024 and 64 units a layer, of which the wider has the lower loss."""

    def run_of(width: int, found: float) -> list[dict[str, Any]]:
        said = {"test": {"loss": found}, "validation": {"loss": found}, "widths": {"a": width}}
        return [{**run(0), **said, "settings": {"network": {"embedding": 8}}}]

    cases = {"AWN": (units, loss), "Fixed 1024": (1024, 1.5), "Fixed 64": (64, 1.7)}
    return results(**{f"{TRANSLATED}__{label}": run_of(*found) for label, found in cases.items()})


def configurations(**cases: list[dict[str, Any]]) -> Results:
    """Runs of model selections by `dataset__label`."""
    found = [{**outcome, "final": [], "selection": outcome["final"]} for outcome in results(**cases).outcomes]
    return Results(tuple(found))


def selected(validation: float, width: float = 10) -> dict[str, Any]:
    found = run(validation, width)
    history = {**found["history"], "score": [0.9, validation / 100]}
    return {**found, "validation": {"accuracy": validation / 100}, "history": history}


def quantiles(low: float) -> Results:
    cases = {"k = 0.7": low, "k = 0.9": 98.0, "k = 0.99": 97.0}
    return configurations(**{f"Spiral__{label}": [selected(score)] for label, score in cases.items()})


def families(sigmoid: float, width: float) -> Results:
    cases = {"PowerLaw": (100.0, 900), "Exponential": (100.0, 500), "Sigmoid": (sigmoid, width)}
    return configurations(**{f"SpiralHard__{name}": [selected(*found)] for name, found in cases.items()})


def searched(awn: float) -> Results:
    cases = {"Grid search": 97.0, "Random search": 99.0, "AWN": awn}
    return results(**{f"pol__{label}": [run(score)] for label, score in cases.items()})


# For every experiment: results by which its claim holds, and by which it does not.
BY_EXPERIMENT = {
    "table1": (
        results(pol__AWN=[run(97), run(99)], pol__Fixed=[run(99)], MNIST__AWN=[run(98.6)], MNIST__Fixed=[run(99)]),
        results(pol__AWN=[run(97), run(99)], pol__Fixed=[run(99)], MNIST__AWN=[run(98.4)], MNIST__Fixed=[run(99)]),
    ),
    "difficulty": (
        results(DoubleMoon__AWN=[run(99, 8)], Spiral__AWN=[run(99, 20)], SpiralHard__AWN=[run(99, 200)]),
        results(DoubleMoon__AWN=[run(99, 8)], Spiral__AWN=[run(99, 300)], SpiralHard__AWN=[run(99, 200)]),
    ),
    "start": (starts(120), starts(130)),
    "batch": (batches(120), batches(130)),
    "anneal": (annealed(300, 99.0), annealed(500, 99.0)),
    "truncate": (cut(0.986), cut(0.984)),
    "remove": (removed(13, 18, 0.6), removed(13, 19, 0.6)),
    "initialisation": (depths(60.0), depths(97.0)),
    "quantile": (quantiles(96.0), quantiles(97.5)),
    "importance": (families(99.6, 400), families(99.6, 501)),
    "search": (searched(98.6), searched(98.4)),
    "retrain": tuple(
        results(SpiralHard__AWN=[run(100, 50)], **{f"SpiralHard__{SAME_DEPTH}": [run(score, 48)]})
        for score in (99.4, 99.6)
    ),
    "text": (translated(100, 1.57), translated(110, 1.57)),
}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.says)
def test_a_claim_holds_fails_or_is_not_run_by_its_numbers(claim: Claim) -> None:
    holds, fails = (claim.judge(case) for case in BY_EXPERIMENT[claim.experiment])
    assert holds is not None
    assert holds.holds
    assert fails is not None
    assert not fails.holds
    assert claim.judge(Results(())) is None


def test_a_smaller_network_that_is_worse_does_not_count() -> None:
    claims = [claim for claim in CLAIMS if claim.experiment == "anneal"]
    assert len(claims) == len(PRIORS) - 1
    for claim in claims:
        verdicts = [claim.judge(annealed(300, score)) for score in (99.0, 98.0)]  # 99.4 without the prior
        assert [verdict.holds for verdict in verdicts if verdict is not None] == [True, False]


@pytest.mark.parametrize("name", ["anneal", "truncate", "remove"])
def test_studies_go_by_the_last_epoch_and_not_by_the_kept_one(name: str) -> None:
    found = copy.deepcopy(BY_EXPERIMENT[name][0])
    for outcome in found.outcomes:
        for record in outcome["final"]:
            record |= {"test": {"accuracy": 0.1}, "widths": {"a": 10_000}}
    verdicts = [claim.judge(found) for claim in CLAIMS if claim.experiment == name]
    assert verdicts
    assert all(verdict is not None and verdict.holds for verdict in verdicts)


@pytest.mark.parametrize("spoilt", [removed(12, 0, 0.5), removed(25, 0, 0.61), removed(25, 30, 0.5)])
def test_each_part_of_the_claim_on_important_units_is_needed(spoilt: Results) -> None:
    (claim,) = [claim for claim in CLAIMS if claim.experiment == "remove"]
    verdict = claim.judge(spoilt)
    assert verdict is not None
    assert not verdict.holds


def test_a_family_that_does_not_learn_the_task_does_not_count() -> None:
    (claim,) = [claim for claim in CLAIMS if claim.experiment == "importance"]
    verdicts = [claim.judge(families(score, 400)) for score in (99.5, 99.4)]
    assert [verdict.holds for verdict in verdicts if verdict is not None] == [True, False]


def test_the_runs_of_a_model_selection_are_counted_where_there_are_no_others() -> None:
    judged = judge_claims(lambda name: BY_EXPERIMENT["quantile"][0] if name == "quantile" else Results(()))
    assert [claim.runs for claim in judged if claim.verdict != "not run"] == ["1 per case, of 2 epochs"]


def test_batches_are_compared_after_equal_steps_too() -> None:
    """512 samples, 2 epochs: batches of 256 make 4 steps, which batches of 64 have made in their first epoch."""
    runs = {64: [run(99, 100, first=150)], 256: [run(99, 140, first=300)]}
    assert equal_steps(runs) == {64: 1, 256: 2}
    (claim,) = [claim for claim in CLAIMS if claim.experiment == "batch"]
    verdict = claim.judge(results(**{f"SpiralHard__relu6, batch {size}": found for size, found in runs.items()}))
    assert verdict is not None
    assert verdict.found == "batch 64 to 256: 100, 140, ratio 1.40; after equal steps 150, 140, ratio 1.07"


def test_numbers_stand_beside_the_verdict() -> None:
    judged = judge_claims(lambda name: BY_EXPERIMENT[name][1] if name in ("table1", "start") else Results(()))
    said = {claim.claim: (claim.ours, claim.runs, claim.verdict) for claim in judged}
    assert said["Adaptive networks are as accurate as fixed ones"] == (
        "1 of 2: pol 98.0 / 99.0, MNIST 98.4 / 99.0 (worse)",
        "1–2 per case, of 2 epochs",
        "does not hold",
    )
    assert said["Under ReLU6 the width ends the same wherever it starts"][0] == "relu6: 20–200 → 100–130, ratio 1.30"
    assert said["Deep networks need Kaiming+"] == ("–", "–", "not run")


def test_fewer_parameters_at_a_higher_loss_do_not_count() -> None:
    (claim,) = [claim for claim in CLAIMS if claim.experiment == "text"]
    verdict = claim.judge(translated(10, 1.59))
    assert verdict is not None
    assert not verdict.holds
    assert verdict.found == "97.8 times fewer, loss 1.59; best fixed width 1024, loss 1.50"


def test_a_lower_loss_is_better() -> None:
    def of_loss(loss: float) -> list[dict[str, Any]]:
        return [{**run(0), "test": {"loss": loss}}]

    (accuracy, *_) = CLAIMS
    for loss, holds in ((1.4, True), (1.6, False)):
        verdict = accuracy.judge(results(Multi30k__AWN=of_loss(loss), Multi30k__Fixed=of_loss(1.5)))
        assert verdict is not None
        assert verdict.holds == holds
        assert f"Multi30k {loss:.2f} / 1.50" in verdict.found
