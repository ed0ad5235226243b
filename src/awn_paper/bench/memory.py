"""Benchmark 5, memory: the peak of a training step, learned widths over fixed ones.

Counted, not sampled: the bytes of every tensor that is alive. What a kernel takes for itself inside
one operation is not seen; it is the same for both.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from awn.basics.timing import Work, threads
from awn.training import Data
from awn_paper.bench.pairs import (
    BY_HAND_PAIRS,
    PAIRS,
    QUICK_BY_HAND_PAIRS,
    QUICK_PAIRS,
    adam,
    adaptive_mlp,
    adaptive_step,
    fit_data,
    fixed_step,
    mlp,
)

TITLE = "Peak memory of a training step, adaptive / fixed"


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """A row for each network, and one for each that `fit` trains by hand."""
    rows = []
    with threads(1):
        for pair in QUICK_PAIRS if quick else PAIRS:
            x, y = pair.batch()
            fixed = _peak(pair.fixed(), x, y, fixed_step)
            adaptive = _peak(pair.adaptive(), x, y, adaptive_step)
            rows.append({"network": pair.name, "fixed, MB": round(fixed / 1e6, 3), "ratio": round(adaptive / fixed, 3)})
        return rows + [_by_hand_row(sizes, batch) for sizes, batch in (QUICK_BY_HAND_PAIRS if quick else BY_HAND_PAIRS)]


def _by_hand_row(sizes: Sequence[int], batch: int) -> dict[str, Any]:
    """An epoch of more steps than there are batches fetched at once, through `fit` and in plain PyTorch."""
    steps, fixed, adaptive = 16, mlp(sizes), adaptive_mlp(sizes)
    torch.manual_seed(0)
    data = Data(torch.randn(steps * batch, sizes[0]), torch.randint(sizes[-1], (steps * batch,)))
    optimizer = adam(fixed)

    def plain_epoch() -> None:
        for rows in torch.randperm(len(data.y)).split(batch):
            fixed_step(fixed, optimizer, data.x[rows], data.y[rows])()

    plain = peak_of(plain_epoch, fixed, optimizer, data.x, data.y)
    by_hand = peak_of(fit_data(adaptive, data, batch, by_hand=True), adaptive, data.x, data.y)
    name = f"{'→'.join(map(str, sizes))}, batch {batch}, through fit, by hand"
    return {"network": name, "fixed, MB": round(plain / 1e6, 3), "ratio": round(by_hand / plain, 3)}


def _peak(model: nn.Module, x: Tensor, y: Tensor, make: Callable[..., Work]) -> int:
    """The bytes of all tensors at the worst moment of the second step: the first makes the optimizer's state."""
    optimizer = adam(model)
    step = make(model, optimizer, x, y)
    step()
    optimizer.zero_grad()
    return peak_of(step, model, optimizer, x, y)


def peak_of(work: Work, *held: nn.Module | Optimizer | Tensor) -> int:
    """The bytes of what is held before, and of all that a work makes, at its worst moment.

    >>> x = torch.zeros(1000)
    >>> peak_of(lambda: (x + 1) * 2, x)   # x, x + 1 and the product
    12000
    """
    alive = _Alive()
    for one in held:
        gradients = [p.grad for p in one.parameters()] if isinstance(one, nn.Module) else []
        for tensor in tree_leaves([one if isinstance(one, Tensor) else one.state_dict(), gradients]):
            alive.count(tensor)
    with alive:
        work()
    return alive.peak


class _Alive(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive.

    torch's MemTracker would do so with hooks. A model with hooks is not trained by hand.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            self.count(tensor)
        return made

    def count(self, tensor: Any) -> None:
        """Count the memory of a tensor until it is freed."""
        if not isinstance(tensor, Tensor):
            return
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address not in self._known:
            self._known.add(address)
            weakref.finalize(storage, self._freed, address, size)
            self.bytes += size
            self.peak = max(self.peak, self.bytes)

    def _freed(self, address: int, size: int) -> None:
        self._known.discard(address)
        self.bytes -= size
