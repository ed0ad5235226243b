"""The measurements behind docs/theory.md: where ν rests, what a unit changes, and what it would cost.

Run: python benchmarks/theory.py            (about two minutes on one core)
Writes results/theory.json and the figures docs/images/theory-*.svg. `--show` prints the tables of docs/theory.md from a
finished file and draws the figures again. The trainings are on Spiral: one layer of ReLU6, no choice of a smaller size.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from theory_depth import over_depth
from theory_show import draw, tables
from torch import Tensor

import awn
from awn.core.groups import find_groups
from awn.core.importance import Scale
from awn.core.prefix import prefix_units
from awn.core.resize import set_units_
from awn.datasets import spiral, split
from awn.files.provenance import provenance
from awn.files.write import json_file, write_files
from awn.loss.likelihood import categorical
from awn.loss.prior import weight_term
from awn.training import Callback, Data, FitOptions, fit
from awn.training.callbacks import Progress
from awn.training.evaluate import accuracy

SEED, EPOCHS, LR = 0, 1200, 0.01
QUANTILES = (0.8, 0.9, 0.95, 0.97, 0.99)
STARTS = (64, 231, 512)
# σ_θ of the paper on its scale, and a moderate one on the others.
SIGMAS: dict[Scale, float] = {"mass": 10.0, "anchored": 0.8, "unit": 0.8}
ADDED = 64
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/theory.json"))
    parser.add_argument("--images", type=Path, default=Path("docs/images"))
    parser.add_argument("--show", action="store_true", help="print the tables of a finished file and draw its figures")
    asked = parser.parse_args()
    if not asked.show:
        torch.set_num_threads(1)
        write_files({asked.out: json_file(measure())})
    found = json.loads(asked.out.read_text())
    draw(found, asked.images)
    print(*(f"{name}\n\n{table}\n" for name, table in tables(found).items()), sep="\n")


def measure() -> Row:
    started = time.perf_counter()
    made_by = provenance(seed=SEED, epochs=EPOCHS)
    parts = split(spiral(SEED), SEED)
    train, test = Data(*parts.train), Data(*parts.test)
    trained: dict[tuple[Scale, float], Spiral] = {}
    rest, unit = [], []
    for scale in ("mass", "anchored"):
        for quantile in QUANTILES:
            for start in STARTS:
                run = Spiral(train, scale, quantile, start)
                trained[scale, quantile] = run
                rest.append(run.rest() | run.tail(test))
                print({name: value for name, value in rest[-1].items() if name not in ("path", "norms")}, flush=True)
    for start in STARTS:
        unit.append(Spiral(train, "unit", 0.9, start).rest())
        print({name: value for name, value in unit[-1].items() if name not in ("path", "norms")}, flush=True)
    found = {
        "rest": rest,
        "unit": unit,
        "growth": [row for scale in SIGMAS if scale != "unit" for row in trained[scale, 0.9].growth()],
        "depth": over_depth(SEED),
        "adam": trained["anchored", 0.9].adam(),
        "widths": [Spiral(train, "anchored", 0.9, 128, ordered=share).expectation() for share in (0.0, 1.0)],
        "price": [run.price() for (_, quantile), run in trained.items() if quantile in (0.9, 0.99)],
    }
    return {"from": made_by | {"seconds": round(time.perf_counter() - started)}, **found}


class Spiral:
    """A network trained on Spiral, and what is measured on it."""

    def __init__(
        self,
        train: Data,
        scale: Scale,
        quantile: float,
        start: int,
        ordered: float = 0.0,
        price: awn.loss.Price | None = None,
    ) -> None:
        self.train, self.samples = train, len(train.y)
        self.setting: Row = {"scale": scale, "quantile": quantile, "start": start}
        self.ordered = ordered
        self.prior = awn.Prior(SIGMAS[scale], price=price)
        self.model = awn.AdaptiveMLP(
            2,
            2,
            activation="relu6",
            importance=awn.Exponential.for_units(start, quantile, scale=scale),
            quantile=quantile,
            max_units=2000,
            ordered=ordered,
            generator=torch.Generator().manual_seed(SEED),
        )
        self.path = Trace()
        options = FitOptions(
            epochs=EPOCHS, lr=LR, width_lr=LR, schedule="cosine", patience=None, seed=SEED, choose=None
        )
        fit(self.model, train, loss=categorical, options=options, prior=self.prior, callbacks=[self.path])
        self.width: Any = self.model.hidden[0].width

    def rest(self) -> Row:
        """The mean index of the outgoing weights' energy, and where the law puts it."""
        mean, law = mean_index(self.model)
        found = {"units": self.width.units, "nu": self.width.value, "mean_index": mean, "law": law}
        return {**self.setting, **found, "path": self.path.points}

    def tail(self, test: Data) -> Row:
        """Units that the network needs: the smallest prefix within half a point of its accuracy."""
        whole, units = accuracy(self.model, test), self.width.units
        used = next(n for n in range(1, units + 1) if accuracy(awn.truncate(self.model, units=n), test) > whole - 0.005)
        energy = outgoing(self.model).square().sum(0)
        cut = round(0.7 * units)
        return {
            "accuracy": whole,
            "accuracy_without_30%": accuracy(awn.truncate(self.model, keep=0.7), test),
            "used": used,
            "energy_of_last_30%": (energy[cut:].sum() / energy.sum()).item(),
            "norms": [round(norm, 4) for norm in energy.sqrt().tolist()],
        }

    @torch.no_grad()
    def objective(self, model: awn.AdaptiveMLP) -> float:
        prior = weight_term(self.prior.weight_factors(model, find_groups(model), self.samples))
        assert prior is not None
        return float(categorical(model(self.train.x.to(prior.dtype)), self.train.y) + prior)

    def growth(self) -> Iterator[Row]:
        """How much single units change the objective when they are added, and the bound on it.

        The bound of a unit is ‖ρ‖²/(2σ²N) + √2 · 6 f ‖w‖: the gradient of the cross entropy with respect to the logits
        is at most √2, and a ReLU6 at most 6.
        """
        scale = self.setting["scale"]
        for kind in ("zero", "rescaled", "normal"):
            model = copy.deepcopy(self.model).double()
            width: Any = model.hidden[0].width
            width.new_units = kind
            drawing = torch.Generator().manual_seed(SEED)
            before, changes, bounds = self.objective(model), [], []
            start = before
            for _ in range(ADDED):
                set_units_(model, {"hidden.0": width.units + 1}, generator=drawing)
                after = self.objective(model)
                new = width.units - 1
                weights = outgoing(model)[:, new]
                inside = [part.detach()[new] for part in model.hidden[0]._parameters.values() if part is not None]
                squares = float(weights.square().sum() + sum(part.square().sum() for part in inside))
                importance = float(width.importance()[new].detach())
                prior = squares / (2 * SIGMAS[scale] ** 2 * self.samples)
                bounds.append(prior + 6 * math.sqrt(2) * importance * float(weights.norm()))
                changes.append(abs(after - before))
                before = after
            yield {
                "scale": scale,
                "new_units": kind,
                "objective": start,
                "importance": math.exp(-width.value * (width.units - ADDED)),
                "largest_change": max(changes),
                "largest_bound": max(bounds),
                "largest_ratio": max(change / bound for change, bound in zip(changes, bounds, strict=True)),
            }

    def adam(self) -> Row:
        """The noise of log ν's gradient over minibatches, and the drift that priors of several strengths give Adam."""
        gradients = []
        drawing = torch.Generator().manual_seed(SEED)
        for _ in range(300):
            rows = torch.randint(self.samples, (128,), generator=drawing)
            self.width.log_nu.grad = None
            categorical(self.model(self.train.x[rows]), self.train.y[rows]).backward()
            gradients.append(self.width.log_nu.grad.item())
        noise = torch.tensor(gradients).std().item()
        nu, mean = self.width.value, 0.1
        drifts = []
        for deviation in (1.0, 0.1, 0.01, 0.003, 0.001):
            pull = abs(nu * (nu - mean)) / (deviation**2 * self.samples)
            law = LR * 1000 * pull / math.hypot(pull, noise)
            drift, walk = adam_drift(pull, noise)
            drifts.append({"deviation": deviation, "gradient": pull, "law": law, "adam": drift})
        return {"nu": nu, "mean": mean, "noise": noise, "walk": walk, "drift": drifts}

    @torch.no_grad()
    def expectation(self) -> Row:
        """The mean loss over random prefixes, exactly and by draws."""
        units = self.width.units
        losses = [
            categorical(awn.truncate(self.model, units=n)(self.train.x), self.train.y).item()
            for n in range(1, units + 1)
        ]
        drawn = torch.tensor([losses[prefix_units(units, 1.0, draw) - 1] for draw in range(1000)])
        chances = prefix_chances(units)
        return {
            "ordered": self.ordered,
            "units": units,
            "whole": losses[-1],
            "expected": sum(chance * loss for chance, loss in zip(chances, losses, strict=True)),
            "drawn": drawn.mean().item(),
            "error": (drawn.std() / math.sqrt(len(drawn))).item(),
        }

    def price(self) -> Row:
        """The cost in nats that three readings of the ELBO give the units, without the weights' squares."""
        sigma, units = SIGMAS[self.setting["scale"]], self.width.units
        curvatures = curvature(self.model, self.train.x)
        laplace = 0.5 * torch.log1p(sigma**2 * curvatures).sum(0)  # per unit
        kl = math.log(sigma) + 1 / (2 * sigma**2) - 0.5
        weights = len(curvatures)
        return {
            **self.setting,
            "sigma": sigma,
            "units": units,
            "weights_per_unit": weights,
            "first_order": units * weights * math.log(sigma),
            "kl": units * weights * kl,
            "laplace": laplace.sum().item(),
            "laplace_first_unit": laplace[:5].mean().item(),
            "laplace_last_unit": laplace[-5:].mean().item(),
        }


class Trace(Callback):
    """The way of ν through a training: the mean index and the law's, every 40 epochs."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []

    def on_epoch_end(self, progress: Progress) -> None:
        if progress.epoch % 40 == 0:
            mean, law = mean_index(progress.model)
            self.points.append((round(mean, 2), round(law, 2)))


def outgoing(model: Any) -> Tensor:
    """The weights that read the hidden units, without the importance."""
    weight: Tensor = model.output._parameters["weight"].detach()
    return weight[:, : model.hidden[0].width.units]


def mean_index(model: Any) -> tuple[float, float]:
    """Σ j‖w_j‖² / Σ‖w_j‖², and 1/(e^ν − 1)."""
    energy = outgoing(model).double().square().sum(0)
    mean = (energy * torch.arange(len(energy))).sum() / energy.sum()
    return mean.item(), 1 / math.expm1(model.hidden[0].width.value)


def adam_drift(pull: float, noise: float, steps: int = 1000) -> tuple[float, float]:
    """The mean distance that a pull moves a number by Adam, and the deviation of the number without the pull.

    The gradients are N(pull, noise²). Every number is moved with and without the pull, under the same noise.
    """
    generator = torch.Generator().manual_seed(SEED)
    numbers = torch.zeros(2, 500, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([numbers], lr=LR)
    for _ in range(steps):
        gradient = noise * torch.randn(numbers.shape[1], dtype=numbers.dtype, generator=generator)
        numbers.grad = torch.stack([gradient + pull, gradient])
        optimizer.step()
    pulled, free = numbers.detach()
    return (free - pulled).mean().item(), free.std().item()


def prefix_chances(units: int) -> Sequence[float]:
    """The chance of every prefix round(units^u), with u uniform between 0 and 1."""
    edges = [0.0, *(math.log(n + 0.5) / math.log(units) for n in range(1, units)), 1.0]
    return [high - low for low, high in itertools.pairwise(edges)]


@torch.no_grad()
def curvature(model: Any, x: Tensor) -> Tensor:
    """The diagonal of the Gauss-Newton matrix of the summed loss, for two classes: [weights of a unit, units]."""
    width, x = model.hidden[0].width, x.double()
    model = copy.deepcopy(model).double()
    units, importance = width.units, width.importance()[: width.units].double()
    before = model.hidden[0](x)[:, :units]
    both = model(x).softmax(1).prod(1, keepdim=True)  # p (1 − p), for either class
    read = (both * (importance * before.clamp(0, 6)).square()).sum(0)
    out = outgoing(model)
    slope = ((out[0] - out[1]) * importance * ((before > 0) & (before < 6))).square() * both
    inside = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1).square().T @ slope
    return torch.cat([inside, read.expand(len(out), -1)])


if __name__ == "__main__":
    main()
