"""Detection of models that are resized without the DistributedDataParallel in which they run."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from awn.errors import RankError


def _nobody() -> None:
    return None


class Watch:
    """Records the DistributedDataParallel in whose forward a weight is read, and raises if it is stale.

    A model does not know whether it is in a DistributedDataParallel. But every forward reads its weights.
    """

    def __init__(self) -> None:
        self._seen: Callable[[], Any] = _nobody

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the model has not run yet."""
        return (Watch, ())

    def look(self, weight: Tensor) -> None:
        """Raise if the DistributedDataParallel that is running does not hold `weight`."""
        active = DistributedDataParallel._get_active_ddp_module()
        if active is None or active is self._seen():
            return
        if not any(parameter is weight for parameter in active._module_parameters):
            raise RankError(
                "the model's Parameters were replaced without its DistributedDataParallel, which would leave their "
                "gradients unreduced. Pass the DistributedDataParallel itself, not the model inside it, to "
                "awn.resize_, awn.advanced.set_units_, awn.advanced.load_state_dict_ and awn.resume_run_; or wrap the "
                "model afterwards."
            )
        self._seen = weakref.ref(active)

    def forget(self) -> None:
        """Check again at the next read, because Parameters were replaced."""
        self._seen = _nobody

    def refuse_inside(self) -> None:
        """Raise if the model runs in a DistributedDataParallel but was passed without it."""
        if self._seen() is not None:
            raise RankError(
                "the model was passed without the DistributedDataParallel in which it runs, so every rank would draw "
                "its own new units. Pass the DistributedDataParallel itself: awn.resize_(ddp, optimizer)."
            )
