"""A manager of many runs: finding finished ones, giving the others to workers, and keeping the results."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from awn.errors import ArgumentError, AwnError, CheckpointError, TableError
from awn.runs.workers import Tasks, Workers

RunT = TypeVar("RunT", bound=Hashable)
ResultT = TypeVar("ResultT")
#: Takes a sentence for people.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Failure:
    """The reason why a run failed, and the traceback of an unexpected error.

    `refused` means that its input, an option or its folder cannot be used, so that a second try would fail too.
    `argument` is that of an `ArgumentError`.
    """

    says: str
    refused: bool = False
    argument: str | None = None
    trace: str = ""


class RunRecipe(ABC, Generic[RunT, ResultT]):
    """What a manager must know of the runs that it is asked for."""

    @abstractmethod
    def find(self, run: RunT) -> ResultT | None:
        """The result of a run that is finished."""

    @abstractmethod
    def call(self, run: RunT) -> tuple[Any, ...]:
        """What a worker calls to make a run: a function, and its arguments."""

    @abstractmethod
    def keep(self, run: RunT, returned: Any) -> ResultT | Failure:
        """Keep what the worker's call returned; its result."""

    @abstractmethod
    def say(self, run: RunT, outcome: ResultT | Failure, left: int) -> None:
        """Tell that a run has ended, while so many others are left."""


class RunManager(Generic[RunT, ResultT]):
    """Runs that were asked for: `results` and `failures` of those that have ended, and how many of them were `made`.

    >>> from awn.runs.workers import local_workers
    >>> class Halves(RunRecipe[int, float]):
    ...     def find(self, run):
    ...         return 0.0 if run == 0 else None
    ...     def call(self, run):
    ...         return divmod, run, 2
    ...     def keep(self, run, returned):
    ...         return returned[0] if returned[1] == 0 else Failure(f"{run} is odd.")
    ...     def say(self, run, outcome, left):
    ...         print(run, "→", outcome)
    >>> with local_workers(1) as workers:
    ...     manager = RunManager(Halves(), workers)
    ...     for number in (0, 6, 7, 6):
    ...         manager.ask(number)
    ...     manager.finish()
    6 → 3
    7 → Failure(says='7 is odd.', refused=False, argument=None, trace='')
    >>> manager.results, manager.made
    ({0: 0.0, 6: 3}, 1)
    """

    def __init__(self, recipe: RunRecipe[RunT, ResultT], workers: Workers) -> None:
        self._recipe = recipe
        self._tasks: Tasks[RunT] = Tasks(workers)
        self._asked: set[RunT] = set()
        self.results: dict[RunT, ResultT] = {}
        self.failures: dict[RunT, Failure] = {}
        self.made = 0

    def ask(self, run: RunT) -> None:
        """Have a run made when it is its turn, unless it is finished or was asked for before."""
        if run in self._asked:
            return
        self._asked.add(run)
        found = self._recipe.find(run)
        if found is None:
            self._tasks.add(run, attempt, *self._recipe.call(run))
        else:
            self.results[run] = found

    def collect(self) -> None:
        """Wait for runs to end, and store their outcomes."""
        for run, returned in self._tasks.finished():
            outcome = self._outcome(run, returned)
            if isinstance(outcome, Failure):
                self.failures[run] = outcome
            else:
                self.results[run] = outcome
                self.made += 1
            self._recipe.say(run, outcome, len(self._tasks))

    def finish(self) -> None:
        """Wait for all requested runs."""
        while len(self._tasks):
            self.collect()

    def _outcome(self, run: RunT, returned: Any) -> ResultT | Failure:
        if isinstance(returned, Failure):
            return returned
        if isinstance(returned, Exception):  # of the worker, not of the run
            return Failure((str(returned) or repr(returned)).splitlines()[0])
        return self._recipe.keep(run, returned)


def attempt(work: Callable[..., Any], *args: Any) -> Any:
    """Run a task in a worker. An exception is returned as a failure, because not every exception can be pickled.

    >>> attempt(divmod, 7, 2), attempt(divmod, 7, 0).says
    ((3, 1), 'ZeroDivisionError: ...')
    """
    try:
        return work(*args)
    except ArgumentError as error:
        return Failure(str(error), refused=True, argument=error.argument)
    except (AwnError, OSError) as error:
        return Failure(str(error), refused=isinstance(error, TableError | CheckpointError))
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", trace=traceback.format_exc())
