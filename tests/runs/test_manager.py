"""The manager of many runs: each is found or made once, and kept; what befalls one is nothing to the others."""

from __future__ import annotations

from typing import Any

import pytest

from awn.errors import DataError
from awn.runs.manager import Failure, RunManager, RunRecipe, attempt
from awn.runs.workers import local_workers
from run_cases import square


class Squares(RunRecipe[int, int]):
    def __init__(self, finished: dict[int, int]) -> None:
        self.finished = finished
        self.kept: dict[int, int] = {}
        self.said: list[tuple[int, Any, int]] = []

    def find(self, run: int) -> int | None:
        return self.finished.get(run)

    def call(self, run: int) -> tuple[Any, ...]:
        return square, run

    def keep(self, run: int, returned: Any) -> int | Failure:
        if run == 6:
            return Failure("no result is there.")
        self.kept[run] = returned
        return int(returned)

    def say(self, run: int, outcome: int | Failure, left: int) -> None:
        self.said.append((run, outcome, left))


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_finished_is_found_and_the_rest_is_made_kept_and_told_once(workers: int) -> None:
    recipe = Squares({1: -1, 0: 0})  # a result that counts as false is a result
    with local_workers(workers) as crew:
        manager = RunManager(recipe, crew)
        for run in (0, 1, 2, 2, 7, 1):
            manager.ask(run)
        manager.finish()
        manager.ask(7)
        manager.finish()
    assert manager.results == {0: 0, 1: -1, 2: 4, 7: 49}
    assert recipe.kept == {2: 4, 7: 49}
    assert manager.made == 2
    assert manager.failures == {}
    assert sorted(run for run, _, _ in recipe.said) == [2, 7]
    assert recipe.said[-1][2] == 0


def test_a_run_that_fails_is_told_by_its_reason_and_the_others_go_on() -> None:
    recipe = Squares({})
    with local_workers(2) as crew:
        manager = RunManager(recipe, crew)
        for run in range(2, 9):
            manager.ask(run)
        manager.finish()
    assert manager.results == {2: 4, 7: 49, 8: 64}
    failures = manager.failures
    assert sorted(failures) == [3, 4, 5, 6]
    assert failures[3] == Failure("3 cannot be used.", refused=True)
    assert failures[4].says == "KeyError: 'four'"
    assert "Traceback" in failures[4].trace
    assert "process was killed" in failures[5].says
    assert failures[6] == Failure("no result is there.")
    assert {run for run, outcome, _ in recipe.said if isinstance(outcome, Failure)} == failures.keys()
    assert manager.made == 3


def test_a_file_that_is_missing_may_be_there_another_time() -> None:
    def fail(error: Exception) -> None:
        raise error

    assert attempt(fail, DataError("missing")) == Failure("missing")
    assert attempt(fail, OSError("full")) == Failure("full")
    with pytest.raises(KeyboardInterrupt):
        attempt(fail, KeyboardInterrupt())
