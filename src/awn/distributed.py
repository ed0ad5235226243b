"""Ranks: a model in a DistributedDataParallel keeps the same widths, and the same units, in every process.

DDP averages the gradients, ν's among them, so every rank's ν asks for the same width. What is left to do between two
steps: see that the ranks agree, give all of them the new units that rank 0 has drawn, and, where Parameters were
replaced, have DDP reduce the new ones. A DDP that goes on with the old ones would leave gradients unreduced.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from awn.errors import AwnError, RankError


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, out of the DistributedDataParallel that it may be in, and of what torch.compile returned.

    >>> model = nn.Linear(2, 2)
    >>> unwrapped(model) is unwrapped(torch.compile(model, backend="eager")) is model
    True
    """
    parallel = parallel_of(model)
    return uncompiled(model if parallel is None else parallel.module)


def uncompiled(model: nn.Module) -> nn.Module:
    """What torch.compile was given, if the model is what it returned.

    >>> model = nn.Linear(2, 2)
    >>> uncompiled(torch.compile(model, backend="eager")) is model
    True
    """
    return model._modules.get("_orig_mod") or model


def parallel_of(model: nn.Module) -> DistributedDataParallel | None:
    """The DistributedDataParallel that a model is given in, which torch.compile may have been given; None without one.

    >>> parallel_of(nn.Linear(2, 2))
    """
    outer = uncompiled(model)
    return outer if isinstance(outer, DistributedDataParallel) else None


def rank_of(model: nn.Module) -> int:
    """The number of this process among those that train the model together; 0 without a DistributedDataParallel.

    >>> rank_of(nn.Linear(2, 2))
    0
    """
    parallel = parallel_of(model)
    return 0 if parallel is None else dist.get_rank(parallel.process_group)


def ranks_of(model: nn.Module) -> int:
    """How many processes train the model together; 1 without a DistributedDataParallel.

    >>> ranks_of(nn.Linear(2, 2))
    1
    """
    parallel = parallel_of(model)
    return 1 if parallel is None else dist.get_world_size(parallel.process_group)


@contextmanager
def torchrun_group() -> Iterator[int]:
    """Join the processes that torchrun has started, until the end of the block; gives this one's rank.

    Without torchrun there is nobody to join, and the rank is 0.

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
        # torch keeps the addresses of processes that have ended, so those of each start lie apart. On several machines
        # each counts its own starts.
        store = dist.PrefixStore(f"start {times_restarted()}", store)  # type: ignore[attr-defined]
    # Both, where there is a GPU: the model may be on the CPU all the same.
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    try:
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()


def times_restarted() -> int:
    """How often torchrun has started the processes again, after one of them had ended.

    >>> times_restarted()
    0
    """
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def check_in_step(model: nn.Module, widths: Mapping[str, Sequence[int]]) -> None:
    """Raise, on every rank, if the ranks do not say the same of the layers: present width, next one, next capacity.

    One small collective, at every `resize_`: a look at changes alone would leave the other ranks waiting, if one rank
    changed by itself.
    """
    parallel = parallel_of(model)
    if parallel is None:
        return
    if parallel._join_config.enable:
        raise RankError(
            "widths cannot change inside DistributedDataParallel.join(): ranks that have run out of batches take no "
            "part in it. Give every rank as many batches, with a DistributedSampler, and leave join() out."
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
    """Give every rank the values that rank 0 has."""
    parallel = parallel_of(model)
    if parallel is not None:
        first = dist.get_global_rank(parallel.process_group, 0)
        with reaching_all(parallel):
            for work in [dist.broadcast(t, first, group=parallel.process_group, async_op=True) for t in tensors]:
                work.wait()


def together(model: nn.Module) -> nn.Module:
    """A model for all processes to train together: in a DistributedDataParallel, where there are several.

    >>> model = nn.Linear(2, 2)
    >>> together(model) is model
    True
    """
    return DistributedDataParallel(model) if several_ranks() else model


def told(model: nn.Module, numbers: Callable[[], Sequence[float]], how_many: int) -> list[float]:
    """Numbers that rank 0 works out, for all ranks.

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


def average_(model: nn.Module, tensor: Tensor) -> Tensor:
    """Put the mean over the ranks into a tensor; without a DistributedDataParallel it stays as it is."""
    parallel = parallel_of(model)
    if parallel is not None:
        with reaching_all(parallel):
            dist.all_reduce(tensor, group=parallel.process_group)
        tensor /= ranks_of(parallel)
    return tensor


@contextmanager
def reaching_all(model: nn.Module) -> Iterator[None]:
    """Say what has become of the other ranks, where torch only says which connection was lost.

    >>> with reaching_all(nn.Linear(2, 2)):     # alone: nothing to say
    ...     pass
    """
    try:
        yield
    except RuntimeError as error:
        if parallel_of(model) is None or isinstance(error, AwnError) or not _is_of_the_network(error):
            raise
        raise RankError(
            f"rank {rank_of(model)} of {ranks_of(model)} cannot reach the others: one of them has probably ended, and "
            "its own message says why. Start the job again from the last checkpoint; the number of ranks may be "
            f"another. Torch says: {str(error).splitlines()[0]}"
        ) from error


def _is_of_the_network(error: RuntimeError) -> bool:
    """Whether torch's error is about the connection to other ranks, and not about the model that is trained."""
    words = ("gloo/transport", "NCCL error", "Connection closed by peer", "Connection reset by peer")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


def rewrap_(model: nn.Module) -> None:
    """Have a DistributedDataParallel reduce the Parameters that its model has now.

    The object stays, with its options, its communication hooks and all that refers to it: only what depends on the
    Parameters is built anew, as DDP itself does when it is unpickled.
    """
    if not isinstance(model, DistributedDataParallel):
        return
    # Whoever still holds the old one: it must not go on reducing the Parameters that stay.
    model.reducer._remove_autograd_hooks()
    hooks, model._comm_hooks = model._comm_hooks, []
    named = model.module.named_parameters()
    model._module_parameters = [parameter for name, parameter in named if name not in model.parameters_to_ignore]
    model._static_graph_delay_allreduce_enqueued = False  # the next iteration is the first of this graph
    model._has_rebuilt_buckets = False
    del model.reducer, model.logger  # the old buckets, as large as all gradients, go before the new ones come
    model.__setstate__(dict(vars(model)))
    for hook, state in hooks:
        model.register_comm_hook(state, hook)


def spare_(model: nn.Module, buffers: Iterable[Tensor]) -> None:
    """Have a DistributedDataParallel leave buffers alone that every rank works out by itself.

    Otherwise it broadcasts them in every forward, which a model without other buffers need not wait for.
    """
    if isinstance(model, DistributedDataParallel):
        own = {id(buffer) for buffer in buffers}
        model.parameters_to_ignore.update(name for name, buffer in model.module.named_buffers() if id(buffer) in own)
        model._assign_modules_buffers()


def check_parallel(model: nn.Module, tensors: Iterable[Tensor], optimizers: Iterable[Optimizer]) -> None:
    """Refuse ways of sharing a model between processes that a change of width cannot follow."""
    shards = sys.modules.get("torch.distributed.optim")  # imported by those who use it, and by nobody else
    if shards is not None and any(isinstance(one, shards.ZeroRedundancyOptimizer) for one in optimizers):
        raise RankError(
            "ZeroRedundancyOptimizer has dealt the Parameters out to the ranks, each with an optimizer of its own, "
            "which would go on with those that a change of width replaces. Use the optimizer itself on every rank."
        )
    if isinstance(model, DistributedDataParallel) and (model.mixed_precision or model._delay_all_reduce_params):
        raise RankError(
            "DistributedDataParallel's own mixed_precision and delay_all_reduce_named_params hold on to single "
            "Parameters, which a change of width replaces. Leave them out; torch.autocast does for mixed precision."
        )
    refuse_sharded(tensors)


def refuse_sharded(tensors: Iterable[Tensor], model: nn.Module | None = None) -> None:
    """Refuse tensors that are spread over the ranks: a unit's weights would have to move between them.

    Between a forward and its backward they are whole, and only their model says that they are not.
    """
    if not (dist.is_available() and dist.is_initialized()):  # asked at every step: not for nothing
        return
    tensor_module, fsdp = (sys.modules.get(f"torch.distributed.{name}") for name in ("tensor", "fsdp"))
    spread = tensor_module is not None and any(isinstance(tensor, tensor_module.DTensor) for tensor in tensors)
    if fsdp is not None and model is not None:
        spread = spread or any(isinstance(module, fsdp.FSDPModule) for module in model.modules())
    if spread:
        raise RankError(
            "the model is sharded (fully_shard, or tensor parallel: its parameters are DTensors). FSDP2 keeps "
            "each parameter in one flat buffer whose shards have a fixed size on every rank, so a width cannot change "
            "there. Train with DistributedDataParallel; or awn.finalize the model first, and shard what it returns."
        )


def several_ranks() -> bool:
    """Whether this process is one of several.

    >>> several_ranks()
    False
    """
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_first() -> bool:
    """Whether this process is rank 0, or alone: the one that writes and speaks.

    >>> is_first()
    True
    """
    return not several_ranks() or dist.get_rank() == 0


def wait_for_all() -> None:
    """Go on when all processes have come here.

    >>> wait_for_all()      # alone: at once
    """
    if several_ranks():
        dist.barrier()


def _nobody() -> None:
    return None


class _Watch:
    """A hook on a gate: notes the DistributedDataParallel in whose forward it ran, and refuses one that is stale."""

    def __init__(self) -> None:
        self.seen: Callable[[], Any] = _nobody

    def __deepcopy__(self, memo: dict[int, Any]) -> _Watch:
        """A copy of the model has run nowhere yet."""
        return _Watch()

    def __call__(self, _: nn.Module, weight: tuple[Tensor]) -> None:
        active = DistributedDataParallel._get_active_ddp_module()
        if active is None or active is self.seen():
            return
        if not any(parameter is weight[0] for parameter in active._module_parameters):
            raise RankError(
                "the model's Parameters were replaced behind its DistributedDataParallel, which would leave their "
                "gradients unreduced. Pass the DistributedDataParallel itself, and not the model inside it, to "
                "awn.resize_, awn.set_units_, awn.load_state_dict_ and awn.resume_run_; or wrap the model afterwards."
            )
        self.seen = weakref.ref(active)


def watch_(gates: Iterable[nn.Module]) -> None:
    """See to it that a model changed without its DistributedDataParallel is not run inside one as if it had not been.

    The model cannot be asked whether it is in one; but whatever runs it passes its gates.
    """
    for gate in gates:
        watch = _watch_on(gate)
        if watch is None:
            gate.register_forward_pre_hook(_Watch())
        else:
            watch.seen = _nobody


def refuse_inside(gate: nn.Module) -> None:
    """Raise if the model of this gate runs in a DistributedDataParallel, and was passed without it."""
    watch = _watch_on(gate)
    if watch is None:
        gate.register_forward_pre_hook(_Watch())
    elif watch.seen() is not None:
        raise RankError(
            "the model was passed without the DistributedDataParallel that it runs in, so every rank would draw new "
            "units of its own. Pass the DistributedDataParallel itself: awn.resize_(ddp, optimizer)."
        )


def _watch_on(gate: nn.Module) -> _Watch | None:
    return next((hook for hook in gate._forward_pre_hooks.values() if isinstance(hook, _Watch)), None)
