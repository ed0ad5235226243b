"""DistributedDataParallel around a model whose Parameters are replaced."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from awn.errors import RankError
from awn.parallel.sharded import refuse_sharded
from awn.parallel.torchrun import several_ranks


def together(model: nn.Module) -> nn.Module:
    """Wrap a model in a DistributedDataParallel if there are several processes.

    >>> model = nn.Linear(2, 2)
    >>> together(model) is model
    True
    """
    return DistributedDataParallel(model) if several_ranks() else model


def rewrap_(model: nn.Module) -> None:
    """Make a DistributedDataParallel reduce the Parameters that its model has now.

    The object stays, with its options and communication hooks. Only the parts that depend on the Parameters are
    rebuilt, as DDP itself does when it is unpickled.
    """
    if not isinstance(model, DistributedDataParallel):
        return
    # The old reducer must stop reducing the Parameters that stay, even if something still refers to it.
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
    """Exclude buffers that every rank computes for itself from DistributedDataParallel's broadcast.

    Otherwise it broadcasts them in every forward, which costs time for nothing.
    """
    if isinstance(model, DistributedDataParallel):
        own = {id(buffer) for buffer in buffers}
        model.parameters_to_ignore.update(name for name, buffer in model.module.named_buffers() if id(buffer) in own)
        model._assign_modules_buffers()


def check_parallel(model: nn.Module, tensors: Iterable[Tensor], optimizers: Iterable[Optimizer]) -> None:
    """Raise if a model is distributed in a way that a change of width cannot follow."""
    shards = sys.modules.get("torch.distributed.optim")  # imported by those who use it, and by nobody else
    if shards is not None and any(isinstance(one, shards.ZeroRedundancyOptimizer) for one in optimizers):
        raise RankError(
            "ZeroRedundancyOptimizer divides the Parameters among the ranks, each with its own inner optimizer, "
            "which would keep the Parameters that a change of width replaces. Use the plain optimizer on every rank."
        )
    if isinstance(model, DistributedDataParallel) and (model.mixed_precision or model._delay_all_reduce_params):
        raise RankError(
            "DistributedDataParallel's own mixed_precision and delay_all_reduce_named_params hold on to single "
            "Parameters, which a change of width replaces. Leave them out; use torch.autocast for mixed precision."
        )
    refuse_sharded(tensors)
