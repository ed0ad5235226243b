"""The data loss of an ordered step: the mean of the whole network's and a prefix's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from torch import Tensor, nn

from awn.core.groups import require_groups
from awn.core.ordered import has_prefix, use_prefix_
from awn.parallel.unwrap import parallel_of


def ordered_loss(model: nn.Module, closure: Callable[[], Tensor]) -> Tensor:
    """The data loss of a step, for a model that was made with `ordered=…`.

    `closure` runs the model on the batch and returns the loss. It is called for the whole network. If the last
    `resize_` has drawn a prefix, it is called once more for that, and the result is the mean of both.

    >>> import awn, torch
    >>> model = awn.AdaptiveMLP(2, 2, ordered=1.0)
    >>> x, y = torch.randn(8, 2), torch.tensor([0, 1] * 4)
    >>> nll = ordered_loss(model, lambda: awn.likelihood.categorical(model(x), y))
    >>> loss = awn.objective(nll, model, n_samples=8)

    With several processes, pass the DistributedDataParallel. Gradient checkpointing is refused.
    """
    groups = require_groups(model)
    if not has_prefix(groups):
        return closure()
    for group in groups:
        group.width.in_two_passes = True
    parallel = parallel_of(model)
    before = use_prefix_(model, False)
    try:
        # DistributedDataParallel prepares one reduction per step, in its last forward.
        with nullcontext() if parallel is None else parallel.no_sync():
            whole = closure()
        use_prefix_(model, True)
        return (whole + closure()) / 2
    finally:
        use_prefix_(model, before)
