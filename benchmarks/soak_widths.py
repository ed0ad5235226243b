"""Networks whose widths change at random for many steps: memory stays flat, and no number is lost."""

from __future__ import annotations

import gc
import math
import random
import resource
from pathlib import Path
from typing import Any

import torch

import awn
from awn.datasets import spiral
from awn.training import Callback, Data, FitOptions, Progress, fit

_MOST = 48  # units of a layer
_REPAIR_EVERY = 1000  # steps
_ROWS = 400
_BATCH = 10
#: Growth of the memory, between a tenth of the steps and the last one, that counts as flat.
FLAT_MB = 16.0


def by_autograd(steps: int, seed: int) -> dict[str, Any]:
    """Train in order by a loop of our own; a layer is moved to a random width after every step."""
    generator, found = random.Random(seed), _Findings(steps)
    torch.manual_seed(seed)
    model, data = _network(), _data()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    x, y = data.x, data.y
    for step in range(steps):
        rows = torch.randint(len(y), (_BATCH,))
        nll = awn.advanced.ordered_loss(model, lambda rows=rows: awn.likelihood.categorical(model(x[rows]), y[rows]))
        loss = awn.objective(nll, model, n_samples=len(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        _move_(model, generator)
        found.resized += bool(awn.resize_(model, optimizer))
        if step % _REPAIR_EVERY == _REPAIR_EVERY - 1:
            found.repair(model, x)
        found.look(step, loss.item(), model)
    return found.summary()


def by_hand(steps: int, seed: int) -> dict[str, Any]:
    """Train in order by `fit`, without autograd; the layers are moved to random widths after every epoch."""
    found, data = _Findings(steps), _data()
    torch.manual_seed(seed)
    model = _network()
    per_epoch = math.ceil(_ROWS / _BATCH)
    options = FitOptions(epochs=max(1, steps // per_epoch), batch_size=_BATCH, lr=0.003, patience=None, by_hand=True)
    swing = _Swing(found, random.Random(seed), per_epoch)
    fit(model, data, loss=awn.likelihood.categorical, options=options, callbacks=[swing])
    return found.summary()


class _Swing(Callback):
    """Moves the layers to random widths after every epoch; the next step resizes them."""

    def __init__(self, found: _Findings, generator: random.Random, per_epoch: int) -> None:
        self.found, self.generator, self.per_epoch = found, generator, per_epoch
        self.widths: dict[str, int] = {}

    def on_epoch_end(self, progress: Progress) -> None:
        step, model, data = progress.epoch * self.per_epoch - 1, progress.model, progress.train
        progress.history.rows[:-1] = []  # a history of thousands of epochs would grow
        if awn.widths(model) != self.widths:
            self.found.resized += 1
            self.widths = awn.widths(model)
        for _ in range(2):
            _move_(model, self.generator)
        if progress.epoch % max(1, _REPAIR_EVERY // self.per_epoch) == 0 and data is not None:
            self.found.repair(model, data.x)
        self.found.look(step, progress.history[-1]["total"], model)


class _Findings:
    """What was seen along the way."""

    def __init__(self, steps: int) -> None:
        self.steps, self.resized, self.repaired = steps, 0, 0
        self.faults: list[str] = []
        self.memory: dict[int, float] = {}

    def look(self, step: int, loss: float, model: torch.nn.Module) -> None:
        if not math.isfinite(loss) and not self.faults:
            self.faults.append(f"the loss is {loss} at step {step + 1}")
        if (step + 1) * 10 // self.steps > step * 10 // self.steps or not self.memory:
            gc.collect()
            self.memory[step + 1] = _resident_mb()
            if not all(tensor.isfinite().all() for tensor in model.state_dict().values()):
                self.faults.append(f"weights are not finite at step {step + 1}")

    def repair(self, model: torch.nn.Module, x: torch.Tensor) -> None:
        smaller = awn.truncate(model, keep=0.6, repair=x)
        self.repaired += 1
        if not smaller.eval()(x).isfinite().all():
            self.faults.append("a repaired network has outputs that are not finite")

    def summary(self) -> dict[str, Any]:
        early, late = list(self.memory.values())[1 if len(self.memory) > 2 else 0], list(self.memory.values())[-1]
        if late - early > FLAT_MB:
            self.faults.append(f"the memory grew from {early:.0f} to {late:.0f} MB")
        return {
            "steps": self.steps,
            "resized": self.resized,
            "repaired": self.repaired,
            "megabytes": {str(step): round(size, 1) for step, size in self.memory.items()},
            "faults": self.faults,
        }


def _network() -> awn.AdaptiveMLP:
    return awn.AdaptiveMLP(
        2, 2, hidden_layers=2, importance=awn.Exponential.for_units(16), max_units=_MOST, ordered=0.5
    )


def _data() -> Data:
    samples = spiral(per_class=_ROWS // 2)
    return Data(samples.x, samples.y)


def _move_(model: torch.nn.Module, generator: random.Random) -> None:
    group = generator.choice(awn.advanced.find_groups(model))
    group.width.move_to_(generator.randint(1, _MOST))


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20
