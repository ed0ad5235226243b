"""The process group of torchrun."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

# gloo's threads may still hold the tensors of the last collective. If one of them releases a tensor while Python is
# shutting down, the process aborts (torch 2.13), so they get time to do so before.
_SECONDS_TO_RELEASE = 0.25


@contextmanager
def torchrun_group() -> Iterator[int]:
    """Join torchrun's process group for the duration of a block; yields the rank of this process.

    Without torchrun there is no group, and the rank is 0.

    >>> with torchrun_group() as rank:
    ...     print(rank, several_ranks())
    0 False
    """
    if not (dist.is_available() and dist.is_torchelastic_launched()):
        yield 0
        return
    from torch.distributed.rendezvous import rendezvous

    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    store, rank, ranks = next(rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torch keeps the addresses of processes that have ended, so each start gets its own prefix. On several machines
        # each counts its own starts.
        store = dist.PrefixStore(f"start {times_restarted()}", store)  # type: ignore[attr-defined]
    # Both, where there is a GPU: the model may be on the CPU all the same.
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    try:
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()
    # Not after an error, which has to be printed before torchrun ends this process.
    time.sleep(_SECONDS_TO_RELEASE)


def times_restarted() -> int:
    """The number of times that torchrun has restarted the processes after a failure.

    >>> times_restarted()
    0
    """
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def several_ranks() -> bool:
    """Whether this process is one of several.

    >>> several_ranks()
    False
    """
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_first() -> bool:
    """Whether this process is rank 0 or the only one: it writes files and prints.

    >>> is_first()
    True
    """
    return not several_ranks() or dist.get_rank() == 0


def wait_for_all() -> None:
    """Wait until all processes have reached this point.

    >>> wait_for_all()      # a single process: returns at once
    """
    if several_ranks():
        dist.barrier()
