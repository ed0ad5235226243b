"""Large tables through `awn fit`: the time to the first epoch, the time of an epoch, and the peak memory.

Every table is made in a temporary folder and given to `awn fit` in a process of its own, with all its defaults but the
number of epochs: it reads the table, trains, trains a fixed network to compare with, and writes the report. Times are
counted from the start of the process. Processor times are given as well, because they depend less on other programs.
The first epoch begins when the command prints the numbers of rows. Also measured: the processor time of `awn --help`
and of `import torch`, in turns.

Run: python benchmarks/big_tables.py            (a few minutes on two cores)
Writes results/big_tables.json; docs/performance.md reads it, and `--show` prints its tables.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from awn.files.provenance import provenance
from awn.files.write import json_file, write_files

SEED = 0
#: Rows, columns of numbers, columns of categories and file format.
TABLES = (
    (1_000_000, 10, 0, "csv"),
    (1_000_000, 10, 0, "parquet"),
    (1_000_000, 8, 2, "csv"),
    (1_000_000, 8, 2, "parquet"),
    (200, 100_000, 0, "csv"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--turns", type=int, default=5, help="of awn --help and import torch")
    parser.add_argument("--out", type=Path, default=Path("results/big_tables.json"))
    parser.add_argument("--show", action="store_true", help="print the tables of a finished file")
    options = parser.parse_args()
    if options.show:
        show(json.loads(options.out.read_text()))
        return
    fits = []
    for case in TABLES:
        fits.append(fit(*case, epochs=options.epochs))
        print(fits[-1], flush=True)
    content = {
        "from": provenance(seed=SEED, epochs=options.epochs, turns=options.turns, load=os.getloadavg()),
        "fits": fits,
        "help": help_cost(options.turns),
    }
    write_files({options.out: json_file(content)})
    show(content)


def fit(rows: int, numbers: int, categories: int, ending: str, epochs: int) -> dict[str, Any]:
    """`awn fit` on a table, and what it took."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, f"table.{ending}")
        # In another process: the peak memory of a process is at least that of the one that starts it.
        maker = multiprocessing.get_context("spawn").Process(target=make, args=(table, rows, numbers, categories))
        maker.start()
        maker.join()
        words = ["fit", str(table), "--target", "y", "--out", str(Path(folder, "run")), "--seed", str(SEED), "--json"]
        measured, out = run_fit([*words, "--epochs", str(epochs)])
        history = Path(folder, "run", "run", "history.jsonl").read_text(encoding="utf-8").splitlines()
        return {
            "rows": rows,
            "numbers": numbers,
            "categories": categories,
            "format": ending,
            "file_mb": round(table.stat().st_size / 1e6, 1),
            "seconds_per_epoch": round(statistics.median(json.loads(row)["seconds"] for row in history), 2),
            **{name: round(value, 2) for name, value in measured.items()},
            "training_path": out["training_path"],
            "accuracy": out["scores"]["adaptive"],
        }


def run_fit(words: list[str]) -> tuple[dict[str, float], dict[str, Any]]:
    """The time to the first epoch and in all, the peak memory in MB, and the result of the command."""
    started = time.perf_counter()
    measured: dict[str, float] = {}
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen([sys.executable, "-m", "awn", *words], stdout=out, stderr=subprocess.PIPE, text=True)
        assert child.stderr is not None
        said = []
        for line in child.stderr:
            said.append(line)
            if not measured and "training rows" in line:
                measured["seconds_to_first_epoch"] = time.perf_counter() - started
                measured["processor_seconds_to_first_epoch"] = processor_seconds(child.pid)
        status, used = reap(child)
        if status or not measured:
            raise RuntimeError(f"awn fit failed: {''.join(said)}")
        measured["seconds_in_all"] = time.perf_counter() - started
        measured["processor_seconds_in_all"] = used.ru_utime + used.ru_stime
        measured["peak_mb"] = used.ru_maxrss / 1000
        out.seek(0)
        return measured, json.load(out)


def processor_seconds(process: int) -> float:
    """The processor time of a running process, on Linux."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    user, system = after_name[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def reap(child: subprocess.Popen[Any]) -> tuple[int, Any]:
    """The exit status and the resources of a process that ends."""
    _, status, resources = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, resources


def make(path: Path, rows: int, numbers: int, categories: int) -> None:
    """A table with a target that depends on the first three columns."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv, parquet

    rng = np.random.default_rng(SEED)
    columns: dict[str, Any] = {f"c{place}": rng.normal(size=rows).round(6) for place in range(numbers)}
    target = columns["c0"] + columns["c1"] * columns["c2"] > 0
    for place in range(categories):
        levels = np.array([f"level {number}" for number in range(4 * 10**place)])
        columns[f"k{place}"] = rng.choice(levels, rows)
    content = pa.table({**columns, "y": np.where(target, "yes", "no")})
    csv.write_csv(content, path) if path.suffix == ".csv" else parquet.write_table(content, path)


def help_cost(turns: int) -> dict[str, Any]:
    """The processor time of `awn --help` and of `import torch`, with the ratio of the medians and their difference."""
    commands = {"awn --help": ["-m", "awn", "--help"], "import torch": ["-c", "import torch"]}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(turns):
        for name, words in commands.items():
            status, used = reap(subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL))
            if status:
                raise RuntimeError(f"{name} failed with the exit code {status}")
            taken[name].append(round(used.ru_utime + used.ru_stime, 3))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    more = round(medians["awn --help"] - medians["import torch"], 3)
    ratio = round(medians["awn --help"] / medians["import torch"], 3)
    return {"seconds": medians, "all": taken, "ratio": ratio, "difference": more}


def show(content: dict[str, Any]) -> None:
    """Markdown tables."""
    print("| table | file | to first epoch, s | an epoch, s | in all, s | peak, MB | path |")
    print("|---" * 7 + "|")
    for row in content["fits"]:
        kinds = ", ".join(f"{row[kind]:,} {kind}" for kind in ("numbers", "categories") if row[kind])
        times = [
            f"{row[f'seconds_{until}']:.1f} ({row[f'processor_seconds_{until}']:.1f})"
            for until in ("to_first_epoch", "in_all")
        ]
        times.insert(1, f"{row['seconds_per_epoch']:.1f}")
        print(
            f"| {row['rows']:,} × {kinds} | {row['format']}, {row['file_mb']:.0f} MB | {' | '.join(times)} | "
            f"{row['peak_mb']:,.0f} | {row['training_path']} |"
        )
    print("\n| processor time, s | `awn --help` | `import torch` | ratio | difference |\n|---|---|---|---|---|")
    cost = content["help"]
    medians = " | ".join(f"{cost['seconds'][name]:.2f}" for name in ("awn --help", "import torch"))
    print(
        f"| median of {len(cost['all']['import torch'])} | {medians} | {cost['ratio']:.2f} | {cost['difference']:.2f} |"
    )


if __name__ == "__main__":
    main()
