"""The running statistics of a network's batch norms: kept, restored, and estimated anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from awn.basics.batches import Batch, evaluating

_Norm = nn.modules.batchnorm._BatchNorm


@dataclass(frozen=True, eq=False)
class BatchNorms:
    """The batch norms of a network that keep running statistics."""

    model: nn.Module
    norms: tuple[_Norm, ...]

    @classmethod
    def of(cls, model: nn.Module) -> BatchNorms:
        """The batch norms of a network.

        >>> import awn
        >>> len(BatchNorms.of(awn.AdaptiveMLP(2, 2, hidden_layers=3, batch_norm=True)).norms)
        3
        """
        norms = (module for module in model.modules() if isinstance(module, _Norm))
        return cls(model, tuple(norm for norm in norms if norm.running_mean is not None))

    def statistics(self) -> list[Tensor]:
        """The tensors of all running statistics."""
        return [buffer for norm in self.norms for buffer in norm.buffers(recurse=False)]

    @torch.no_grad()
    def recalibrate_(self, batches: Iterable[Batch]) -> None:
        """Estimate the statistics from batches of several rows.

        Unlike torch's `update_bn`, this takes named arguments, and leaves dropout off.
        """
        usable = [batch for batch in batches if batch.rows > 1]  # torch refuses a variance of one number
        if not usable:
            return
        momenta = [norm.momentum for norm in self.norms]
        with evaluating(self.model):
            for norm in self.norms:
                norm.reset_running_stats()
                norm.training, norm.momentum = True, None  # no momentum: a plain average over the batches
            try:
                for batch in usable:
                    batch.run(self.model)
            finally:
                for norm, momentum in zip(self.norms, momenta, strict=True):
                    norm.momentum = momentum
