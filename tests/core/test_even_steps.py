"""Even steps: under SGD, an adaptive network of fixed widths trains like the plain network that it computes."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import awn
from awn.advanced import even_steps_, find_groups
from awn.core.even_steps import _divide_gradients_


def perceptron() -> tuple[nn.Module, torch.Tensor]:
    return awn.AdaptiveMLP(3, 2, hidden_layers=2, importance=awn.Exponential.for_units(9)), torch.randn(16, 3)


def convolutions() -> tuple[nn.Module, torch.Tensor]:
    model = nn.Sequential(
        *(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 5, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(5 * 16, 2)),
    )
    x = torch.randn(16, 1, 8, 8)
    awn.adapt_(model, example_input=x)
    return model, x


def recurrent() -> tuple[nn.Module, torch.Tensor]:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.read = nn.GRU(3, 7, batch_first=True), nn.Linear(7, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.read(self.gru(x)[1][-1])

    model, x = Reader(), torch.randn(16, 5, 3)
    awn.adapt_(model, example_input=x)
    return model, x


def several_gates() -> tuple[nn.Module, torch.Tensor]:
    """A layer that reads the same units twice, beside the inputs and other units."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.read = nn.Linear(3, 6), nn.Linear(3, 4), nn.Linear(6 + 3 + 4 + 6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            one, two = torch.relu(self.one(x)), torch.relu(self.two(x))
            return self.read(torch.cat([one, x, two, one], 1))

    model, x = Joined(), torch.randn(16, 3)
    awn.adapt_(model, example_input=x)
    return model, x


MODELS = {
    "perceptron": perceptron,
    "convolutions": convolutions,
    "recurrent": recurrent,
    "several gates": several_gates,
}


def train(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.SGD, steps: int = 8) -> list[float]:
    y, losses = torch.arange(len(x)) % 2, []
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_fixed_widths_training_is_that_of_the_plain_network(name, momentum):
    torch.manual_seed(0)
    model, x = MODELS[name]()
    model.double()
    x = x.double()
    plain = awn.finalize(copy.deepcopy(model))
    adaptive, ordinary, uneven = model, plain, copy.deepcopy(model)
    options = {"momentum": momentum, "weight_decay": 0.01}
    found = []
    for one in (adaptive, ordinary, uneven):
        if one is not ordinary:
            for group in find_groups(one):
                group.width.log_nu.requires_grad_(False)
        weights = [p for p in one.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(weights, lr=0.05, **options)
        if one is adaptive:
            even_steps_(one, optimizer)
        found.append(train(one, x, optimizer))
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert found[2] != pytest.approx(found[1], rel=1e-3)  # what it is without
    torch.testing.assert_close(adaptive(x), ordinary(x))


def test_gradients_are_divided_by_the_squared_importance_and_nothing_else_is():
    torch.manual_seed(0)
    model, x = perceptron()
    F.cross_entropy(model(x), torch.arange(16) % 2).backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters()}
    first = model.hidden[0].width
    rate, units = first.nu.item(), first.units
    _divide_gradients_([*model.modules()], torch.optim.SGD(model.parameters(), lr=0.1))
    for name, parameter in model.named_parameters():
        if name not in ("hidden.1.weight", "output.weight"):
            assert torch.equal(parameter.grad, before[name]), name
    # f_j = f_0 e^(−νj), so the factor of a unit over that of the first is e^(2νj).
    old = before["hidden.1.weight"][:, :units]
    new = model.hidden[1]._parameters["weight"].grad[:, :units]
    trained = (old != 0).all(1)
    factors = new[trained] / old[trained]
    expected = torch.tensor([math.exp(2 * rate * unit) for unit in range(units)])
    assert len(factors)
    torch.testing.assert_close(factors / factors[:, :1], expected.expand_as(factors), rtol=1e-3, atol=0)


def test_a_closure_is_run_before_its_gradients_are_divided():
    torch.manual_seed(0)
    model, x = perceptron()
    other, y = copy.deepcopy(model), torch.arange(16) % 2
    first, second = (torch.optim.SGD(awn.param_groups(one, lr=0.1), momentum=0.9) for one in (model, other))
    even_steps_(model, first)
    even_steps_(other, second)
    for by_name in (False, True):

        def closure() -> torch.Tensor:
            first.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        loss = first.step(closure=closure) if by_name else first.step(closure)
        assert loss.item() == pytest.approx(F.cross_entropy(model(x), y).item(), rel=0.5)
        train(other, x, second, steps=1)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_each_optimizer_divides_its_own_gradients():
    torch.manual_seed(0)
    model, x = perceptron()
    other, y = copy.deepcopy(model), torch.arange(16) % 2
    weights = [[p for name, p in one.named_parameters() if "width" not in name] for one in (model, other)]
    whole = torch.optim.SGD(weights[1], lr=0.1)
    even_steps_(other, whole)
    parts = [torch.optim.SGD(weights[0][part::2], lr=0.1) for part in (0, 1)]
    for part in parts:
        even_steps_(model, part)
    for one, optimizers in ((model, parts), (other, [whole])):
        F.cross_entropy(one(x), y).backward()
        for optimizer in optimizers:
            optimizer.step()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_units_of_next_to_no_importance_take_finite_steps():
    """250 units where ν is that of ten: the last importance is 1e-25, whose square is 0 in single precision."""
    torch.manual_seed(0)
    model = awn.AdaptiveMLP(3, 2, importance=awn.Exponential.for_units(10))
    optimizer = torch.optim.SGD(awn.param_groups(model, lr=1e-3))
    even_steps_(model, optimizer)
    awn.advanced.set_units_(model, {"hidden.0": 250}, optimizer)
    x = torch.randn(16, 3)
    train(model, x, optimizer, steps=1)
    assert torch.isfinite(model(x)).all()


def test_units_beyond_a_prefix_are_divided_too():
    torch.manual_seed(0)
    model = awn.AdaptiveMLP(3, 2, importance=awn.Exponential.for_units(9), ordered=1.0)
    optimizer = torch.optim.SGD(awn.param_groups(model, lr=0.1))
    awn.resize_(model, optimizer)  # draws a prefix
    weight = model.output._parameters["weight"]
    weight.grad = torch.ones_like(weight)
    _divide_gradients_([*model.modules()], optimizer)
    importance = model.hidden[0].width.importance().detach()
    used = importance > 0
    torch.testing.assert_close(weight.grad[:, used], (importance[used] ** -2).expand(2, -1))


def test_slots_beyond_the_width_stay_empty_and_widths_may_change():
    torch.manual_seed(0)
    model, x = perceptron()
    optimizer = torch.optim.SGD(awn.param_groups(model, lr=0.05, width_lr=2.0), momentum=0.9)
    even_steps_(model, optimizer)
    widths = set()
    y = torch.arange(len(x)) % 2
    for _ in range(40):
        loss = awn.objective(F.cross_entropy(model(x), y), model, n_samples=len(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        awn.resize_(model, optimizer)
        widths.add(tuple(awn.widths(model).values()))
    assert len(widths) > 1
    width, weight = model.hidden[0].width, model.hidden[1]._parameters["weight"]
    assert width.capacity > width.units
    assert not weight[:, width.units :].any()
    assert torch.isfinite(model(x)).all()


def test_without_its_handle_steps_are_those_of_sgd():
    torch.manual_seed(0)
    model, x = perceptron()
    other = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(awn.param_groups(one, lr=0.1)) for one in (model, other)]
    even_steps_(model, optimizers[0]).remove()
    assert train(model, x, optimizers[0]) == train(other, x, optimizers[1])


def test_fit_trains_with_even_steps_by_autograd():
    """The step by hand does not know the hook, and leaves such a training to autograd."""
    model, x = perceptron()
    optimizer = torch.optim.SGD(awn.param_groups(model, lr=0.05))
    even_steps_(model, optimizer)
    data = awn.training.Data(x, torch.arange(16) % 2)
    options = awn.training.FitOptions(epochs=2, batch_size=8, choose=None)
    history = awn.training.fit(model, data, loss=awn.likelihood.categorical, options=options, optimizer=optimizer)
    assert [row["path"] for row in history] == ["autograd", "autograd"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda model: torch.optim.Adam(awn.param_groups(model, lr=0.1)), "for one torch.optim.SGD, got Adam"),
        (
            lambda model: torch.optim.SGD(awn.param_groups(model, lr=0.1, prior=awn.Prior(1.0), n_samples=10)),
            "without prior=",
        ),
    ],
)
def test_an_optimizer_that_does_not_fit_is_refused(make, words):
    model, _ = perceptron()
    with pytest.raises(awn.AwnError, match=words):
        even_steps_(model, make(model))


def test_a_plain_model_is_refused():
    model = nn.Linear(2, 2)
    with pytest.raises(awn.AwnError, match="no layer with a learned width"):
        even_steps_(model, torch.optim.SGD(model.parameters(), lr=0.1))
