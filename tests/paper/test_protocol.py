"""The protocol: what is selected and retrained, what a search asks for, and that a sweep never repeats a run."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from awn.core.families import Exponential
from awn.core.groups import find_groups
from awn.errors import ArgumentError, NonFiniteError
from awn.loss.prior import Anneal
from awn.runs.workers import Workers, local_workers, ray_workers
from awn.training import Callback, History, Progress, fit
from awn_paper import run as run_module
from awn_paper.data import load
from awn_paper.models import MLP, Fixed, Learned, LearnedInOrder, build
from awn_paper.protocol import Case, Experiment, Finished, OfTotal, Protocol, Retrained, Searched, Stages, best_of
from awn_paper.run import Job, Record, train
from awn_paper.search import make_proposer
from awn_paper.settings import OneCycle, Settings, Training, fingerprint
from awn_paper.store import Store, slug
from awn_paper.sweep import SweepError, make
from paper_cases import run_here, run_with

TINY = Settings("DoubleMoon", MLP(), Fixed(4), Training(2, 1024))
ADAPTIVE = TINY.change(widths=Learned(Exponential(rate=0.1, scale="mass")))


def experiment(*cases: Case, seeds: int = 2) -> Experiment:
    protocol = Protocol(cases, seeds, "tiny.")
    return Experiment("tiny", "Tiny", "A test.", protocol, protocol)


def scored(job: Job, score: float | None) -> Finished:
    if score is None:
        return Finished(job, {"failed": "lost"})
    learned = {f"hidden{n}": 5 for n in range(job.settings.network.layers)}
    return Finished(job, {"validation": {"score": score, "loss": 0.0}, "widths": learned})


def play(stages: Stages, score) -> tuple[list[list[Job]], object]:
    """Answer every stage by scores that a function gives."""
    asked, answer = [], None
    try:
        while True:
            jobs = list(stages.send(answer))
            asked.append(jobs)
            answer = [scored(job, score(job)) for job in jobs]
    except StopIteration as end:
        return asked, end.value


# Settings


def test_settings_that_differ_anywhere_have_other_names():
    varied = [
        ADAPTIVE,
        TINY,
        ADAPTIVE.change(quantile=0.5),
        ADAPTIVE.change(importance=Exponential(rate=0.2, scale="mass")),
        ADAPTIVE.change(width_mean=0.05, width_scale=Anneal(1.0, 0.1, 1, 2)),
        ADAPTIVE.change(epochs=3),
        ADAPTIVE.change(fold=1),
        ADAPTIVE.change(measure=("truncation",)),
    ]
    keys = [Job(settings, seed, final).key for settings in varied for seed in (0, 1) for final in (True, False)]
    assert len(set(keys)) == len(keys)
    assert fingerprint(TINY) == fingerprint(Settings("DoubleMoon", MLP(), Fixed(4), Training(2, 1024)))


def test_a_field_that_no_part_has_is_refused():
    with pytest.raises(ArgumentError, match="no part of the settings has a field 'quantile'"):
        TINY.change(quantile=0.5)


# Stages


def test_the_best_of_a_grid_is_retrained_with_every_seed_and_only_then_tested():
    grid = TINY.vary(units=(4, 8, 16))
    asked, outcome = play(
        Case("Fixed", grid).stages(3), lambda job: {4: 0.1, 8: 0.9, 16: 0.9}[job.settings.widths.units]
    )
    assert [(job.settings, job.final) for job in asked[0]] == [(settings, False) for settings in grid]
    assert [(job.settings, job.seed, job.final) for job in asked[1]] == [(grid[1], seed, True) for seed in range(3)]
    assert outcome.chosen == grid[1]  # the first of equally good ones


def test_of_equally_good_configurations_the_one_with_the_lowest_loss_is_chosen():
    grid = TINY.vary(units=(4, 8, 16))
    runs = [
        Finished(Job(settings, 0, final=False), {"validation": {"score": score, "loss": loss}})
        for settings, score, loss in zip(grid, (1.0, 1.0, 0.9), (0.3, 0.1, 0.0), strict=True)
    ]
    assert best_of(runs).job.settings == grid[1]
    assert best_of([scored(Job(grid[2], 0, final=False), None), *runs]).job.settings == grid[1]


def test_with_one_entry_there_is_nothing_to_select():
    asked, _ = play(Case("AWN", (ADAPTIVE,)).stages(2), lambda job: 0.5)
    assert [[job.final for job in jobs] for jobs in asked] == [[True, True]]


def test_a_case_may_have_a_number_of_seeds_of_its_own_until_the_caller_gives_one():
    protocol = Protocol((Case("AWN", (ADAPTIVE,), seeds=1),), 10, "tiny.")
    asked, _ = play(protocol.cases[0].stages(protocol.seeds), lambda job: 0.5)
    assert len(asked[0]) == 1
    changed = protocol.with_seeds(4)
    asked, _ = play(changed.cases[0].stages(changed.seeds), lambda job: 0.5)
    assert len(asked[0]) == 4
    assert set(changed.details.values()) == {"Final runs here: 4."}


def test_a_run_whose_loss_is_lost_is_never_chosen():
    grid = TINY.vary(units=(4, 8))
    _, outcome = play(Case("Fixed", grid).stages(1), lambda job: None if job.settings.widths.units == 4 else -3.0)
    assert outcome.chosen == grid[1]


def test_fixed_plus_leaves_out_adaptive_runs_whose_loss_is_lost():
    case = Retrained("Fixed+", Case("AWN", (ADAPTIVE,)), Case("Fixed", (TINY,)))
    asked, outcome = play(case.stages(2), lambda job: None if "rate" in str(job.settings) and job.seed == 0 else 0.5)
    assert outcome.chosen == TINY.change(units=5)
    assert [job.settings for job in asked[-1]] == [outcome.chosen] * 2
    _, none = play(case.stages(2), lambda job: None if "rate" in str(job.settings) else 0.5)
    assert none.final == ()


def test_a_network_of_a_total_width_has_the_settings_of_the_best_adaptive_one():
    """Also where the best fixed one has another depth, by which the total would be missed."""
    adaptive = Case("AWN", ADAPTIVE.vary(layers=(1, 4)))
    _, outcome = play(OfTotal("total 50", adaptive, 50).stages(1), lambda job: job.settings.network.layers)
    assert outcome.chosen == ADAPTIVE.change(layers=4, widths=Fixed(12))
    assert len(outcome.final) == 1
    _, none = play(OfTotal("total 50", adaptive, 50).stages(1), lambda job: None)
    assert none.final == ()


# Search


@pytest.mark.parametrize("kind", ["grid", "random", "local", "bayes"])
def test_a_search_keeps_to_its_budget_and_its_range(kind):
    widths = (8, 16, 24, 128, 256)
    asked, outcome = play(
        Searched(kind, TINY, kind, widths).stages(1), lambda job: -abs(job.settings.widths.units - 24)
    )
    tried = [job.settings.widths.units for jobs in asked[:-1] for job in jobs]
    assert 0 < len(tried) <= 5
    assert len(set(tried)) == len(tried), "a width that was tried is not tried again"
    assert all(8 <= units <= 256 for units in tried)
    best = max(tried, key=lambda units: -abs(units - 24))
    assert outcome.chosen.widths.units == best
    assert [job.settings.widths.units for job in asked[-1]] == [best]
    if kind == "grid":
        assert sorted(tried) == list(widths)


@pytest.mark.parametrize("top", range(5))
def test_local_search_climbs_to_the_top_of_a_hill(top):
    widths = [1, 2, 3, 4, 5]
    propose, tried = make_proposer("local", widths, seed=3), []
    for _ in range(12):
        units = propose(tried)
        tried.append((units, (-abs(units - widths[top]), 0.0)))
    assert units == widths[top]


def test_local_search_goes_by_the_loss_where_scores_are_equal():
    propose, tried = make_proposer("local", [1, 2, 3], seed=0), []
    for _ in range(5):
        units = propose(tried)
        tried.append((units, (1.0, -abs(units - 3.0))))
    assert units == 3


def test_a_run_that_a_search_comes_back_to_counts_once():
    asked, outcome = play(Searched("local", TINY, "local", (8, 16)).stages(1), lambda job: 0.5)
    tried = [job.key for jobs in asked[:-1] for job in jobs]
    assert [run.job.key for run in outcome.selection] == tried
    assert len(tried) == 2


# Runs


def test_a_run_says_everything_about_itself():
    record = train(
        Job(ADAPTIVE.change(measure=("truncation", "repaired", "removal", "activations", "variance")), 3, final=True)
    )
    json.dumps(record, allow_nan=False)
    assert record["seed"] == 3
    assert record["settings"]["widths"]["importance"] == {"kind": "Exponential", "scale": "mass", "rate": 0.1}
    assert record["data"]["train"] == 3600
    assert record["epochs"] == len(record["history"]["epoch"]) == 2
    assert {"commit", "date", "torch", "command"} <= record["from"].keys()
    units = record["widths"]["hidden.0"]
    assert record["history"]["widths"]["hidden.0"][record["best_epoch"] - 1] == units
    last = record["last"]
    assert last["widths"]["hidden.0"] == record["history"]["widths"]["hidden.0"][-1]
    assert last["validation"]["score"] == pytest.approx(record["history"]["score"][-1], rel=1e-4)
    assert last["measured"]["removal"]["first"][0] == last["test"]["accuracy"]
    measured = record["measured"]
    assert measured["truncation"]["importance"][0] == measured["truncation"]["random"][0] == record["test"]["accuracy"]
    assert measured["removal"]["first"][0] == measured["repaired"]["importance"][0] == record["test"]["accuracy"]
    assert len(measured["removal"]["each"]) == len(measured["activations"]["hidden.0"]["mean"]) == units


def test_the_last_epoch_is_recorded_beside_the_kept_one():
    """The learning rate is too large for the network to end with its best epoch."""
    record = train(Job(ADAPTIVE.change(dataset="Spiral", epochs=12, lr=0.1), 0, final=True))
    assert record["best_epoch"] < 12, "the last epoch is kept, so the test says nothing"
    scores = dict(zip(record["history"]["epoch"], record["history"]["score"], strict=True))
    assert record["validation"]["score"] == pytest.approx(scores[record["best_epoch"]], rel=1e-4)
    assert record["last"]["validation"]["score"] == pytest.approx(scores[12], rel=1e-4)
    assert record["last"]["test"] != record["test"]


def test_networks_trained_in_order_keep_their_own_name_and_use_prefixes():
    fields = {field.name: getattr(ADAPTIVE.widths, field.name) for field in dataclasses.fields(ADAPTIVE.widths)}
    ordered = ADAPTIVE.change(widths=LearnedInOrder(**fields))
    assert Job(ordered, 0, final=True).key != Job(ADAPTIVE, 0, final=True).key
    model = build(ordered.network, load("DoubleMoon"), ordered.widths)
    assert [group.width.ordered for group in find_groups(model)] == [0.5]


def test_a_run_of_a_seed_is_the_same_whenever_it_is_made():
    one, two, other = (train(Job(ADAPTIVE, seed, final=True)) for seed in (0, 0, 1))
    for part in ("validation", "test", "widths"):
        assert one[part] == two[part]
    assert one["test"] != other["test"]


def test_model_selection_never_sees_the_test_part_and_draws_its_own_parts():
    selecting, final = (train(Job(TINY, 0, final=final)) for final in (False, True))
    assert selecting["test"] is None
    assert selecting["data"]["test"] is None
    assert (selecting["data"]["train"], selecting["data"]["validation"]) == (3600, 400)
    assert selecting["data"]["checksum"] != final["data"]["checksum"]


def test_a_loss_that_is_lost_is_a_result(monkeypatch):
    def lose(*_: object, **__: object) -> None:
        raise NonFiniteError("the loss is not finite")

    monkeypatch.setattr(run_module, "fit", lose)
    record = train(Job(TINY, 0, final=True))
    assert record["failed"] == "the loss is not finite"
    assert "test" not in record


class StopAfter(Callback):
    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_epoch_end(self, progress: Progress) -> None:
        if progress.epoch > self.epochs:  # the checkpoint of the epoch before is written
            raise KeyboardInterrupt


FALLING = {"milestones": {"milestones": (2, 4)}, "plateau": {"plateau": 1, "lr": 1e-6}}  # which hardly learns


@pytest.mark.parametrize("falling", FALLING.values(), ids=FALLING)
def test_a_run_that_was_stopped_goes_on_and_ends_as_if_it_had_not_been(monkeypatch, tmp_path, falling):
    job = Job(ADAPTIVE.change(epochs=8, **falling), 0, final=True)
    rates: list[list[float]] = []

    def noting(*args: Any, **options: Any) -> History:
        history = fit(*args, **options)
        rates.append(history.column("lr"))
        return history

    monkeypatch.setattr(run_module, "fit", noting)
    whole = train(job)
    monkeypatch.setattr("awn.training.run._SECONDS_BETWEEN_CHECKPOINTS", -1.0)

    def stopping(*args: Any, callbacks: list[Callback], **options: Any) -> History:
        return fit(*args, callbacks=[*callbacks, StopAfter(4)], **options)

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "fit", stopping)
        with pytest.raises(KeyboardInterrupt):
            train(job, tmp_path)
    assert len(History.load(tmp_path / "history.jsonl")) == 5
    resumed = train(job, tmp_path, resume=True)
    assert rates[0] == rates[1]
    assert rates[0][-1] < rates[0][0], "the rate never fell, so the test says little"
    for part in ("validation", "test", "widths", "last", "history"):
        assert resumed[part] == whole[part]


def test_the_learning_rate_falls_at_milestones_or_on_plateaus_and_not_by_both():
    training = TINY.change(lr=0.1, milestones=(1, 3), factor=0.5).training
    rates = [training.lr * training.schedule.relative_rate([0.0] * epoch) for epoch in range(5)]
    assert rates == pytest.approx([0.1, 0.05, 0.05, 0.025, 0.025])
    training = TINY.change(plateau=2, factor=0.5).training
    assert training.schedule.relative_rate([1.0] * 7) == 0.25
    assert TINY.training.schedule == "constant"
    with pytest.raises(ArgumentError, match="by milestones or by plateaus"):
        TINY.change(milestones=(1,), plateau=2)


def test_one_cycle_rises_and_falls():
    schedule = OneCycle(6, warmup=2).schedule
    rates = [schedule.relative_rate([0.0] * epoch) for epoch in range(7)]
    assert rates.index(max(rates)) == 2
    assert rates[:3] == sorted(rates[:3])
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[-1] == pytest.approx(0.01)


# Sweeps


def test_a_sweep_that_was_killed_goes_on_and_repeats_nothing(tmp_path):
    tested = experiment(Case("AWN", (ADAPTIVE,)), Case("Fixed", TINY.vary(units=(4, 8))))
    calls: list[Job] = []

    def dying(attempt: Any, work: Any, job: Job, *args: Any):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(job)
        with local_workers(1) as workers:
            return workers.submit(attempt, work, job, *args)

    with pytest.raises(KeyboardInterrupt):
        run_with(Workers(dying, 1), tested, tested.small, tmp_path)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("runs/*/*.json")}
    assert len(files) == 3
    outcomes, sweep = run_here(tested, tested.small, tmp_path)
    assert sweep.made == 6 - 3
    assert all(path.stat().st_mtime_ns == before for path, before in files.items())
    assert {len(outcome.final) for outcome in outcomes} == {2}
    assert not list(tmp_path.rglob("*.unfinished"))
    assert run_here(tested, tested.small, tmp_path)[1].made == 0


def test_cases_that_ask_for_the_same_run_share_it(tmp_path):
    tested = experiment(Case("one", (TINY,)), Case("two", (TINY,)))
    outcomes, sweep = run_here(tested, tested.small, tmp_path)
    assert sweep.made == 2
    assert outcomes[0].final == outcomes[1].final


def test_processes_find_what_one_process_finds(tmp_path):
    tested = experiment(Case("AWN", (ADAPTIVE,)))
    with local_workers(2) as workers:
        there, _ = run_with(workers, tested, tested.small, tmp_path / "two")
    here, _ = run_here(tested, tested.small, tmp_path / "one")
    for one, other in zip(here[0].final, there[0].final, strict=True):
        assert one.record["test"] == other.record["test"]
        assert other.record["from"]["threads"] == 1


def test_a_run_that_cannot_be_made_is_named_and_the_others_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("AWN_DATA", str(tmp_path / "nowhere"))
    tested = experiment(Case("Fixed", (TINY,)), Case("Fixed", (TINY.change(dataset="pol"),)))
    with pytest.raises(SweepError, match=r"not all runs could be made. pol: .*201_pol.tsv.gz is missing"):
        run_here(tested, tested.small, tmp_path)
    assert len(list(tmp_path.rglob("runs/doublemoon/*.json"))) == 2


def test_a_fault_of_ours_is_told_with_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr("awn_paper.sweep.train", lambda *_, **__: 1 / 0)
    tested, told = experiment(Case("Fixed", (TINY,))), []
    with pytest.raises(SweepError, match="DoubleMoon: ZeroDivisionError: division by zero What is finished is kept"):
        run_here(tested, tested.small, tmp_path, tell=told.append)
    assert "Traceback" in told[0]


def test_jobs_are_equal_if_their_files_have_the_same_name():
    one, other = Job(TINY, 0, final=True), Job(TINY.change(units=4), 0, final=True)
    assert one == other
    assert {one: "kept"}[other] == "kept"
    # 1 == 1.0, and yet the two are written as different settings.
    assert Job(TINY.change(lr=1), 0, final=True) != Job(TINY.change(lr=1.0), 0, final=True)


def test_a_protocol_can_be_cut_to_one_data_set():
    protocol = Protocol((Case("a", (TINY,)), Case("a", (TINY.change(dataset="Spiral"),))), 1, "tiny.")
    assert protocol.part("spiral").datasets == ("Spiral",)
    with pytest.raises(ArgumentError, match="There are: DoubleMoon, Spiral"):
        protocol.part("MNIST")


def test_a_protocol_can_be_cut_to_labels_that_match():
    protocol = Protocol(tuple(Case(label, (TINY,)) for label in ("relu, rate 1", "relu, rate 2", "tanh")), 1, "tiny.")
    assert [case.label for case in protocol.part(label="relu, *").cases] == ["relu, rate 1", "relu, rate 2"]
    with pytest.raises(ArgumentError, match=r"matches 'elu'\. There are: 'relu, rate 1', 'relu, rate 2', 'tanh'"):
        protocol.part(label="elu")


def test_a_selection_of_few_epochs_leaves_the_final_runs_their_own():
    grid = TINY.vary(units=(4, 8))
    case = Case("Fixed", grid, selected_in=1)
    asked, outcome = play(case.stages(2), lambda job: float(job.settings.widths.units))
    assert [job.settings for job in asked[0]] == [settings.change(epochs=1) for settings in grid]
    assert [job.settings for job in asked[1]] == [grid[1]] * 2
    assert outcome.chosen == grid[1]


def test_configurations_without_final_runs_may_be_repeated():
    grid = TINY.vary(units=(4, 8))
    asked, outcome = play(Case("Fixed", grid, repeats=3).stages(0), lambda job: float(job.seed))
    assert [(job.settings, job.seed) for job in asked[0]] == [
        (settings, seed) for seed in range(3) for settings in grid
    ]
    assert len(outcome.selection) == 6
    assert outcome.final == ()


def test_a_selection_on_one_fold_serves_another():
    grid = TINY.change(fold=3).vary(units=(4, 8))
    asked, outcome = play(Case("Fixed", grid, selected_on=0).stages(1), lambda job: float(job.settings.widths.units))
    assert [job.settings for job in asked[0]] == [settings.change(fold=0) for settings in grid]
    assert [job.settings for job in asked[1]] == [grid[1]] == [outcome.chosen]


def test_outcomes_come_back_with_their_records(tmp_path):
    tested = experiment(Case("Fixed", TINY.vary(units=(4, 8))), seeds=1)
    run_here(tested, tested.small, tmp_path)
    (found,) = Store(tmp_path).outcomes(tested, "small")
    assert [record["final"] for record in found["selection"]] == [False, False]
    assert found["final"][0]["test"]["accuracy"] > 0.4
    assert found["says"] == "tiny."
    assert slug("Fixed+") == "fixed-plus"


def test_fewer_final_runs_leave_a_fuller_outcome_as_it_is(tmp_path):
    tested = experiment(Case("Fixed", (TINY,)), seeds=2)
    run_here(tested, tested.small, tmp_path)
    run_here(tested, tested.small.with_seeds(1), tmp_path)
    (found,) = Store(tmp_path).outcomes(tested, "small")
    assert (len(found["final"]), found["says"]) == (2, "tiny.")
    run_here(tested, tested.small.with_seeds(3), tmp_path)
    (found,) = Store(tmp_path).outcomes(tested, "small")
    assert len(found["final"]) == 3


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_on_ray_a_worker_that_is_killed_costs_only_its_own_run(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed: pip install awn[ray]")
    notes = tmp_path / "notes"
    notes.mkdir()

    def noting(job: Job, scratch: Path | None, resume: bool) -> Record:
        (notes / f"{job.key}.{os.getpid()}.{time.monotonic_ns()}").touch()
        if job.seed == 0 and len(list(notes.glob(f"{job.key}.*"))) == 1:
            time.sleep(60)  # in the middle of its run when it is killed
        return make(job, scratch, resume)

    def killing(attempt: Any, _: Any, job: Job, *args: Any):
        future = workers.submit(attempt, noting, job, *args)
        if job.seed == 1:  # the second of the two: both are under way
            (first,) = wait_for(notes, "*.*.*", lambda found: [p for p in found if p.name.startswith(slow.key)])
            os.kill(int(first.name.split(".")[1]), signal.SIGKILL)
        return future

    tested = experiment(Case("AWN", (ADAPTIVE,)))
    slow = Job(ADAPTIVE, 0, final=True)
    with ray_workers("local") as workers:
        outcomes, sweep = run_with(Workers(killing, 2), tested, tested.small, tmp_path / "results")
    assert sweep.made == 2
    begun = {job: len(list(notes.glob(f"{Job(ADAPTIVE, job, final=True).key}.*"))) for job in (0, 1)}
    assert begun == {0: 2, 1: 1}
    expected = train(slow)
    assert outcomes[0].final[0].record["test"] == expected["test"]


def wait_for(folder: Path, pattern: str, wanted, seconds: float = 180.0) -> list[Path]:
    """The files that are wanted, as soon as there are any."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = wanted(list(folder.glob(pattern)))
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing appeared in {folder} within {seconds} s")


def test_a_worker_uses_one_thread():
    torch.set_num_threads(2)
    try:
        assert make(Job(TINY, 0, True), None, False)["from"]["threads"] == 1
    finally:
        torch.set_num_threads(1)
