"""Shared tables: the models and optimizers that laws are tested over, and ways to look inside a model.

What is said here about shapes is worked out from the architecture alone, not asked of the code under test.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

import awn

IN, OUT = 3, 2

MODELS: dict[str, dict[str, Any]] = {
    "1 layer": {"hidden_layers": 1},
    "2 layers": {"hidden_layers": 2},
    "4 layers": {"hidden_layers": 4},
    "batch norm": {"hidden_layers": 2, "batch_norm": True},
    "dropout": {"hidden_layers": 2, "dropout": 0.2},
    "shared width": {"hidden_layers": 3, "shared_width": True},
}

MakeOptimizer = Callable[[Iterable[Any]], Optimizer]
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "SGD nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.02),
    "Adam amsgrad": lambda p: torch.optim.Adam(p, lr=0.02, amsgrad=True),
    "Adam fused": lambda p: torch.optim.Adam(p, lr=0.02, fused=True),
    "Adam foreach": lambda p: torch.optim.Adam(p, lr=0.02, foreach=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.02),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.02),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
}

# The names of the state that each optimizer keeps for a weight: those of the weight's shape, and the scalars.
STATE_KEYS: dict[str, set[str]] = {
    "SGD": set(),
    "SGD momentum": {"momentum_buffer"},
    "SGD nesterov": {"momentum_buffer"},
    "Adam": {"step", "exp_avg", "exp_avg_sq"},
    "Adam amsgrad": {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    "Adam fused": {"step", "exp_avg", "exp_avg_sq"},
    "Adam foreach": {"step", "exp_avg", "exp_avg_sq"},
    "AdamW": {"step", "exp_avg", "exp_avg_sq"},
    "RMSprop": {"step", "square_avg", "momentum_buffer", "grad_avg"},
    "Adagrad": {"step", "sum"},
    "NAdam": {"step", "mu_product", "exp_avg", "exp_avg_sq"},
    "RAdam": {"step", "exp_avg", "exp_avg_sq"},
    "Adadelta": {"step", "square_avg", "acc_delta"},
}

BLOCKS = (1, 32)


def pairwise(*factors: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Some rows of the factors' product, in which every two values of two factors meet at least once.

    Most faults need no more than two factors to come together, and a full product takes many times the time. Greedy,
    and so always the same: the row that brings the most pairs that were not there yet, the first of equals.
    """
    rows = list(itertools.product(*map(list, factors)))
    pairs = {row: set(itertools.combinations(enumerate(row), 2)) for row in rows}
    missing = set().union(*pairs.values())
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(pairs[row] & missing))
        chosen.append(best)
        missing -= pairs[best]
    return sorted(chosen, key=rows.index)


def build(case: str = "2 layers", *, units: int = 40, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    """A model of the table. With tanh no unit is ever dead, and new units count, so every weight has a gradient."""
    importance = options.pop("importance", awn.Exponential.for_units(units, scale="unit"))
    made = {"activation": "tanh", "new_units": "rescaled", "importance": importance, **MODELS[case], **options}
    return awn.AdaptiveMLP(IN, OUT, **made).to(dtype)


def batch(model: nn.Module, samples: int = 16) -> tuple[Tensor, Tensor]:
    """Inputs and targets from torch's global generator, in the model's precision."""
    x = torch.randn(samples, IN, dtype=next(model.parameters()).dtype)
    return x, torch.stack([x.sum(1).sin(), x.prod(1)], dim=1)


def loss_of(model: nn.Module, data: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """The objective on a batch, on a fresh one unless it is given."""
    x, y = batch(model) if data is None else data
    return awn.objective(F.mse_loss(model(x), y), model, n_samples=100)


def train_step(model: nn.Module, optimizer: Optimizer, data: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """One ordinary step, without a resize; the loss is returned, and with it the graph stays alive."""
    loss = loss_of(model, data)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def move_widths_(model: nn.Module, units: int) -> dict[str, int]:
    """Have every layer's ν ask for a width, `units` for the first, one less for each one after it; returns them."""
    asked = {group.name: max(1, units - number) for number, group in enumerate(awn.advanced.find_groups(model))}
    for group in awn.advanced.find_groups(model):
        group.width.move_to_(asked[group.name])
    return asked


def layer_units(model: Any) -> list[int]:
    """The number of units of each hidden layer of an AdaptiveMLP."""
    learned = list(awn.widths(model).values())
    return learned * (len(model.hidden) // len(learned))


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and lasting buffer by the name it has in a plain model."""
    return {
        name: tensor
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
        if not name.endswith((".index", ".active"))
    }


def active_shapes(model: Any, units: list[int] | None = None) -> dict[str, tuple[int, ...]]:
    """The shape that the active units take up in each tensor of an AdaptiveMLP, worked out from its architecture."""
    sizes = layer_units(model) if units is None else units
    shapes: dict[str, tuple[int, ...]] = {"output.weight": (OUT, sizes[-1])}
    for number, (inside, outside) in enumerate(itertools.pairwise([IN, *sizes])):
        shapes[f"hidden.{number}.weight"] = (outside, inside)
        shapes[f"hidden.{number}.bias"] = (outside,)
        for name in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"norms.{number}.{name}"] = (outside,)
    return {name: shapes.get(name, tuple(tensor.shape)) for name, tensor in tensors_of(model).items()}


def with_state(model: nn.Module, *optimizers: Optimizer) -> Iterator[tuple[str, str, Any]]:
    """(tensor's name, what it is, value) for every tensor, and for all that the optimizers keep for it."""
    for name, tensor in tensors_of(model).items():
        yield name, "value", tensor.detach()
        for optimizer in optimizers:
            for key, value in optimizer.state.get(tensor, {}).items():
                yield name, key, value


def leading(value: Any, shape: tuple[int, ...]) -> Any:
    """The leading part of a tensor; anything that has no units is taken whole."""
    if not isinstance(value, Tensor) or value.dim() != len(shape):
        return value
    return value[tuple(slice(size) for size in shape)]


def active_parts(
    model: Any, *optimizers: Optimizer, shapes: dict[str, tuple[int, ...]] | None = None
) -> dict[tuple[str, str], Any]:
    """A copy of what belongs to active units, or to the leading units of `shapes`."""
    shapes = active_shapes(model) if shapes is None else shapes
    return {
        (name, kind): copy.deepcopy(leading(value, shapes[name]))
        for name, kind, value in with_state(model, *optimizers)
    }


def assert_inert_is_zero(model: Any, *optimizers: Optimizer) -> None:
    """Slots of inert units hold exactly zero, in the weights, their gradients and the optimizers' state."""
    shapes = active_shapes(model)
    gradients = ((name, "grad", t.grad) for name, t in tensors_of(model).items() if t.grad is not None)
    for name, kind, value in itertools.chain(with_state(model, *optimizers), gradients):
        if isinstance(value, Tensor) and value.dim() == len(shapes[name]) > 0:
            inert = value.detach().clone()
            leading(inert, shapes[name]).zero_()
            assert not inert.any(), f"{kind} of {name} is not zero in inert slots"


def snapshot(model: nn.Module, *optimizers: Optimizer) -> dict[str, Any]:
    """All that a model and its optimizers are: numbers, objects, records of sizes, and random state."""
    sizes = ("in_features", "out_features", "num_features", "training")
    return {
        "classes": {name: type(module) for name, module in model.named_modules()},
        "objects": dict(model.named_parameters()),
        "values": {name: t.detach().clone() for name, t in [*model.named_parameters(), *model.named_buffers()]},
        "gradients": {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()},
        "sizes": {
            (name, size): getattr(module, size)
            for name, module in model.named_modules()
            for size in sizes
            if hasattr(module, size)
        },
        "widths": {
            (group.name, option): getattr(group.width, option)
            for group in awn.advanced.find_groups(model)
            for option in ("units", "capacity", "quantile", "min_units", "max_units", "block", "new_units")
        },
        "optimizers": [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers],
        "held": [[group["params"] for group in optimizer.param_groups] for optimizer in optimizers],
        "keys of state": [list(optimizer.state) for optimizer in optimizers],
        "random": torch.get_rng_state(),
    }


def assert_same(one: Any, other: Any, path: str = "") -> None:
    """Equal to the last bit; Parameters must be the same objects."""
    assert type(one) is type(other), f"{path}: {type(one).__name__} and {type(other).__name__}"
    if isinstance(one, nn.Parameter):
        assert one is other, f"{path}: another object"
    elif isinstance(one, Tensor):
        assert one.dtype == other.dtype, f"{path}: {one.dtype} and {other.dtype}"
        assert one.shape == other.shape, f"{path}: {tuple(one.shape)} and {tuple(other.shape)}"
        bits, other_bits = (t.detach().contiguous().flatten().view(torch.uint8) for t in (one, other))
        assert torch.equal(bits, other_bits), f"{path}: other numbers"
    elif isinstance(one, dict):
        assert list(one) == list(other), f"{path}: other keys"
        for key in one:
            assert_same(one[key], other[key], f"{path}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), f"{path}: other lengths"
        for number, (first, second) in enumerate(zip(one, other, strict=True)):
            assert_same(first, second, f"{path}/{number}")
    else:
        assert one == other or (one != one and other != other), f"{path}: {one} and {other}"


class Net(nn.Module):
    """A network written by hand, with a convolution whose channels are flattened before they are read."""

    def __init__(self, channels: int = 12, units: int = 20) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, channels, kernel_size=2)
        self.norm = nn.BatchNorm1d(channels)
        self.middle = nn.Linear(2 * channels, units)
        self.head = nn.Linear(units, OUT)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.conv(x[:, None, :])))  # [samples, channels, 2]
        return self.head(torch.tanh(self.middle(x.flatten(1))))


def adaptive_net(channels: int = 12, units: int = 20, *, block: int = 1) -> Net:
    """The same with learned widths, connected as a user would; it is built at the capacity the widths need."""
    first = awn.advanced.Width(awn.Exponential.for_units(channels, scale="unit"), block=block, new_units="rescaled")
    second = awn.advanced.Width(awn.PowerLaw.for_units(units, scale="unit"), block=block, new_units="rescaled")
    net = Net(first.capacity, second.capacity)
    norm = [
        awn.advanced.Axis(net.norm, name, 0, "producer", fill=fill, size_name="num_features")
        for name, fill in {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}.items()
    ]
    awn.advanced.connect_(
        first,
        [
            awn.advanced.Axis(net.conv, "weight", 0, "producer", size_name="out_channels"),
            awn.advanced.Axis(net.conv, "bias", 0, "producer"),
            *norm,
            awn.advanced.Axis(net.middle, "weight", 1, "consumer", layout=2, size_name="in_features"),
        ],
    )
    awn.advanced.connect_(
        second,
        [
            awn.advanced.Axis(net.middle, "weight", 0, "producer", size_name="out_features"),
            awn.advanced.Axis(net.middle, "bias", 0, "producer"),
            awn.advanced.Axis(net.head, "weight", 1, "consumer", size_name="in_features"),
        ],
    )
    return net
