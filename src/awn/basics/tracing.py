"""Whether a compiler or a tracer is following the computation."""

from __future__ import annotations

import torch


def is_traced() -> bool:
    """Whether torch.compile, torch.export, torch.jit.trace or a transformation of torch.func follows the computation.

    Then numbers must not be read from tensors, and no choice may depend on the size of a batch.

    >>> is_traced()
    False
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
    )
