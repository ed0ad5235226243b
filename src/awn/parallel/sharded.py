"""Sharded models, which cannot follow a change of width."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch.distributed as dist
from torch import Tensor, nn

from awn.errors import RankError


def refuse_sharded(tensors: Iterable[Tensor], model: nn.Module | None = None) -> None:
    """Raise if tensors are sharded: a change of width would move the weights of a unit between ranks.

    Between a forward and its backward the tensors are whole, so the model is checked too.
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
            "there. Train with DistributedDataParallel; or call awn.finalize(model) first, and shard its result."
        )
