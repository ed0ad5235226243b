"""What the tests of faults run in processes of their own, by name: python fault_cases.py NAME FOLDER."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

import awn
from awn.training import Callback, Data, FitOptions, History, Progress, fit

_ROOM = 2**29  # bytes beyond what the process has when training starts


class Widen(Callback):
    """Asks for layers six times as wide after every epoch."""

    def on_epoch_end(self, progress: Progress) -> None:
        print("epoch", progress.epoch, awn.widths(progress.model), flush=True)
        for group in awn.advanced.find_groups(progress.model):
            group.width.move_to_(6 * group.width.units)


def train(folder: Path, *, by_hand: bool, resume: bool = False, max_units: int | None = None) -> History:
    torch.manual_seed(0)
    x = torch.randn(64, 2)
    model = awn.AdaptiveMLP(2, 2, 2, importance=awn.Exponential.for_units(40), max_units=max_units)
    return fit(
        model,
        Data(x, (x[:, 0] > 0).long()),
        loss=awn.likelihood.categorical,
        options=FitOptions(epochs=6, batch_size=32, by_hand=by_hand),
        callbacks=[Widen()],
        folder=folder,
        resume=resume,
    )


def grow_out_of_memory(folder: Path, by_hand: bool) -> None:
    """Train until memory runs out, then resume with a bound, with all the memory there is."""
    import awn.training.run

    awn.training.run._SECONDS_BETWEEN_CHECKPOINTS = 0.0
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + _ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    try:
        train(folder, by_hand=by_hand)
    except (awn.AwnError, MemoryError, RuntimeError) as error:
        print("stopped by", type(error).__name__, str(error).splitlines()[0][:300])
    else:
        print("never ran out of memory")
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    history = train(folder, by_hand=by_hand, resume=True, max_units=1500)
    print("resumed to epoch", len(history), max(history[-1]["widths"].values()))


if __name__ == "__main__":
    grow_out_of_memory(Path(sys.argv[2]), by_hand=sys.argv[1] == "by-hand")
