"""Kill trainings, saves and commands at random points, start them again, and compare the end with an undisturbed run.

Each task of `soak_tasks.py` is first run whole. Then it is started in a process of its own, killed by SIGKILL after a
random time, checked for damage, and started again, up to five times in a row. One kill in three comes early, while a
resumed run reads its files. The end must be the same, byte for byte, as that of the whole run.

Afterwards, two networks change their widths at random for 100,000 steps each (`soak_widths.py`).

Run: python benchmarks/soak.py                      (200 kills and more, about half an hour on one core)
     python benchmarks/soak.py --kills 18 --steps 1000 --out /dev/null
Writes results/soak.json, on which docs/trust.md reports.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from soak_tasks import Task, make_tasks, train
from soak_widths import by_autograd, by_hand

from awn.files.provenance import provenance
from awn.files.write import json_file, write_files

SEED = 0
KILLS = 252
STEPS = 100_000
_IN_A_ROW = 5
_EARLY = 0.15  # of the duration of a whole run


@dataclass
class Count:
    """What became of a task. `faults` lists damage, lost work and other ends, each in a sentence."""

    kills: int = 0
    runs: int = 0
    equal: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=KILLS, help="kills of all tasks together")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each network whose widths change")
    parser.add_argument("--only", nargs="*", default=(), help="names of tasks; all unless given")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=Path("results/soak.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    made_by = provenance(seed=options.seed, kills=options.kills, steps=options.steps)
    with tempfile.TemporaryDirectory() as folder:
        counts = run(options.kills, options.seed, Path(folder), tell=print, only=options.only)
    widths = {}
    for name, swing in (("autograd", by_autograd), ("by hand", by_hand)):
        widths[name] = swing(options.steps, options.seed)
        print(name, widths[name])
    faults = sum(len(found["faults"]) for found in (*map(asdict, counts.values()), *widths.values()))
    content = {
        "from": {**made_by, "seconds": round(time.perf_counter() - started)},
        "kills": sum(count.kills for count in counts.values()),
        "faults": faults,
        "by_task": {name: asdict(count) for name, count in counts.items()},
        "widths": widths,
    }
    if str(options.out) != os.devnull:
        write_files({options.out: json_file(content)})
    sys.exit(1 if faults else 0)


def run(
    kills: int, seed: int, folder: Path, *, tell: Callable[[str], object] = lambda _: None, only: Collection[str] = ()
) -> dict[str, Count]:
    """Kill every task, or those in `only`, about equally often."""
    tasks = {name: task for name, task in make_tasks(folder).items() if not only or name in only}
    if "choose" in tasks:
        in_child(train, folder / "trained")
    counts = {}
    for number, (name, task) in enumerate(tasks.items()):
        wanted = kills // len(tasks) + (number < kills % len(tasks))
        counts[name] = soak(task, wanted, random.Random(f"{seed} {name}"), folder / str(number))
        found = counts[name]
        tell(f"{name}: {found.kills} kills, {found.equal} of {found.runs} runs equal, {len(found.faults)} faults")
        for fault in found.faults:
            tell(f"    {fault}")
    return counts


def soak(task: Task, kills: int, generator: random.Random, folder: Path) -> Count:
    """Start a task and kill it again and again; returns what was found."""
    count = Count()
    started = time.perf_counter()
    if (said := in_child(task.work, folder / "whole")) != "ended":
        count.faults.append(f"the whole run: {said}")
        return count
    count.seconds = round(time.perf_counter() - started, 2)
    wanted = task.result(folder / "whole")
    while count.kills < kills:
        place = folder / str(count.runs)
        said = _disturbed(task, place, min(_IN_A_ROW, kills - count.kills), count, generator)
        count.runs += 1
        if said != "ended":
            count.faults.append(f"run {count.runs}: {said}")
        elif task.result(place) == wanted:
            count.equal += 1
        else:
            count.faults.append(f"run {count.runs}: its end differs from that of the whole run")
    return count


def _disturbed(task: Task, place: Path, kills: int, count: Count, generator: random.Random) -> str:
    """Kill a run up to so many times, then let it end; returns how it ended."""
    for number in range(kills):
        late = number == 0 or generator.random() > 1 / 3
        said = in_child(task.work, place, generator.uniform(0, count.seconds * (1 if late else _EARLY)))
        if said != "killed":
            return said
        count.kills += 1
        if fault := task.fault(place):
            return f"after kill {number + 1}: {fault}"
    return in_child(task.work, place)


def in_child(work: Callable[[Path], Any], folder: Path, kill_after: float | None = None) -> str:
    """Call a function in a fork of this process, which is killed after a time.

    Returns "ended", "killed", or the error. A fork saves the seconds that it takes to import torch. This process must
    not have trained anything itself: the threads of torch would be missing in the fork.
    """
    folder.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child == 0:
        _live(work, folder)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)  # nothing else has the number before `waitpid`
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed" if os.WTERMSIG(status) == signal.SIGKILL else f"ended by signal {os.WTERMSIG(status)}"
    return "ended" if os.WEXITSTATUS(status) == 0 else (folder / "log").read_text()[-2000:]


def _live(work: Callable[[Path], Any], folder: Path) -> None:
    """The life of a child process."""
    code = 1
    try:
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        work(folder)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
