"""Budget: nothing under the cap, the overdraft above it, and a gradient that makes layers narrower."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import awn
from awn import AdaptiveMLP, AwnError, Budget, Exponential, PowerLaw, Sigmoid
from awn.advanced import Axis, Width
from awn.core.axes import consumed_by
from awn.datasets import spiral

FAMILIES = [
    pytest.param(Exponential, id="exponential"),
    pytest.param(PowerLaw, id="power-law"),
    pytest.param(Sigmoid, id="sigmoid"),
]


def network(family=Exponential, units=(20, 9), **options) -> AdaptiveMLP:
    torch.manual_seed(0)
    return AdaptiveMLP(3, 2, hidden_layers=2, importance=[family.for_units(n) for n in units], **options)


def penalty(model: nn.Module, budget: Budget) -> torch.Tensor:
    return awn.loss.terms(torch.zeros(()), model, 10, prior=awn.Prior(None), budget=budget)["budget"]


def parameters_of(a: float, b: float) -> float:
    return a * (3 + 1) + b * (a + 1) + 2 * (b + 1)


def flops_of(a: float, b: float) -> float:
    return 2 * (3 * a + a * b + 2 * b)


COSTS = {"max_units": lambda a, b: a + b, "max_params": parameters_of, "max_flops": flops_of}


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("block", [1, 32])
def test_above_the_cap_the_loss_grows_by_every_time_the_cap(kind, block):
    cost = COSTS[kind](20, 9)
    for share, strength in ((0.5, 1.0), (0.9, 3.0)):
        cap = share * cost
        found = penalty(network(block=block), Budget(**{kind: cap}, strength=strength))
        assert found.item() == pytest.approx(strength * (1 / share - 1), rel=1e-5)


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("over", [0, 1, 1000])
def test_at_and_under_the_cap_there_is_nothing(kind, over):
    model = network()
    found = penalty(model, Budget(**{kind: COSTS[kind](20, 9) + over}))
    assert found == 0
    found.backward()
    for layer in model.hidden:
        assert layer.width.log_nu.grad == 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", COSTS)
def test_the_gradient_is_that_of_the_cost_at_the_soft_widths(family, kind):
    # d cost / d log ν = Σ ∂cost/∂width · d soft width / d log ν, the last by a central difference.
    model = network(family).double()
    cap = 0.5 * COSTS[kind](20, 9)
    penalty(model, Budget(**{kind: cap})).backward()
    for number, layer in enumerate(model.hidden):
        width, step = layer.width, 1e-5
        log_nu = width.log_nu.item()
        softs = [width.family.soft_width(0.9, width.family.lower + math.exp(log_nu + d)) for d in (step, -step)]
        slope = (softs[0] - softs[1]) / (2 * step)
        shift = [(0.5, 0.0), (0.0, 0.5)][number]  # costs are linear in each width, so this difference is exact
        marginal = COSTS[kind](20 + shift[0], 9 + shift[1]) - COSTS[kind](20 - shift[0], 9 - shift[1])
        assert width.log_nu.grad.item() == pytest.approx(marginal * slope / cap, rel=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", COSTS)
def test_a_step_against_the_gradient_makes_layers_narrower(family, kind):
    model = network(family)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    before = [layer.width.soft_units().item() for layer in model.hidden]
    penalty(model, Budget(**{kind: 0.5 * COSTS[kind](20, 9)})).backward()
    optimizer.step()
    after = [layer.width.soft_units().item() for layer in model.hidden]
    assert all(a < b for a, b in zip(after, before, strict=True))


def test_a_shared_width_counts_its_square():
    model = AdaptiveMLP(3, 2, hidden_layers=2, shared_width=True, importance=Exponential.for_units(20)).double()
    penalty(model, Budget(max_params=100)).backward()
    width = model.hidden[0].width
    # a(3 + 1) + a(a + 1) + 2(a + 1); the soft width is proportional to 1/ν.
    assert penalty(model, Budget(max_params=100)).item() == pytest.approx((80 + 420 + 42) / 100 - 1)
    assert width.log_nu.grad.item() == pytest.approx(-(4 + 2 * 20 + 1 + 2) * width.soft_units().item() / 100)


def test_parameters_count_plain_layers_and_norms_too():
    model = nn.Sequential(nn.Linear(3, 3), network(batch_norm=True))
    cost = 12 + parameters_of(20, 9) + 2 * (20 + 9)
    assert penalty(model, Budget(max_params=100)).item() == pytest.approx(cost / 100 - 1)


def convolutional() -> nn.Sequential:
    width = Width(Exponential.for_units(5), block=8)
    first, last = nn.Conv2d(2, 8, 3), nn.Linear(16 * 8, 3)
    axes = [Axis(first, "weight", 0, "producer"), Axis(first, "bias", 0, "producer"), *consumed_by(last, repeat=16)]
    awn.advanced.connect_(width, axes)
    return nn.Sequential(first, nn.Flatten(), last)


def test_flops_count_every_position_of_a_convolution():
    cost = 2 * 16 * (5 * 2 * 9) + 2 * (3 * 5 * 16)
    found = penalty(convolutional(), Budget(max_flops=100, positions={"0": 16}))
    assert found.item() == pytest.approx(cost / 100 - 1, rel=1e-6)


def test_positions_of_a_layer_that_is_not_there_are_refused():
    with pytest.raises(AwnError, match="'conv1'"):
        penalty(convolutional(), Budget(max_flops=100, positions={"conv1": 16}))


def test_positions_of_convolutions_are_not_guessed():
    with pytest.raises(AwnError, match=r"convolution '0' uses its weight. Pass positions=awn.advanced.positions"):
        penalty(convolutional(), Budget(max_flops=100))


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(max_units=1), r"a budget of 1 cannot be met: the network always has 2 units, the layers' min_units"),
        (
            Budget(max_params=10),
            r"a budget of 10 cannot be met: the network always has 22 parameters that no learned width",
        ),
    ],
)
def test_a_cap_that_no_width_meets_is_refused(budget, message):
    model = nn.Sequential(nn.Linear(3, 5), awn.AdaptiveMLP(5, 2, hidden_layers=2))
    with pytest.raises(AwnError, match=message):
        budget.penalty(model, awn.advanced.find_groups(model))


def test_the_objective_adds_the_penalty_undivided():
    model = network()
    options = {"prior": awn.Prior(None), "budget": Budget(max_units=10)}
    result = awn.objective(torch.tensor(2.0), model, 1000, **options)
    assert awn.loss.terms(torch.tensor(2.0), model, 1000, **options)["budget"].item() == pytest.approx(1.9)
    assert result.item() == pytest.approx(3.9)


@pytest.mark.parametrize("kind", ["units", "parameters"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_short_training_ends_at_or_under_the_cap(kind, seed):
    torch.manual_seed(seed)
    model = AdaptiveMLP(2, 2, hidden_layers=2, importance=Exponential.for_units(64), activation="relu6")
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.02))
    x, y = spiral(seed, per_class=64)
    budget = Budget(max_units=60) if kind == "units" else Budget(max_params=1000)

    def cost() -> int:
        return sum(awn.widths(model).values()) if kind == "units" else awn.advanced.count_parameters(model)

    cap = budget.max_units or budget.max_params
    assert cost() > 1.5 * cap
    for _ in range(80):
        nll = awn.likelihood.categorical(model(x), y)
        loss = awn.objective(nll, model, len(y), budget=budget)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        awn.resize_(model, optimizer)
    assert cost() <= cap
    assert cost() > cap / 2  # it stops pushing once the cap is met


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one cap: set max_units, max_params or max_flops"),
        ({"max_units": 10, "max_flops": 1e6}, "exactly one cap: set max_units, max_params or max_flops"),
        ({"max_units": 0}, "cap must be a finite number above 0, got 0"),
        ({"max_params": -5}, "cap .* got -5"),
        ({"max_flops": math.inf}, "cap .* got inf"),
        ({"max_flops": math.nan}, "cap .* got nan"),
        ({"max_units": 10, "strength": 0.0}, "strength must be a finite number above 0, got 0"),
        ({"max_units": 10, "strength": math.inf}, "strength .* got inf"),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(AwnError, match=message):
        Budget(**options)


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec")
def test_flops_of_a_compiled_model_are_those_of_the_model():
    model, budget = convolutional(), Budget(max_flops=100, positions={"0": 16})
    assert penalty(torch.compile(model, backend="eager"), budget) == penalty(model, budget)
