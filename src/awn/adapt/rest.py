"""Rest: slots for units that are not there yet hold zeros, and what follows must stay finite, and so must its slope.

Nothing else undoes a NaN, not even a weight of 0. This is tried in the model's own precision.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from awn.adapt.bench import Bench, Change, Patches, zeros_of
from awn.adapt.groups import Candidate
from awn.adapt.operation import schema_of, tensors_in
from awn.adapt.record import quiet

_SLOTS = 3


def not_finite_at_rest(bench: Bench, candidates: Sequence[Candidate], patches: Patches) -> dict[Candidate, str]:
    """The candidates for which an operation gives no finite number, or slope, where slots hold zeros, with reasons."""
    parts = [part for part in bench.portions(candidates) if not _is_finite(bench, part, patches)]
    bad = [one for part in parts for one in part if not _is_finite(bench, [one], patches)]
    return {
        one: f"{_culprit(bench, one, patches)} is not finite, or has no finite slope, where slots for new units hold 0"
        for one in bad
    }


@contextlib.contextmanager
def _resting(bench: Bench, candidates: Sequence[Candidate], patches: Patches) -> Iterator[Sequence[Tensor]]:
    """The copy with slots for more units; gives tensors that make the units, to differentiate by."""
    changes = {one.leaf: Change.grown(one.size, _SLOTS, at_rest=True) for one in candidates}
    mine = {number: term for number, term in patches.items() if set(changes) & set(term.leaves())}
    makers = []
    for one in candidates:
        tensors = [bench.tensors[name] for name, _ in one.makers]
        found = [tensor for tensor in tensors if isinstance(tensor, nn.Parameter)]
        makers += sorted(found, key=lambda tensor: tensor.numel())[:1]
    with bench.changed(changes, zeros_of(candidates), mine, at_rest=True):
        try:
            for tensor in makers:
                tensor.requires_grad_(True)
            yield makers
        finally:
            for tensor in makers:
                tensor.requires_grad_(False)


def _is_finite(bench: Bench, candidates: Sequence[Candidate], patches: Patches) -> bool:
    try:
        with _resting(bench, candidates, patches) as makers, quiet(), _no_denormals(), torch.enable_grad():
            outs = _outputs(bench)
            for out, base in zip(outs, bench.base, strict=False):
                if out.shape == base.shape and not bool((out.isfinite() | ~base.isfinite()).all()):
                    return False
            grads = _gradients(outs, makers)
    except Exception:  # a forward that cannot be differentiated here has been verified without
        return True
    return all(bool(grad.isfinite().all()) for grad in grads)


@contextlib.contextmanager
def _no_denormals() -> Iterator[None]:
    """Numbers that are too small to be normal are 0, as training may have them."""
    flushed = float(torch.tensor(1e-40) * 1.0) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)


def _outputs(bench: Bench) -> list[Tensor]:
    result = bench.model(*bench.example.args, **bench.example.kwargs)
    return [out for out in tensors_in(result) if out.is_floating_point()]


def _gradients(outs: Sequence[Tensor], makers: Sequence[Tensor]) -> list[Tensor]:
    losses = [
        (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out))[
            out.isfinite()
        ].sum()
        for out in outs
        if out.requires_grad
    ]
    if not losses or not makers:
        return []
    grads = torch.autograd.grad(sum(losses, losses[0].new_zeros(())), list(makers), allow_unused=True)
    return [grad for grad in grads if grad is not None]


def _culprit(bench: Bench, candidate: Candidate, patches: Patches) -> str:
    """The operation that is not finite."""
    with quiet(), _no_denormals(), NotFinite() as usual:
        _outputs(bench)
    with (
        contextlib.suppress(Exception),
        _resting(bench, [candidate], patches),
        quiet(),
        _no_denormals(),
        NotFinite() as resting,
    ):
        _outputs(bench)
        for (name, before), (_, now) in zip(usual.found, resting.found, strict=False):
            if now and not before:
                return str(name).lstrip("_").removeprefix("native_")
    try:
        with (
            _resting(bench, [candidate], patches) as makers,
            quiet(),
            torch.enable_grad(),
            torch.autograd.detect_anomaly(check_nan=True),
        ):
            _gradients(_outputs(bench), makers)
    except RuntimeError as error:
        if (found := re.search(r"'(\w+?)Backward\d*'", str(error))) is not None:
            return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[1]).lower()
    return "an operation on its units"


class NotFinite(TorchDispatchMode):
    """Notes which operations give numbers that are not finite."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[str, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        outs = [out for out in tensors_in(result) if out.is_floating_point()]
        self.found.append((schema_of(func).name, any(not bool(out.isfinite().all()) for out in outs)))
        return result
