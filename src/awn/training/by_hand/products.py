"""Matrix products into given memory, by the faster of the two libraries that torch has for them.

`torch.mm` calls MKL, which uses AVX-512 on Intel's processors only. On others, oneDNN takes about half the time for a
large product, the copy into the given memory included. It keeps a compiled kernel per shape.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

#: Writes a @ b to `out`: product(a, b, out=out).
Product = Callable[..., Tensor]

# Below this number of multiplications, a call of oneDNN takes longer to prepare than it saves.
_LARGE = 2_000_000
# oneDNN returns new memory, so larger products are computed in parts of at most so many numbers, and copied one by one.
_AT_ONCE = 2**16


def product_for(multiplications: int, dtype: torch.dtype) -> Product:
    """The function for products of a size.

    >>> product_for(2 * 3 * 4, torch.float32) is torch.mm
    True
    """
    if multiplications < _LARGE or dtype != torch.float32 or not _onednn_is_faster():
        return torch.mm
    return by_onednn() or torch.mm


def by_onednn() -> Product | None:
    """The product by oneDNN, or None if this version of torch does not offer it."""
    try:
        linear: Any = torch.ops.mkldnn._linear_pointwise.default._op
    except AttributeError:
        return None

    def product(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
        b_t = b.t()
        if not (b_t.is_contiguous() or b.is_contiguous()):  # oneDNN has a slow kernel only for rows with gaps
            return torch.mm(a, b, out=out)
        rows = max(1, _AT_ONCE // out.shape[1])
        for part, into in zip(a.split(rows), out.split(rows), strict=True) if len(out) > rows else ((a, out),):
            into.copy_(linear(part, b_t, None, "none", [], ""))
        return out

    return product


@cache
def _onednn_is_faster() -> bool:
    """Decided by the processor and not by a measurement, so that a run repeats bit for bit."""
    libraries = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return libraries and torch.backends.cpu.get_cpu_capability() == "AVX512" and "AuthenticAMD" in _processor()


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    return facts.read_text(encoding="utf-8") if facts.is_file() else platform.processor()
