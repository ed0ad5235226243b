"""A manager of many runs: finding finished ones, giving the others to workers, and keeping the results."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from awn.errors import ArgumentError, AwnError, CheckpointError, TableError
from awn.runs.workers import Tasks, Workers

Run = TypeVar("Run", bound=Hashable)
Result = TypeVar("Result")
#: A function that shows a message.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Failure:
    """The reason why a run failed, and the traceback of an unexpected error.

    `refused` means that its input, an option, or the content of its folder is invalid, so repeating it is no use.
    """

    says: str
    refused: bool = False
    trace: str = ""


class RunRecipe(ABC, Generic[Run, Result]):
    """The functions that a manager needs for its runs."""

    @abstractmethod
    def find(self, run: Run) -> Result | None:
        """The result of a finished run; None for any other."""

    @abstractmethod
    def call(self, run: Run) -> tuple[Any, ...]:
        """The function, and its arguments, that a worker calls to make a run."""

    @abstractmethod
    def keep(self, run: Run, returned: Any) -> Result | Failure:
        """Store the return value of a worker's call; returns the result of the run."""

    @abstractmethod
    def say(self, run: Run, outcome: Result | Failure, left: int) -> None:
        """Show that a run has ended; `left` is the number of remaining runs."""


class RunManager(Generic[Run, Result]):
    """The requested runs: `results` and `failures` of those that have ended, and the number `made`.

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
    7 → Failure(says='7 is odd.', refused=False, trace='')
    >>> manager.results, manager.made
    ({0: 0.0, 6: 3}, 1)
    """

    def __init__(self, recipe: RunRecipe[Run, Result], workers: Workers) -> None:
        self._recipe = recipe
        self._tasks: Tasks[Run] = Tasks(workers)
        self._asked: set[Run] = set()
        self.results: dict[Run, Result] = {}
        self.failures: dict[Run, Failure] = {}
        self.made = 0

    def ask(self, run: Run) -> None:
        """Queue a run, unless it is finished or was requested before."""
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

    def _outcome(self, run: Run, returned: Any) -> Result | Failure:
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
    except (AwnError, OSError) as error:
        return Failure(str(error), refused=isinstance(error, ArgumentError | TableError | CheckpointError))
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", trace=traceback.format_exc())
