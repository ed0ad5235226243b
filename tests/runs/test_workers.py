"""Workers: tasks on processes of this machine, of which one may be killed, and all of which end with an interrupt."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

import pytest

from awn.errors import WorkerError
from awn.runs.workers import Tasks, local_workers


def test_a_process_that_is_killed_costs_only_its_own_task() -> None:
    with local_workers(2) as workers:
        tasks: Tasks[int] = Tasks(workers)
        for number in range(6):
            tasks.add(number, *((os._exit, 9) if number in (0, 3) else (divmod, 7, number)))
        found: dict[int, Any] = {}
        while len(tasks):
            found.update(tasks.finished())
    assert {number: found[number] for number in (1, 2, 4, 5)} == {n: divmod(7, n) for n in (1, 2, 4, 5)}
    for number in (0, 3):
        assert isinstance(found[number], WorkerError)
        assert "--resume" in str(found[number])


def test_an_interrupt_ends_the_processes() -> None:
    before, futures = set(multiprocessing.active_children()), []

    def interrupted() -> None:
        with local_workers(2) as workers:
            futures.extend([workers.submit(time.sleep, 600) for _ in range(2)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert set(multiprocessing.active_children()) <= before
    assert all(future.done() for future in futures)
