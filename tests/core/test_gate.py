"""Gate: scaling a weight's columns by the importance of the units it reads, and taking the gate off again."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

import awn
from awn import Axis, Exponential, Width
from awn.core.axes import consumed_by, produced_by
from awn.core.gate import remove_gate_


def importance(rate: float, units: int, capacity: int) -> torch.Tensor:
    """The paper's f, written anew: zero beyond the width."""
    f = [math.exp(-rate * j) - math.exp(-rate * (j + 1)) if j < units else 0.0 for j in range(capacity)]
    return torch.tensor(f)


def gated_linear(units: int = 5, block: int = 8) -> tuple[nn.Linear, nn.Linear, Width]:
    torch.manual_seed(0)
    width = Width(Exponential.for_units(units), block=block)
    first, second = nn.Linear(3, width.capacity), nn.Linear(width.capacity, 2)
    awn.connect_(width, [*produced_by(first), *consumed_by(second)])
    return first, second, width


def stored(layer: nn.Module) -> nn.Parameter:
    return layer.parametrizations["weight"].original


def test_a_linear_layer_reads_scaled_units():
    _, second, width = gated_linear()
    h = torch.randn(4, 8)
    expected = F.linear(h * importance(width.value, 5, 8), stored(second), second.bias)
    torch.testing.assert_close(second(h), expected)


def test_a_convolution_reads_scaled_channels():
    torch.manual_seed(0)
    width = Width(Exponential.for_units(5), block=8)
    first, second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 2, 3)
    awn.connect_(width, [Axis(first, "weight", 0, "producer"), Axis(second, "weight", 1, "consumer")])
    h = torch.randn(4, 8, 6, 6)
    scaled = h * importance(width.value, 5, 8).view(8, 1, 1)
    torch.testing.assert_close(second(h), F.conv2d(scaled, stored(second), second.bias))


def test_a_transposed_convolution_reads_along_its_first_dimension():
    torch.manual_seed(0)
    width = Width(Exponential.for_units(5), block=8)
    first, second = nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 2, 3)
    awn.connect_(width, [Axis(first, "weight", 0, "producer"), Axis(second, "weight", 0, "consumer")])
    h = torch.randn(4, 8, 6, 6)
    scaled = h * importance(width.value, 5, 8).view(8, 1, 1)
    torch.testing.assert_close(second(h), F.conv_transpose2d(scaled, stored(second), second.bias))


def test_repeat_reads_several_entries_of_each_unit():
    torch.manual_seed(0)
    width = Width(Exponential.for_units(5), block=8)
    first, second = nn.Conv2d(3, 8, 3), nn.Linear(8 * 16, 2)
    awn.connect_(width, [Axis(first, "weight", 0, "producer"), *consumed_by(second, repeat=16)])
    h = torch.randn(4, 8, 4, 4)
    scaled = h * importance(width.value, 5, 8).view(8, 1, 1)
    torch.testing.assert_close(second(h.flatten(1)), F.linear(scaled.flatten(1), stored(second), second.bias))


def test_gradients_are_those_of_scaled_activations():
    first, second, width = gated_linear()
    x = torch.randn(4, 3)
    second(first(x).tanh()).square().sum().backward()

    f = importance(width.value, 5, 8)
    weight, bias = stored(second).detach().clone().requires_grad_(), second.bias.detach().clone().requires_grad_()
    F.linear(first(x).tanh().detach() * f, weight, bias).square().sum().backward()
    torch.testing.assert_close(stored(second).grad, weight.grad)
    assert (stored(second).grad[:, 5:] == 0).all()
    assert (first.weight.grad[5:] == 0).all()
    assert (stored(second).grad[:, :5] != 0).all()
    assert (first.weight.grad[:5] != 0).all()


def test_a_gate_follows_nu_and_the_width():
    first, second, width = gated_linear()
    model = nn.Sequential(first, second)
    width.move_to_(12)
    awn.resize_(model, None)
    torch.testing.assert_close(second.weight, stored(second) * importance(width.value, 12, 16))
    assert second.weight.shape == (2, 16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_gated_weight_keeps_its_type(dtype):
    width = Width(Exponential.for_units(5), block=8)
    first, second = nn.Linear(3, 8, dtype=dtype), nn.Linear(8, 2, dtype=dtype)
    awn.connect_(width, [*produced_by(first), *consumed_by(second)])
    assert (second.weight.dtype, width.log_nu.dtype) == (dtype, torch.float32)


def test_the_width_is_registered_once():
    first, second, _ = gated_linear()
    model = nn.Sequential(first, second)
    assert [name for name, module in model.named_modules() if isinstance(module, Width)] == ["0.width"]
    assert set(model.state_dict()) == {
        "0.weight",
        "0.bias",
        "0.width.log_nu",
        "0.width._extra_state",
        "1.bias",
        "1.parametrizations.weight.original",
    }


def test_two_gates_on_one_weight_multiply():
    torch.manual_seed(0)
    rows, columns = Width(Exponential.for_units(3), block=4), Width(Exponential.for_units(5), block=8)
    one, two, both = nn.Linear(2, 4), nn.Linear(2, 8), nn.Bilinear(4, 8, 1)
    awn.connect_(rows, [*produced_by(one), Axis(both, "weight", 1, "consumer")])
    awn.connect_(columns, [*produced_by(two), Axis(both, "weight", 2, "consumer")])
    a, b = torch.randn(6, 4), torch.randn(6, 8)
    scaled = F.bilinear(a * importance(rows.value, 3, 4), b * importance(columns.value, 5, 8), stored(both), both.bias)
    torch.testing.assert_close(both(a, b), scaled)


def test_a_gate_that_is_removed_leaves_a_plain_layer_that_computes_the_same():
    _, second, width = gated_linear()
    h = torch.randn(4, 8)
    before = second(h)
    remove_gate_(width.axes[-1])
    assert type(second) is nn.Linear
    assert not parametrize.is_parametrized(second)
    assert isinstance(second.weight, nn.Parameter)
    torch.testing.assert_close(second(h), before)


def test_removing_a_copys_gate_leaves_the_original_gated():
    first, second, _ = gated_linear()
    model, x = nn.Sequential(first, nn.ReLU(), second), torch.randn(4, 3)
    before = model(x)
    twin = copy.deepcopy(model)
    remove_gate_(twin[0].width.axes[-1])
    torch.testing.assert_close(twin(x), before)
    torch.testing.assert_close(model(x), before)
    assert parametrize.is_parametrized(model[2], "weight")


def test_a_model_can_be_used_trained_and_finalized_again_after_finalize():
    torch.manual_seed(0)
    model, x = awn.AdaptiveMLP(2, 1, hidden_layers=2, importance=Exponential.for_units(6)), torch.randn(4, 2)
    before = model(x)
    torch.testing.assert_close(awn.finalize(model)(x), before)
    torch.testing.assert_close(model(x), before)
    model(x).sum().backward()
    torch.testing.assert_close(awn.finalize(model)(x), before)


# However a gated weight is read, it is the product


def test_a_gated_weight_follows_parameters_that_are_given_in_a_call():
    first, second, width = gated_linear()
    model, x = nn.Sequential(first, nn.ReLU(), second), torch.randn(4, 3)
    given = {name: parameter.detach() * 0.5 for name, parameter in model.named_parameters()}
    given["0.width.log_nu"] = width.log_nu.detach() + 0.3
    h = F.relu(F.linear(x, given["0.weight"], given["0.bias"]))
    f = importance(width.value * math.exp(0.3), 5, 8)
    expected = F.linear(h * f, given["2.parametrizations.weight.original"], given["2.bias"])
    torch.testing.assert_close(torch.func.functional_call(model, given, (x,)), expected)


def test_a_gated_weight_follows_every_way_of_changing_nu():
    """Some of these, such as a fused optimizer, leave no trace in a tensor's version counter."""
    _, second, width = gated_linear()
    optimizer = torch.optim.Adam([width.log_nu], lr=0.1, fused=True)

    def step() -> None:
        width.log_nu.grad = torch.tensor(1.0)
        optimizer.step()

    def assign() -> None:
        width.log_nu.data = width.log_nu.data + 0.1

    for change in (step, assign, lambda: width.log_nu.data.add_(0.1), lambda: width.move_(-1.0)):
        before = second.weight.detach()
        change()
        torch.testing.assert_close(second.weight, stored(second) * importance(width.value, 5, 8))
        assert not torch.equal(second.weight, before)


def test_gradients_are_right_with_checkpointing_and_with_two_forwards_before_a_backward():
    first, second, _ = gated_linear()
    model = nn.Sequential(first, nn.Tanh(), second)
    a, b = torch.randn(2, 4, 3)

    def found(loss: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(loss, list(model.parameters())))

    both = found(model(a).square().sum() + model(b).square().sum())
    kept = checkpoint(model, a, use_reentrant=False).square().sum()
    with torch.no_grad():
        model.eval()(b)
    one, other = found(kept), found(model.train()(b).square().sum())
    for sum_, x, y in zip(both, one, other, strict=True):
        torch.testing.assert_close(sum_, x + y)


def test_a_gated_weight_can_be_given_another_parametrization_on_top():
    _, second, width = gated_linear()

    class Double(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return 2 * weight

    parametrize.register_parametrization(second, "weight", Double())
    torch.testing.assert_close(second.weight, 2 * stored(second) * importance(width.value, 5, 8))


def test_a_compiled_model_sees_new_widths_with_at_most_one_recompilation():
    torch._dynamo.reset()
    compiled: list[int] = []

    def count(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        compiled.append(1)
        return graph

    model = awn.AdaptiveMLP(2, 2, hidden_layers=2, importance=Exponential.for_units(60), block=32)
    optimizer, x = torch.optim.Adam(model.parameters(), fused=True), torch.randn(4, 2)
    faster = torch.compile(model, backend=count)
    for number in range(30):
        awn.set_units_(model, dict.fromkeys(awn.widths(model), 40 + number % 20), optimizer)
        torch.testing.assert_close(faster(x), model(x))
        faster(x).sum().backward()
        optimizer.step()
    assert 1 <= len(compiled) <= 2


@pytest.mark.parametrize("repeat", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3,), (2, 3), ()])
def test_few_inputs_are_gated_in_the_place_of_the_weight_with_the_same_result(
    shape: tuple[int, ...], bias: bool, repeat: int
) -> None:
    torch.manual_seed(0)
    producer, consumer = nn.Linear(2, 8).double(), nn.Linear(8 * repeat, 7, bias=bias).double()
    width = Width(Exponential.for_units(5), dtype=torch.float64)
    awn.connect_(width, [*produced_by(producer), *consumed_by(consumer, repeat)])
    leaves = [stored(consumer), width.log_nu]
    few = torch.randn(*shape, 8 * repeat, dtype=torch.float64)
    assert few.numel() < stored(consumer).numel()
    found, expected = consumer(few), F.linear(few, consumer.weight, consumer.bias)
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(found)
    gradients = [torch.autograd.grad((output * direction).sum(), leaves) for output in (found, expected)]
    torch.testing.assert_close(gradients[0], gradients[1])


def test_a_layer_with_a_forward_of_its_own_keeps_it() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    torch.manual_seed(0)
    producer, consumer, x = nn.Linear(2, 8), Doubled(8, 50), torch.randn(1, 8)
    awn.connect_(Width(Exponential.for_units(5)), [*produced_by(producer), *consumed_by(consumer)])
    torch.testing.assert_close(consumer(x), 2 * F.linear(x, consumer.weight, consumer.bias))


def test_hooks_of_a_layer_see_the_units_as_they_are() -> None:
    model, seen = awn.AdaptiveMLP(2, 50), []
    model.output.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    x = torch.randn(1, 2)
    model(x)
    torch.testing.assert_close(seen[0], torch.relu(model.hidden[0](x)))


def test_a_cached_weight_is_computed_once_and_is_not_another_modules() -> None:
    model = awn.AdaptiveMLP(2, 2)
    other = copy.deepcopy(model)
    assert model.output.weight is not model.output.weight
    with parametrize.cached():
        assert model.output.weight is model.output.weight
        assert other.output.weight is other.output.weight
        assert other.output.weight is not model.output.weight
    assert not parametrize._cache
