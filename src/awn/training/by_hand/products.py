"""Matrix products into given memory, by the faster of the two libraries that torch has for them.

`torch.mm` calls MKL, which uses AVX-512 on Intel's processors only. On AMD's with vectors of 512 bits, oneDNN takes
about half the time for a large product, the copy into the given memory included. It compiles a kernel per shape, which
takes as long as several products of the widths of tables, so it is left to the largest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

#: Writes a @ b to `out`: product(a, b, out=out).
Product = Callable[..., Tensor]

# Below this number of multiplications, oneDNN takes longer to compile than it saves before the widths change.
_LARGE = 20_000_000
# The first of AMD's families, Zen 5, that computes 512 bits at once. Earlier ones take two steps, and gain nothing.
_WIDE_VECTORS = 26
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
    return libraries and torch.backends.cpu.get_cpu_capability() == "AVX512" and _has_wide_vectors(_processor())


def _has_wide_vectors(facts: str) -> bool:
    r"""Whether the description of a processor is one of AMD's with vectors of 512 bits.

    >>> [_has_wide_vectors(f"vendor_id\t: AuthenticAMD\ncpu family\t: {family}") for family in (25, 26)]
    [False, True]
    """
    family = re.search(r"^cpu family\s*: (\d+)$", facts, re.MULTILINE)
    return "AuthenticAMD" in facts and family is not None and int(family[1]) >= _WIDE_VECTORS


def _processor() -> str:
    """What Linux says of the processor; nothing on other systems."""
    facts = Path("/proc/cpuinfo")
    return facts.read_text(encoding="utf-8") if facts.is_file() else ""
