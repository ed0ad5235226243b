"""What `awn.adapt_` costs on models of usual size: CPU seconds on one thread, and peak memory over the model's own.

The models are built from their configurations, with random weights, each in a process of its own. The peak is that of
the process while `adapt_` runs, less what it had before the model was built, in units of the model's size.

Run: python benchmarks/adapt_cost.py
Writes results/adapt/cost.json; `--show` prints the table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import awn
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files


def models() -> dict[str, Callable[[], nn.Module]]:
    """The models by name."""
    import transformers

    t: Any = transformers
    return {
        "GPT-2 small": partial(t.GPT2LMHeadModel, t.GPT2Config()),
        "BERT base": partial(t.BertModel, t.BertConfig()),
        "ViT base": partial(t.ViTModel, t.ViTConfig()),
        "ResNet-50": partial(t.ResNetForImageClassification, t.ResNetConfig()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/adapt/cost.json"))
    parser.add_argument("--only", default="")
    parser.add_argument("--show", action="store_true", help="print the table of a finished file")
    options = parser.parse_args()
    if options.show:
        show(json.loads(options.out.read_text())["rows"])
        return
    context = multiprocessing.get_context("spawn")
    rows = []
    for name in models():
        if options.only in name:
            with context.Pool(1) as pool:
                rows.append(pool.apply(measured, (name,)))
            print(rows[-1], flush=True)
    write_files({options.out: json_file({**provenance(seed=0), "rows": rows})})
    show(rows)


def measured(name: str) -> dict[str, Any]:
    """Adapt one model, and watch time and memory."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    build = models()[name]  # imports its library
    before = memory()
    model = build().eval()
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    peaks, ended = [memory()], threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            peaks.append(memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.process_time()
    report = awn.adapt_(model)
    seconds = time.process_time() - started
    ended.set()
    watcher.join()
    widths = len(report.adapted)
    peak = (max(peaks) - before) / size
    return {
        "model": name,
        "parameters": size // 4,
        "seconds": seconds,
        "memory": peak,
        "widths": widths,
        "share": report.share,
    }


def memory() -> int:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def show(rows: list[dict[str, Any]]) -> None:
    print("| model | parameters | CPU seconds | memory | widths | share |\n|---|---|---|---|---|---|")
    for row in rows:
        numbers = f"{row['seconds']:.1f} | {row['memory']:.1f} | {row['widths']} | {row['share']:.2f}"
        print(f"| {row['model']} | {row['parameters']:,} | {numbers} |")


if __name__ == "__main__":
    main()
