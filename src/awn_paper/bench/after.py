"""Benchmark 4, after training: the latency of what is left of an adaptive network, in torch and in onnxruntime."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from awn.basics.timing import Work, in_turns, middle_half, ratio, threads
from awn.export import onnx_bytes
from awn.smaller.finalize import finalize
from awn.smaller.truncate import truncate
from awn_paper.bench.pairs import adaptive_mlp, mlp

TITLE = "Latency after training, over a network that was never adaptive"
THREADS = "as the rows say"
_NETWORKS, _QUICK_NETWORKS = [(48, 231, 231, 2), (512, 1024, 512)], [(2, 9, 2)]


def run(*, quick: bool = False) -> list[dict[str, Any]]:
    """A row for each network, batch and runtime: the adaptive network itself, finalised, and cut to half its units."""
    rows = []
    for number in [1] if quick else sorted({1, os.cpu_count() or 1}):
        with threads(number), torch.inference_mode():
            for sizes in _QUICK_NETWORKS if quick else _NETWORKS:
                rows += _rows(sizes, number, quick=quick)
    return rows


def _rows(sizes: tuple[int, ...], number: int, *, quick: bool) -> list[dict[str, Any]]:
    adaptive = adaptive_mlp(sizes).eval()
    networks = {
        "fixed": mlp(sizes).eval(),
        "adaptive": adaptive,
        "finalised": finalize(adaptive).eval(),
        "half": finalize(truncate(adaptive, keep=0.5)).eval(),
    }
    rows = []
    for batch in (1,) if quick else (1, 128):
        x = torch.randn(batch, sizes[0])
        for runtime, prepare in RUNTIMES.items():
            works = {
                name: prepare(network, x)
                for name, network in networks.items()
                if not (runtime == "onnxruntime" and name == "adaptive")
            }
            seconds = in_turns(works, repetitions=2 if quick else 51, burst=0.001 if quick else 0.02)
            network = f"{'→'.join(map(str, sizes))}, batch {batch}"
            rows.append({"network": network, "runtime": runtime, "threads": number, **_ratios(seconds)})
    return rows


def _ratios(seconds: dict[str, list[float]]) -> dict[str, Any]:
    plain = seconds["fixed"]
    ratios = {name: ratio(each, plain) for name, each in seconds.items()}
    return {
        "fixed, ms": round(1e3 * statistics.median(plain), 4),
        "adaptive": ratios.get("adaptive"),
        "finalised": ratios["finalised"],
        "finalised, middle half": middle_half(seconds["finalised"], plain),
        "half": ratios["half"],
    }


def _in_torch(network: nn.Module, x: Tensor) -> Work:
    return lambda: network(x)


def _in_onnxruntime(network: nn.Module, x: Tensor) -> Work:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with torch.inference_mode(False):
        content = onnx_bytes(network, torch.randn(3, x.shape[1]))
    session, inputs = onnxruntime.InferenceSession(content, options), {"input": x.numpy()}
    return lambda: session.run(None, inputs)


RUNTIMES: dict[str, Callable[[nn.Module, Tensor], Work]] = {"torch": _in_torch, "onnxruntime": _in_onnxruntime}
