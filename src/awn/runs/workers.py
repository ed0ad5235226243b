"""Workers for many runs: processes on this machine, or a Ray cluster; both return futures."""

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

from awn.basics.extra import needs_extra
from awn.errors import ArgumentError, WorkerError

TaskT = TypeVar("TaskT")


@dataclass(frozen=True)
class Workers:
    """`submit(work, *args)` calls a function in a worker; `at_a_time` is the maximum number of pending calls."""

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
    """Processes on this machine; a single worker runs in this process.

    Each has its own pool: in a shared pool, a killed process would end the others.
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
    """A Ray cluster; `local` starts one here and stops it at the end.

    Ray repeats a run whose worker has died; other runs are not affected.
    """
    with needs_extra("running on Ray needs ray", "ray", "ray"):
        import ray
    try:
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
    except ConnectionError:
        raise ArgumentError(
            f"no Ray cluster answers at {address}. Check it there with `ray status`. If it requires a token, set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to the same values here."
        ) from None
    try:
        remote = ray.remote(num_cpus=threads, max_retries=3)(_call)
        # Ray has its own queue, which follows machines that join and leave.
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
            "its process was killed before it was done, perhaps because memory ran out. Use fewer --workers; the same "
            "command with --resume continues."
        )
    except Exception as error:
        return error
