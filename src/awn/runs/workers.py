"""Workers: who makes many runs. Processes on this machine, or a Ray cluster; both give futures."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from awn.errors import ArgumentError, MissingExtraError, WorkerError

TaskT = TypeVar("TaskT")


@dataclass(frozen=True)
class Workers:
    """`submit(work, *args)` has one of them call a function; `at_a_time` is how many calls they are to be given."""

    submit: Callable[..., Future[Any]]
    at_a_time: int


_RAYS_QUEUE = 1000


class Tasks(Generic[TaskT]):
    """Tasks that wait for workers, or are under way.

    >>> with local_workers(1) as workers:
    ...     tasks = Tasks(workers)
    ...     for number in (2, 0):
    ...         tasks.add(number, divmod, 7, number)
    ...     while len(tasks):
    ...         print(*tasks.finished())
    (2, (3, 1))
    (0, ZeroDivisionError('integer division or modulo by zero'))
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._queue: deque[tuple[TaskT, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._running: dict[Future[Any], TaskT] = {}

    def __len__(self) -> int:
        return len(self._queue) + len(self._running)

    def add(self, task: TaskT, work: Callable[..., Any], *args: Any) -> None:
        """Have `work(*args)` called when it is its turn."""
        self._queue.append((task, work, args))

    def finished(self) -> list[tuple[TaskT, Any]]:
        """Wait for tasks to end, and tell what each has returned, or the exception that it ended with."""
        while self._queue and len(self._running) < self._workers.at_a_time:
            task, work, args = self._queue.popleft()
            self._running[self._workers.submit(work, *args)] = task
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        return [(self._running.pop(future), _outcome(future)) for future in done]


@contextmanager
def local_workers(number: int) -> Iterator[Workers]:
    """Processes on this machine; a single one works in the process itself.

    Each is a pool of its own: in a common one a process that is killed would take the others with it.
    """
    if number == 1:
        yield Workers(_at_once, 1)
        return
    others = set(multiprocessing.active_children())
    pools = [_one_process() for _ in range(number)]
    free: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
    for pool in pools:
        free.put(pool)

    def submit(work: Callable[..., Any], *args: Any) -> Future[Any]:
        pool = free.get()

        def release(done: Future[Any]) -> None:
            if not done.cancelled() and isinstance(done.exception(), BrokenProcessPool):
                fresh = _one_process()
                pools.append(fresh)
                free.put(fresh)
            else:
                free.put(pool)

        future = pool.submit(work, *args)
        future.add_done_callback(release)
        return future

    try:
        yield Workers(submit, number)
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        for pool in list(pools):
            pool.shutdown(cancel_futures=True)


@contextmanager
def ray_workers(address: str, threads: int = 1) -> Iterator[Workers]:
    """A Ray cluster, or with `local` one that is started here and ended with the work.

    Ray makes a run again whose worker has died; runs of other workers are not touched.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingExtraError('running on Ray needs ray: pip install "awn[ray]"') from None
    try:
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
    except ConnectionError:
        raise ArgumentError(
            f"no Ray cluster answers at {address}. `ray status` there says whether it is up; if it asks for a token, "
            "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here as they are there."
        ) from None
    try:
        remote = ray.remote(num_cpus=threads, max_retries=3)(_call)
        # Ray has a queue of its own, which sees machines come and go.
        yield Workers(lambda work, *args: remote.remote(work, *args).future(), _RAYS_QUEUE)
    finally:
        ray.shutdown()


def _call(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


def _one_process() -> ProcessPoolExecutor:
    # Not forked: a fork of a process in which torch has run threads may hang. An interrupt at the keyboard reaches
    # every process; it is ours to answer, and to end the others.
    return ProcessPoolExecutor(
        1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )


def _at_once(work: Callable[..., Any], *args: Any) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(work(*args))
    except Exception as error:
        future.set_exception(error)
    return future


def _outcome(future: Future[Any]) -> Any:
    try:
        return future.result()
    except BrokenProcessPool:
        return WorkerError(
            "its process was killed before it was done, perhaps for want of memory. Fewer --workers need less; the "
            "same command with --resume goes on."
        )
    except Exception as error:
        return error
