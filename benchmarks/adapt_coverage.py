"""How much of which models `awn.adapt_` makes adaptive, and whether what it makes is right.

Every model of `benchmarks/adapt_models.py` is adapted on one example, with preserve=True. Then its outputs on a second
example, of another shape, must be those of the plain model: as it is, with more units in every layer, and finalized. A
model whose outputs change is wrong. The share is that of the weights of two dimensions or more that ran and have an
adaptive dimension. Models are tried in a random order that is always the same, each in a process of its own.

Run: python benchmarks/adapt_coverage.py --minutes 60
Writes results/adapt/coverage.json; a run goes on where the last one ended, and every row names the commit that it was
made with. `--again transformers/siglip own/` makes these rows anew. `--show` prints the table.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import os
import random
import re
import resource
import select
import signal
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from adapt_models import Example, collection, warm_up
from torch import Tensor, nn

import awn
from awn.adapt.bench import converted
from awn.adapt.groups import matrices_of
from awn.adapt.operation import tensors_in
from awn.adapt.record import Recorder, quiet
from awn.basics.batches import Batch
from awn.basics.example import as_call
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=25.0, help="of this run")
    parser.add_argument("--limit", type=int, default=60, help="seconds of CPU for a model")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("results/adapt/coverage.json"))
    parser.add_argument("--again", nargs="*", default=[], help="make the rows anew whose names begin like this")
    parser.add_argument("--show", action="store_true", help="print the table of a finished file")
    options = parser.parse_args()
    if options.show:
        show(json.loads(options.out.read_text()))
        return
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    part = options.out.with_suffix(".part")
    if part.is_file():
        rows = [json.loads(line) for line in part.read_text().splitlines()]
    else:
        rows = json.loads(options.out.read_text())["rows"] if options.out.is_file() else []
        rows = [row for row in rows if not row["name"].startswith(tuple(options.again))]
        part.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made_with = provenance(seed=0)
    names = sorted(name for name in collection() if options.only in name)
    random.Random(0).shuffle(names)
    done = {row["name"] for row in rows}
    waiting = [name for name in names if name not in done]
    if any(name.startswith("transformers/") for name in waiting):
        list(warm_up())
    started = time.monotonic()
    with part.open("a") as file:
        for name in waiting:
            if time.monotonic() - started > 60 * options.minutes:
                break
            rows.append({**in_process(name, options.limit), "commit": made_with["commit"]})
            print(json.dumps(rows[-1]), file=file, flush=True)
            print(rows[-1]["name"], rows[-1]["verdict"], round(rows[-1].get("share", 0), 2), flush=True)
    result = {"models": len(names), "rows": sorted(rows, key=lambda row: row["name"]), "summary": summary(rows)}
    write_files({options.out: json_file({**made_with, **result})})
    part.unlink()
    show(result)


def in_process(name: str, limit: int) -> Row:
    """Try a model in a fork, which imports nothing again; one that hangs or crashes takes only the fork along."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(
            resource.RLIMIT_CPU, (limit + int(time.process_time()), limit + int(time.process_time()) + 5)
        )
        signal.alarm(8 * limit)
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        with contextlib.suppress(BaseException), os.fdopen(writer, "w") as pipe:
            json.dump({"name": name, **trial(name)}, pipe)
        os._exit(0)
    os.close(writer)
    text = b""
    while select.select([reader], [], [])[0] and (piece := os.read(reader, 1 << 16)):
        text += piece
    os.close(reader)
    os.waitpid(child, 0)
    return json.loads(text) if text else {"name": name, "verdict": "timeout"}


def trial(name: str) -> Row:
    """Build a model, adapt it, and compare."""
    try:
        torch.manual_seed(0)
        model, one, two = collection()[name]()
    except Exception as error:
        why = re.sub(r"'\S*site-packages/", "'", str(error))  # a path of this machine means nothing elsewhere
        return {"verdict": "not built", "why": f"{type(error).__name__}: {why[:200]}"}
    plain, started = copy.deepcopy(model), time.process_time()
    try:
        report = awn.adapt_(model, example_input=one, preserve=True)
    except awn.AwnError as error:
        return {"verdict": "refused", "share": 0.0, "why": str(error)[:600], "seconds": time.process_time() - started}
    except Exception as error:
        return {"verdict": "error", "share": 0.0, "why": f"{type(error).__name__}: {str(error)[:300]}"}
    seconds = time.process_time() - started
    matrices = set(ran(plain, one))
    tensors = {parameter: name for name, parameter in model.named_parameters()}
    governed = {tensors.get(axis.tensor) for group in awn.advanced.find_groups(model) for axis in group.axes}
    share = len(governed & matrices) / max(1, len(matrices))
    row: Row = {"share": share, "matrices": len(matrices), "widths": len(report.adapted), "seconds": seconds}
    row |= {"parameters": report.share, "attributes": list(report.attributes)}
    row["heads"] = any("head" in name.lower() for name in report.attributes)
    wrong = what_is_wrong(plain, model, one, two)
    return {**row, "verdict": "wrong" if wrong else "adapted", **({"why": wrong} if wrong else {})}


def ran(model: nn.Module, example: Example) -> list[str]:
    """The weights of two dimensions or more that run."""
    twin = copy.deepcopy(model)
    recorder = Recorder(twin)
    recorder.run(twin.eval(), converted(Batch(*as_call(example)), torch.float32))
    return matrices_of(recorder)


def what_is_wrong(plain: nn.Module, model: nn.Module, one: Example, two: Example | None) -> str | None:
    """What changes the outputs, on either example; None if nothing does."""
    examples = [one]
    with contextlib.suppress(Exception):
        if two is not None and outputs(plain, two):
            examples.append(two)
    expected = [outputs(plain, example) for example in examples]
    bigger = copy.deepcopy(model)
    awn.advanced.set_units_(
        bigger, {name: units + 1 + place % 5 for place, (name, units) in enumerate(awn.widths(bigger).items())}
    )
    for what, other in (("adapted", model), ("with more units", bigger), ("finalized", awn.finalize(bigger))):
        for place, (example, base) in enumerate(zip(examples, expected, strict=True)):
            try:
                change = difference(outputs(other, example), base)
            except Exception as error:
                return f"{what}, example {place + 1}: {type(error).__name__}: {str(error)[:200]}"
            if not change < 2e-3:
                return f"{what}, example {place + 1}: the outputs change by {change:.2g} of their size"
    return None


def outputs(model: nn.Module, example: Example) -> list[Tensor]:
    args, kwargs = as_call(copy.deepcopy(example))
    with quiet():
        result = model.eval()(*args, **kwargs)
    return [out for out in tensors_in(result) if out.is_floating_point()]


def difference(outs: list[Tensor], base: list[Tensor]) -> float:
    """The largest change, relative to the largest entry; infinite where other entries are finite."""
    if [out.shape for out in outs] != [out.shape for out in base]:
        return math.inf
    found = 0.0
    for one, two in zip(outs, base, strict=True):
        if not torch.equal(one.isfinite(), two.isfinite()):
            return math.inf
        kept = two.isfinite()
        if kept.any():
            found = max(found, float((one - two)[kept].abs().max() / two[kept].abs().max().clamp(min=1e-12)))
    return found


def summary(rows: list[Row]) -> list[Row]:
    """One line for each library, and one for all."""
    lines = []
    for title in ("", "transformers/", "timm/", "torch_geometric/", "own/"):
        mine = [row for row in rows if row["name"].startswith(title)]
        runs = [row for row in mine if row["verdict"] not in ("not built", "timeout")]
        shares = [row["share"] for row in runs]
        lines.append(
            {
                "models": title.rstrip("/") or "all",
                "tried": len(mine),
                "run": len(runs),
                **{kind: sum(row["verdict"] == kind for row in mine) for kind in KINDS},
                "mean share": statistics.mean(shares) if shares else None,
                "median share": statistics.median(shares) if shares else None,
                "median seconds": statistics.median([r["seconds"] for r in runs if "seconds" in r] or [math.nan]),
            }
        )
    return lines


KINDS = ("adapted", "refused", "wrong", "error", "timeout", "not built")


def show(result: dict[str, Any]) -> None:
    keys = list(result["summary"][0])
    print("| " + " | ".join(keys) + " |\n|" + "---|" * len(keys))
    for line in result["summary"]:
        cells = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in line.values()]
        print("| " + " | ".join(cells) + " |")
    for row in result["rows"]:
        if row["verdict"] in ("wrong", "error"):
            print(row["name"], row["verdict"], row.get("why"))


if __name__ == "__main__":
    main()
