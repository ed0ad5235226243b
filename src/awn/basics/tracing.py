"""Whether a compiler or a tracer is recording the computation."""

from __future__ import annotations

import torch


def is_traced() -> bool:
    """Whether torch.compile, torch.export, torch.jit.trace or a torch.func transform is tracing the computation.

    While tracing, values must not be read from tensors, and no decision may depend on the batch size.

    >>> is_traced()
    False
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
    )
