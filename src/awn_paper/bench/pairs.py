"""The networks that steps and their memory are measured on: each with fixed widths, and with learned ones."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from awn.basics.timing import Work
from awn.core.axes import consumed_by, produced_by
from awn.core.axis import Axis
from awn.core.families import Exponential
from awn.core.groups import connect_, find_groups
from awn.core.resize import resize_
from awn.core.width import Width
from awn.datasets import spiral_hard, split
from awn.loss import likelihood
from awn.loss.objective import objective
from awn.loss.param_groups import param_groups
from awn.loss.prior import Prior
from awn.nn.mlp import AdaptiveMLP
from awn.training import Data, FitOptions, fit
from awn.training.by_hand.batches import Batch
from awn.training.by_hand.epoch import make_network
from awn.training.by_hand.network import Network
from awn.training.by_hand.structure import Structure
from awn.training.evaluate import accuracy
from awn.training.run import Run

# Small enough that no width changes by itself in the thousands of steps of a measurement.
_LEARNING_RATE = 1e-8
_SAMPLES = 10_000


@dataclass(frozen=True)
class NetworkPair:
    """A network with fixed widths, the same with learned ones, and a batch for them."""

    name: str
    fixed: Callable[[], nn.Module]
    adaptive: Callable[[], nn.Module]
    inputs: Sequence[int]
    classes: int

    def batch(self) -> tuple[Tensor, Tensor]:
        """Inputs, and a class for each prediction."""
        torch.manual_seed(0)
        x = torch.randn(*self.inputs)
        with torch.no_grad():
            predictions = self.fixed()(x).shape[:-1]
        return x, torch.randint(self.classes, predictions)


def adam(model: nn.Module) -> Optimizer:
    """Fused Adam, which for learned widths applies the default prior on the weights, as `awn.training.fit` has it."""
    prior: dict[str, Any] = {"prior": Prior(), "n_samples": _SAMPLES} if find_groups(model) else {}
    return torch.optim.Adam(param_groups(model, _LEARNING_RATE, **prior), fused=True)


def fixed_step(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> Work:
    """A step of plain PyTorch."""

    def step() -> None:
        loss = _loss(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def adaptive_step(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor, *, changing: bool = False) -> Work:
    """The same with learned widths: the default prior, and a look at the widths, which all change if `changing`."""
    widths = [group.width for group in find_groups(model)]
    turns = itertools.cycle([[_asks_for(width, width.units - less) for width in widths] for less in (1, 0)])

    def step() -> None:
        loss = objective(_loss(model, x, y), model, n_samples=_SAMPLES)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if changing:
            for width, log_nu in zip(widths, next(turns), strict=True):
                width.move_(log_nu)
        if bool(resize_(model, optimizer)) != changing:
            raise AssertionError("the widths did not do what is to be measured")

    return step


def _asks_for(width: Width, units: int) -> float:
    before = width.log_nu.item()
    width.move_to_(units)
    asked = width.log_nu.item()
    width.move_(before)
    return asked


def fixed_steps(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor, *, steps: int) -> Work:
    """So many steps of plain PyTorch."""
    step = fixed_step(model, optimizer, x, y)
    return lambda: [step() for _ in range(steps)]


def fit_steps(model: nn.Module, x: Tensor, y: Tensor, *, steps: int, by_hand: bool) -> Work:
    """So many steps through `awn.training.fit`: an epoch of it, from the start to the end."""
    return fit_data(model, Data(x.repeat(steps, 1), y.repeat(steps)), len(x), by_hand=by_hand)


def fit_data(model: nn.Module, data: Data, batch: int, *, by_hand: bool) -> Work:
    """An epoch of `awn.training.fit`, from the start to the end."""
    options = FitOptions(epochs=1, batch_size=batch, lr=_LEARNING_RATE, patience=None, by_hand=by_hand)
    return lambda: fit(model, data, loss=likelihood.categorical, options=options)


def spiral_training(*, epochs: int, by_hand: bool, quick: bool = False) -> Work:
    """Epochs of `fit` on SpiralHard with the paper's scale and prior; the validation set is scored by accuracy."""
    train, validation, _ = split(spiral_hard(per_class=50 if quick else 5000))
    generator, family = torch.Generator().manual_seed(0), Exponential(rate=0.01, scale="mass")
    model = AdaptiveMLP(2, 2, hidden_layers=4, activation="relu6", importance=family, generator=generator)
    options = FitOptions(epochs=epochs, batch_size=128, lr=0.01, width_lr=0.01, by_hand=by_hand, choose=None)

    def work() -> None:
        fresh, prior, data = copy.deepcopy(model), Prior(weight_scale=10.0), (Data(*train), Data(*validation))
        fit(fresh, *data, loss=likelihood.categorical, score=accuracy, options=options, prior=prior)

    return work


def changing_steps(model: AdaptiveMLP, x: Tensor, y: Tensor, *, steps: int) -> Work:
    """So many steps by hand, after each of which every width changes."""
    widths = [group.width for group in find_groups(model)]
    turns = itertools.cycle([[_asks_for(width, width.units - less) for width in widths] for less in (1, 0)])
    network, batch = _network_by_hand(model, x, y)

    @torch.inference_mode()
    def work() -> None:
        for _ in range(steps):
            before = network.units
            for nu, asked in zip(network.nus, next(turns), strict=True):
                nu.log = asked
            network.step(batch, resize=True)
            if any(was == now for was, now in zip(before, network.units, strict=True)):
                raise AssertionError("the widths did not do what is to be measured")

    return work


def product_steps(model: AdaptiveMLP, x: Tensor, y: Tensor, *, steps: int) -> Work:
    """The matrix products of so many steps by hand, and nothing else: no step can take less time."""
    network, batch = _network_by_hand(model, x, y)
    with torch.inference_mode():
        network.step(batch, resize=False)
    passes = network.passes
    assert passes is not None
    layers, hidden = passes.weights, passes.hidden
    reads, outputs = [batch.x, *(h.read for h in hidden)], [*(h.z for h in hidden), passes.z]
    products = [(layer.mm, layer.used, x, z) for layer, x, z in zip(layers, reads, outputs, strict=True)]
    gradients = [*(h.d for h in hidden), network.term.d]
    products += [(layer.mm, d, x.t(), layer.gradient) for layer, d, x in zip(layers, gradients, reads, strict=True)]
    downwards = zip(layers[1:], gradients[1:], hidden, strict=True)
    products += [(layer.mm, layer.used_t, d, h.whole) for layer, d, h in downwards]

    @torch.inference_mode()
    def work() -> None:
        for _ in range(steps):
            for product, left, right, out in products:
                product(left, right, out=out)

    return work


def _network_by_hand(model: AdaptiveMLP, x: Tensor, y: Tensor) -> tuple[Network, Batch]:
    """A network that trains a model by hand, and a batch of all samples."""
    options = FitOptions(batch_size=len(x), lr=_LEARNING_RATE, by_hand=True)
    run = Run(model, Data(x, y), options, None, None, prior=Prior(), budget=None)
    network = make_network(run, Structure.of(model), likelihood.categorical, Prior(), None)
    with torch.inference_mode():
        network.take_()
        return network, next(network.batches(torch.arange(len(y)), 1))


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x).flatten(0, -2), y.flatten())


def mlp(sizes: Sequence[int], activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    """Linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for inside, outside in itertools.pairwise(sizes):
        layers += [nn.Linear(inside, outside), activation()]
    return nn.Sequential(*layers[:-1])


def adaptive_mlp(sizes: Sequence[int]) -> AdaptiveMLP:
    """The same with learned widths, with the defaults of awn."""
    families = [Exponential.for_units(units) for units in sizes[1:-1]]
    return AdaptiveMLP(sizes[0], sizes[-1], hidden_layers=len(families), importance=families)


def transformer_layer(width: int, hidden: int) -> nn.TransformerEncoderLayer:
    """One layer of a Transformer, without dropout."""
    return nn.TransformerEncoderLayer(width, nhead=8, dim_feedforward=hidden, dropout=0.0, batch_first=True)


def adaptive_transformer_layer(width: int, hidden: int) -> nn.Module:
    """The same, with a feed-forward network of a learned width."""
    layer = transformer_layer(width, hidden)
    learned = Width(Exponential.for_units(hidden, scale="unit"))
    connect_(learned, [*produced_by(layer.linear1), *consumed_by(layer.linear2)])
    return layer


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride=outside // inside, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outside)
        skip: Any = nn.Conv2d(inside, outside, 1, stride=2, bias=False) if outside != inside else nn.Identity()
        self.skip = skip

    def forward(self, x: Tensor) -> Tensor:
        """[samples, inside, height, width] → [samples, outside, …]."""
        h = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(h)) + self.skip(x))


def resnet(blocks: int = 3, channels: Sequence[int] = (16, 32, 64)) -> nn.Sequential:
    """ResNet-20 with three blocks at each of three sizes."""
    layers: list[nn.Module] = [nn.Conv2d(3, channels[0], 3, padding=1, bias=False), nn.BatchNorm2d(channels[0])]
    for inside, outside in itertools.pairwise([channels[0], *channels]):
        layers += [Block(inside if number == 0 else outside, outside) for number in range(blocks)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], 10))


def adaptive_resnet(blocks: int = 3, channels: Sequence[int] = (16, 32, 64)) -> nn.Module:
    """The same, with a learned number of channels inside each block."""
    model = resnet(blocks, channels)
    for block in model:
        if isinstance(block, Block):
            learned = Width(Exponential.for_units(block.first.out_channels, scale="unit"))
            made = [Axis(block.first, "weight", 0, "producer", size_name="out_channels")]
            read = [Axis(block.second, "weight", 1, "consumer", size_name="in_channels")]
            connect_(learned, [*made, *produced_by(block.first_norm), *read])
    return model


def _mlp_pair(sizes: Sequence[int], batch: int) -> NetworkPair:
    name = f"{'→'.join(map(str, sizes))}, batch {batch}"
    return NetworkPair(name, partial(mlp, sizes), partial(adaptive_mlp, sizes), (batch, sizes[0]), sizes[-1])


PAIRS = [
    _mlp_pair((2, 231, 2), 128),
    _mlp_pair((48, 231, 231, 2), 128),
    _mlp_pair((512, 1024, 512), 128),
    _mlp_pair((512, 1024, 512), 2048),
    NetworkPair(
        "Transformer layer 512, FFN 1024, 2048 tokens",
        partial(transformer_layer, 512, 1024),
        partial(adaptive_transformer_layer, 512, 1024),
        (16, 128, 512),
        512,
    ),
    NetworkPair("ResNet-20, 32×32, batch 32", resnet, adaptive_resnet, (32, 3, 32, 32), 10),
]

# What `awn.training.fit` trains by hand: sizes and batch.
BY_HAND_PAIRS = [
    ((2, 231, 2), 128),
    ((48, 231, 231, 2), 128),
    ((30, 64, 64, 2), 32),
    ((2, 231, 231, 231, 231, 2), 128),
    ((512, 1024, 512), 128),
]
QUICK_BY_HAND_PAIRS = [((2, 9, 2), 4)]

QUICK_PAIRS = [
    _mlp_pair((2, 9, 2), 4),
    NetworkPair("ResNet-8, 8×8, batch 2", partial(resnet, 1), partial(adaptive_resnet, 1), (2, 3, 8, 8), 10),
]
