"""Collectives: a model in a DistributedDataParallel keeps the same widths and units in every process.

DDP averages the gradients, including ν's, so every rank's ν asks for the same width. Three tasks remain between two
steps: check that the ranks agree, broadcast the new units that rank 0 has drawn, and rebuild DDP's reducer if
Parameters were replaced. Otherwise the gradients of new Parameters would stay unreduced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from awn.errors import AwnError, RankError
from awn.parallel.unwrap import parallel_of


def rank_of(model: nn.Module) -> int:
    """The rank of this process in the group that trains the model; 0 without a DistributedDataParallel.

    >>> rank_of(nn.Linear(2, 2))
    0
    """
    parallel = parallel_of(model)
    return 0 if parallel is None else dist.get_rank(parallel.process_group)


def ranks_of(model: nn.Module) -> int:
    """The number of processes that train the model; 1 without a DistributedDataParallel.

    >>> ranks_of(nn.Linear(2, 2))
    1
    """
    parallel = parallel_of(model)
    return 1 if parallel is None else dist.get_world_size(parallel.process_group)


def check_in_step(model: nn.Module, widths: Mapping[str, Sequence[int]]) -> None:
    """Raise on every rank if the ranks differ in the present width, next width or next capacity of a layer.

    This takes one small collective at every `resize_`. If only ranks with a change took part, a single rank that
    changed would wait for the others forever.
    """
    parallel = parallel_of(model)
    if parallel is None:
        return
    if parallel._join_config.enable:
        raise RankError(
            "widths cannot change inside DistributedDataParallel.join(): ranks that have run out of batches take no "
            "part in it. Give every rank the same number of batches, with a DistributedSampler, and do not use join()."
        )
    own = torch.tensor(list(widths.values()), device=parallel.device)
    every = [torch.empty_like(own) for _ in range(ranks_of(parallel))]
    with reaching_all(parallel):
        dist.all_gather(every, own, group=parallel.process_group)
    if all(torch.equal(every[0], other) for other in every[1:]):
        return
    for rank, said in enumerate(every):
        for layer, here, there in zip(widths, said.tolist(), every[0].tolist(), strict=True):
            if here != there:
                raise RankError(
                    f"the ranks are out of step: layer {layer!r} has {here[0]} units and goes to {here[1]} on rank "
                    f"{rank}, but {there[0]} and {there[1]} on rank 0, in a capacity of {here[2]} "
                    f"and {there[2]}. Nothing was changed. Was the model, or its ν, "
                    "changed on some ranks alone, or do their optimizers differ? Resume from a checkpoint on all ranks."
                )


def share_(model: nn.Module, tensors: Iterable[Tensor]) -> None:
    """Broadcast the values of rank 0 to every rank."""
    parallel = parallel_of(model)
    if parallel is not None:
        first = dist.get_global_rank(parallel.process_group, 0)
        with reaching_all(parallel):
            for work in [dist.broadcast(t, first, group=parallel.process_group, async_op=True) for t in tensors]:
                work.wait()


def told(model: nn.Module, numbers: Callable[[], Sequence[float]], how_many: int) -> list[float]:
    """Compute numbers on rank 0 and broadcast them to all ranks.

    >>> told(nn.Linear(2, 2), lambda: [0.5, 1.0], how_many=2)
    [0.5, 1.0]
    """
    parallel = parallel_of(model)
    if parallel is None:
        return list(numbers())
    found = numbers() if rank_of(parallel) == 0 else [0.0] * how_many
    shared = torch.tensor(found, dtype=torch.float64, device=parallel.device)
    share_(parallel, [shared])
    heard: list[float] = shared.tolist()
    return heard


def tensors_of_first(model: nn.Module, make: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Make named tensors on rank 0 and send them to all ranks. The others wait.

    Their names, types and shapes go first, as JSON: other ways to send objects use pickle.

    >>> tensors_of_first(nn.Linear(2, 2), lambda: {"units": torch.tensor(3)})
    {'units': tensor(3)}
    """
    parallel = parallel_of(model)
    if parallel is None:
        return dict(make())
    first, device = rank_of(parallel) == 0, parallel.device
    made = {name: tensor.detach().to(device).contiguous() for name, tensor in make().items()} if first else {}
    kinds = [[name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in made.items()]
    text = list(json.dumps(kinds).encode())
    length = int(told(parallel, lambda: [len(text)], 1)[0])
    sent = torch.tensor(text, dtype=torch.uint8) if first else torch.empty(length, dtype=torch.uint8)
    sent = sent.to(device)
    share_(parallel, [sent])
    if not first:
        kinds = json.loads(bytes(sent.tolist()))
        made = {name: torch.empty(shape, dtype=getattr(torch, kind), device=device) for name, kind, shape in kinds}
    # As bytes: not every backend sends every type.
    share_(parallel, [tensor.view(-1).view(torch.uint8) for tensor in made.values() if tensor.numel()])
    return made


def average_(model: nn.Module, tensor: Tensor) -> Tensor:
    """Replace a tensor by its mean over the ranks; without a DistributedDataParallel it is unchanged."""
    parallel = parallel_of(model)
    if parallel is not None:
        with reaching_all(parallel):
            dist.all_reduce(tensor, group=parallel.process_group)
        tensor /= ranks_of(parallel)
    return tensor


@contextmanager
def reaching_all(model: nn.Module) -> Iterator[None]:
    """Turn torch's error about a lost connection into one about the other ranks.

    >>> with reaching_all(nn.Linear(2, 2)):     # a single process: no effect
    ...     pass
    """
    try:
        yield
    except RuntimeError as error:
        if parallel_of(model) is None or isinstance(error, AwnError) or not _is_of_the_network(error):
            raise
        raise RankError(
            f"rank {rank_of(model)} of {ranks_of(model)} cannot reach the others: one of them has probably ended, and "
            "its own message says why. Start the job again from the last checkpoint; the number of ranks may "
            f"differ. Torch says: {str(error).splitlines()[0]}"
        ) from error


def _is_of_the_network(error: RuntimeError) -> bool:
    """Whether torch's error is about the connection to other ranks, not about the model."""
    words = ("gloo/transport", "NCCL error", "Connection closed by peer", "Connection reset by peer")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)
