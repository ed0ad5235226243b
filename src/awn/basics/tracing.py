"""Whether a compiler or a tracer is recording the computation."""

from __future__ import annotations

import torch
from torch.fx import _symbolic_trace


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


def is_symbolically_traced() -> bool:
    """Whether torch.fx is tracing the computation with proxies for tensors.

    >>> is_symbolically_traced()
    False
    """
    return bool(_ask_fx()) and not torch.compiler.is_compiling()


# Torch 2.6 has only the second, to which later versions object.
_ask_fx = getattr(_symbolic_trace, "is_fx_symbolic_tracing", _symbolic_trace.is_fx_tracing)
