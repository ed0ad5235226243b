"""A mutation fuzzer for every file that awn reads.

Each input is a valid file with a few random changes: bytes flipped, cut, repeated or inserted; or, for JSON, values
replaced by others of any type and size, and entries removed, renamed or nested. Edited descriptions are written to both
files of a model folder, as someone would who wants the change to pass. An input counts as

- `read`: it was read, and the result could be used;
- `refused`: an `awn.errors.AwnError` was raised;
- a finding: any other exception, more than a few seconds, or the end of the process.

Run: python benchmarks/fuzz.py                      (100,000 inputs, about half an hour on one core)
     python benchmarks/fuzz.py --inputs 2000 --seed 1 --out /dev/null
Writes results/fuzz.json, on which docs/trust.md reports. Findings are kept in --keep, one file each.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import awn
from awn.errors import AwnError
from awn.files.provenance import provenance
from awn.files.read import read_tensors
from awn.files.write import json_file, tensor_file, write_files
from awn.tabular.estimators import AdaptiveClassifier
from awn.tabular.folder import load_estimator, read_about, save_estimator
from awn.tabular.read.table import read_table
from awn.training import Data, FitOptions, History, Shrink, fit

SEED = 0
INPUTS = 100_000
#: An input may take this much of the processor before it counts as a finding.
SECONDS = 5.0
#: A process that asks for more memory than this gets a MemoryError, which is a finding.
BYTES = 8 * 2**30

#: Values that break programs: of every type, at and beyond the bounds.
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    8,
    10**9,
    10**18,
    2**63,
    -(2**63),
    10**400,
    0.0,
    -0.5,
    0.5,
    2.0,
    1e-300,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    "",
    "a",
    "weight",
    "..",
    "__class__",
    "\ud800",
    "\x00",
    "nan",
    "é" * 300,
    [],
    [[]],
    [0],
    ["a", "b"],
    {},
    {"~": "tensor", "items": "nowhere"},
    {"~": "dict", "items": [[[], 1]]},
    {"kind": "x"},
]

Recipe = Callable[[random.Random, Path], Callable[[], Any]]


@dataclass
class Count:
    """What became of the inputs of one kind."""

    read: int = 0
    refused: int = 0
    findings: Counter[str] = field(default_factory=Counter)

    @property
    def inputs(self) -> int:
        return self.read + self.refused + sum(self.findings.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=Path("results/fuzz.json"))
    parser.add_argument("--keep", type=Path, default=None, help="folder for the inputs that are findings")
    options = parser.parse_args()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    made_by = provenance(seed=options.seed, inputs=options.inputs)  # before: the commit may change while this runs
    with tempfile.TemporaryDirectory() as folder:
        counts = run(options.inputs, options.seed, Path(folder), keep=options.keep, tell=print)
    content = {
        "from": {**made_by, "seconds": round(time.perf_counter() - started)},
        "inputs": sum(count.inputs for count in counts.values()),
        "findings": sum(sum(count.findings.values()) for count in counts.values()),
        "by_kind": {
            name: {
                "inputs": count.inputs,
                "read": count.read,
                "refused": count.refused,
                "findings": dict(count.findings.most_common()),
            }
            for name, count in counts.items()
        },
    }
    if str(options.out) != os.devnull:
        write_files({options.out: json_file(content)})
    print(json.dumps(content["by_kind"], indent=1))
    sys.exit(1 if content["findings"] else 0)


def run(
    inputs: int,
    seed: int,
    folder: Path,
    *,
    keep: Path | None = None,
    tell: Callable[[str], object] = lambda _: None,
    first: int = 0,
) -> dict[str, Count]:
    """Try this many inputs, the same number of every kind; a seed always gives the same changes."""
    recipes = make_recipes(folder)
    counts = {name: Count() for name in recipes}
    for number in range(first, first + inputs):
        name = list(recipes)[number % len(recipes)]
        generator = random.Random(f"{seed} {number}")
        place = folder / "input"
        read = recipes[name](generator, place)
        outcome = _try(read)
        if outcome in ("read", "refused"):
            setattr(counts[name], outcome, getattr(counts[name], outcome) + 1)
        else:
            counts[name].findings[outcome] += 1
            if counts[name].findings[outcome] == 1:
                tell(f"input {number}, {name}: {outcome}")
                if keep is not None:
                    _keep(folder, keep / str(number), read)
        if number % 5000 == 4999:
            tell(f"{number + 1} inputs")
    return counts


def _keep(folder: Path, kept: Path, read: Callable[[], Any]) -> None:
    """Copy the files of an input, and write the traceback of another try beside them."""
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("sources"), dirs_exist_ok=True)
    try:
        read()
        found = "no error at the second try"
    except BaseException:
        found = traceback.format_exc()
    (kept / "traceback.txt").write_text(found)


def _try(read: Callable[[], Any]) -> str:
    started = time.process_time()  # not the time on the clock: other processes may be busy
    try:
        read()
        outcome = "read"
    except AwnError:
        outcome = "refused"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        last = traceback.extract_tb(error.__traceback__)[-1]
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/awn" in frame.filename]
        where = own[-1] if own else last
        return f"{type(error).__name__} in {Path(where.filename).name}:{where.name}"
    return outcome if time.process_time() - started < SECONDS else f"slow: over {SECONDS} s"


# Mutations


def mutate_bytes(generator: random.Random, content: bytes) -> bytes:
    """A few changes anywhere in a file; more often near its ends, where formats keep their headers."""
    changed = bytearray(content)
    for _ in range(generator.choice((1, 1, 1, 2, 4, 16))):
        size = max(1, len(changed))
        place = generator.choice((generator.randrange(size), min(size - 1, generator.randrange(200)), 0))
        place = size - 1 - place if generator.random() < 0.4 else place
        kind = generator.randrange(6)
        if kind == 0 and changed:
            changed[place] ^= 1 << generator.randrange(8)
        elif kind == 1 and changed:
            changed[place] = generator.randrange(256)
        elif kind == 2:
            del changed[place : place + generator.choice((1, 4, 100, size))]
        elif kind == 3:
            changed[place:place] = changed[place : place + generator.choice((1, 8, 64))] * generator.choice((1, 2, 50))
        elif kind == 4:
            changed[place:place] = generator.choice((b"\xff" * 8, b"\x00" * 8, b'"', b",", b"\n", b"[", b"\xc3", b"{"))
        elif changed:
            changed[place : place + 8] = generator.getrandbits(64).to_bytes(8, "little")
    return bytes(changed)


def mutate_json(generator: random.Random, content: Any) -> Any:
    """A few values replaced, removed, renamed, repeated or wrapped."""
    content = copy.deepcopy(content)
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        holder, key = _somewhere(generator, content)
        if holder is None:
            return generator.choice(VALUES)
        kind = generator.randrange(8)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[generator.choice(("x", "", "~", "units", key + "s"))] = holder.pop(key)
        elif kind == 2:
            for _ in range(generator.choice((1, 3, 200))):
                holder[key] = [holder[key]]
        elif kind == 3 and isinstance(holder, list):
            holder *= generator.choice((0, 2, 40))
        elif kind == 4:
            other, other_key = _somewhere(generator, content)
            holder[key] = copy.deepcopy(other[other_key]) if other is not None and other else None
        else:
            holder[key] = copy.deepcopy(generator.choice(VALUES))
    return content


def _somewhere(generator: random.Random, content: Any) -> tuple[Any, Any]:
    """A random place of a JSON tree: a list or dict that is not empty, and a key of it."""
    holder, key = None, None
    inside = content
    while isinstance(inside, dict | list) and inside and (holder is None or generator.random() < 0.8):
        holder = inside
        key = generator.choice(list(inside)) if isinstance(inside, dict) else generator.randrange(len(inside))
        inside = holder[key]
    return holder, key


# The files, and how each is read


def make_recipes(folder: Path) -> dict[str, Recipe]:
    """For every kind of file: a function that writes a changed one, and returns a function that reads it."""
    sources = _make_sources(folder / "sources")
    return {
        "CSV": _bytes_of(sources / "table.csv", _use_table),
        "compressed CSV": _bytes_of(sources / "table.csv.gz", _use_table),
        "Parquet": _bytes_of(sources / "table.parquet", _use_table),
        "Parquet metadata": _bytes_of(sources / "table.parquet", _use_table, last=2000),
        "model folder, bytes": _folder_bytes(sources / "network", _use_network),
        "model folder, description": _folder_description(sources / "network", _use_network),
        "model folder of a module": _folder_description(sources / "module", _use_module),
        "estimator folder, bytes": _folder_bytes(sources / "estimator", _use_estimator),
        "estimator folder, description": _folder_description(sources / "estimator", _use_estimator),
        "run checkpoint, bytes": _bytes_of(sources / "run" / "run.safetensors", _use_run),
        "run checkpoint, description": _checkpoint_description(sources / "run" / "run.safetensors", _use_run),
        "report.json, bytes": _bytes_of(sources / "report.json", _use_report),
        "report.json, content": _json_of(sources / "report.json", _use_report),
        "summary.json": _json_of(sources / "summary.json", _use_summary),
        "history.jsonl": _bytes_of(sources / "run" / "history.jsonl", History.load),
        "options file": _json_of(sources / "options.json", _use_options),
    }


def _bytes_of(source: Path, use: Callable[[Path], Any], last: int | None = None) -> Recipe:
    content = source.read_bytes()

    def write(generator: random.Random, place: Path) -> Callable[[], Any]:
        path = place.with_name(source.name)
        kept, changed = (b"", content) if last is None else (content[:-last], content[-last:])
        path.write_bytes(kept + mutate_bytes(generator, changed))
        return lambda: use(path)

    return write


def _json_of(source: Path, use: Callable[[Path], Any]) -> Recipe:
    content = json.loads(source.read_bytes())

    def write(generator: random.Random, place: Path) -> Callable[[], Any]:
        path = place.with_name(source.name)
        path.write_bytes(_as_json(mutate_json(generator, content)))
        return lambda: use(path)

    return write


def _folder_bytes(source: Path, use: Callable[[Path], Any]) -> Recipe:
    contents = {path.name: path.read_bytes() for path in source.iterdir()}

    def write(generator: random.Random, place: Path) -> Callable[[], Any]:
        place.mkdir(exist_ok=True)
        chosen = generator.choice(sorted(contents))
        for name, content in contents.items():
            (place / name).write_bytes(mutate_bytes(generator, content) if name == chosen else content)
        return lambda: use(place)

    return write


def _folder_description(source: Path, use: Callable[[Path], Any]) -> Recipe:
    tensors, config = read_tensors(source / "model.safetensors")

    def write(generator: random.Random, place: Path) -> Callable[[], Any]:
        place.mkdir(exist_ok=True)
        changed = mutate_json(generator, config)
        (place / "config.json").write_bytes(_as_json(changed))
        (place / "model.safetensors").write_bytes(_tensors(generator, tensors, changed))
        return lambda: use(place)

    return write


def _checkpoint_description(source: Path, use: Callable[[Path], Any]) -> Recipe:
    tensors, description = read_tensors(source)

    def write(generator: random.Random, place: Path) -> Callable[[], Any]:
        path = place.with_name(source.name)
        path.write_bytes(_tensors(generator, tensors, mutate_json(generator, description)))
        return lambda: use(path)

    return write


def _tensors(generator: random.Random, tensors: dict[str, torch.Tensor], description: Any) -> bytes:
    """The tensors, one in five times with a change: another shape or type, lost, or with values that are no numbers."""
    tensors = dict(tensors)
    if generator.random() < 0.2:
        name = generator.choice(sorted(tensors))
        one = tensors.pop(name)
        kinds: list[Callable[[], torch.Tensor | None]] = [
            lambda: None,
            lambda: one.new_empty((0, 10**9)),
            lambda: one.reshape(-1),
            lambda: one.to(generator.choice((torch.int8, torch.float64, torch.bfloat16, torch.bool))),
            lambda: torch.full_like(one, float("nan")) if one.is_floating_point() else one * 0,
            lambda: one[..., :1] if one.dim() else one.expand(3).clone(),
            lambda: one * -(10**6),
        ]
        changed = generator.choice(kinds)()
        if changed is not None:
            tensors[name] = changed
    return tensor_file(tensors, description)


def _as_json(content: Any) -> bytes:
    return json.dumps(content).encode()


def _use_table(path: Path) -> None:
    read_table(path)


def _use_network(folder: Path) -> None:
    model = awn.load(folder)
    model.eval()(torch.zeros(2, 3))
    awn.widths(model)


def _use_module(folder: Path) -> None:
    model = _module()
    awn.load(folder, model)
    model.eval()(torch.zeros(2, 3))


def _use_estimator(folder: Path) -> None:
    estimator = load_estimator(folder)
    estimator.predict(_frame().drop(columns="sold").head(3))
    read_about(folder)


def _use_run(path: Path) -> None:
    model = awn.AdaptiveMLP(3, 2, importance=awn.Exponential.for_units(6))
    fit(model, **_training(path.parent, epochs=6), resume=True)


def _use_report(path: Path) -> None:
    from awn.report.comparison import comparison_sections
    from awn.report.page import write_page
    from awn.report.stored import read_report_data

    run = read_report_data(path.parent)
    figures: dict[str, Any] = {}
    sections = comparison_sections([run, run], figures)
    write_page(path.with_name("comparison.html"), "", "", sections, figures)


def _use_summary(path: Path) -> None:
    from awn.tabular.many import TableRun, read_fit, sentence

    run = TableRun(path, 0, path.parent)
    found = read_fit(run, {})
    if found is not None:
        sentence(run, found, 0)
        found.ending()


def _use_options(path: Path) -> None:
    from awn.cli.config import read_config
    from awn.tabular.options import check_options

    check_options(AdaptiveClassifier, read_config(path))


def _frame() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    rows = 40
    return pd.DataFrame(
        {
            "size": generator.normal(size=rows).round(3),
            "shop": generator.choice(["north", "south", "east"], rows),
            "day": pd.date_range("2024-01-01", periods=rows).astype(str),
            "open": generator.random(rows) < 0.5,
            "sold": generator.choice(["yes", "no"], rows),
        }
    )


def _module() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))


def _training(folder: Path, epochs: int) -> dict[str, Any]:
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    data = Data(x, (x[:, 0] > 0).long())
    options = FitOptions(epochs=epochs, batch_size=20, patience=2, schedule="constant")
    callbacks = [Shrink(start=2)]
    loss = awn.likelihood.categorical
    return {
        "train": data,
        "validation": data,
        "loss": loss,
        "options": options,
        "callbacks": callbacks,
        "folder": folder,
    }


def _make_sources(folder: Path) -> Path:
    """Valid files of every kind, small, so that a change hits something that matters."""
    folder.mkdir(parents=True)
    frame = _frame()
    frame.to_csv(folder / "table.csv", index=False)
    frame.to_csv(folder / "table.csv.gz", index=False)
    frame.set_index("size").to_parquet(folder / "table.parquet")
    torch.manual_seed(0)
    model = awn.AdaptiveMLP(3, 2, hidden_layers=2, importance=awn.Exponential.for_units(6))
    awn.save(model, folder / "network")
    module = _module()
    awn.adapt_(module)
    awn.save(module, folder / "module")
    estimator = AdaptiveClassifier(units=4, hidden_layers=1, epochs=2, random_state=0)
    estimator.fit(frame.drop(columns="sold"), frame["sold"])
    about = {"table": "table.csv", "target": "sold", "task": "classification", "scores": {"adaptive": 0.5}}
    save_estimator(estimator, folder / "estimator", about=about)
    learner = awn.AdaptiveMLP(3, 2, importance=awn.Exponential.for_units(6))
    fit(learner, **_training(folder / "run", epochs=4))
    _make_a_run(folder)
    return folder


def _make_a_run(folder: Path) -> None:
    """report.json and summary.json, as `awn fit` writes them."""
    from awn.tabular.fitting import fit_table
    from awn.tabular.settings import TableSettings

    options = {"units": 4, "hidden_layers": 1, "epochs": 2}
    fit_table(folder / "table.csv", folder / "fit", TableSettings("sold", options=options), facts={"asked": {}})
    for name in ("report.json", "summary.json"):
        (folder / name).write_bytes((folder / "fit" / name).read_bytes())
    (folder / "options.json").write_bytes(json_file({"units": 8, "lr": 0.1, "class_weight": {"yes": 2.0}}))


if __name__ == "__main__":
    main()
