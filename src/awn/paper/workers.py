"""Workers: who makes the runs. Processes on this machine, or a Ray cluster; both give futures."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from awn.errors import MissingExtraError
from awn.paper.run import Job, Record, train


@dataclass(frozen=True)
class Workers:
    """A function that has a run made, and how many runs it is to be given at a time."""

    submit: Callable[[Job, Path | None, bool], Future[Record]]
    at_a_time: int


_RAYS_QUEUE = 1000


def make(job: Job, scratch: Path | None, resume: bool) -> Record:
    """What a worker does: one run, with one thread."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # deep networks without Kaiming+ die out, and tiny numbers are slow
    return train(job, scratch, resume=resume)


@contextmanager
def local_workers(workers: int) -> Iterator[Workers]:
    """Processes on this machine; a single one works in the process itself."""
    if workers == 1:
        yield Workers(_at_once, 1)
        return
    # Not forked: a fork of a process in which torch has run threads may hang.
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield Workers(lambda job, scratch, resume: pool.submit(make, job, scratch, resume), workers)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def ray_workers(address: str, work: Callable[[Job, Path | None, bool], Record] = make) -> Iterator[Workers]:
    """A Ray cluster, or with `local` one that is started here and ended with the sweep.

    Ray makes a run again whose worker has died; runs of other workers are not touched.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingExtraError('running on Ray needs ray: pip install "awn[ray]"') from None
    ray.init(address=None if address == "local" else address, log_to_driver=False, include_dashboard=False)
    try:
        remote = ray.remote(num_cpus=1, max_retries=3)(work)
        # Ray has a queue of its own, which sees machines come and go.
        yield Workers(lambda job, scratch, resume: remote.remote(job, scratch, resume).future(), _RAYS_QUEUE)
    finally:
        ray.shutdown()


def _at_once(job: Job, scratch: Path | None, resume: bool) -> Future[Record]:
    future: Future[Record] = Future()
    try:
        future.set_result(make(job, scratch, resume))
    except Exception as error:
        future.set_exception(error)
    return future
