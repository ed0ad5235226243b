"""A watch for models that are resized without their DistributedDataParallel."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from awn.errors import RankError


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
