"""Gate: scaling a weight's columns by the importance of the units it reads, and taking the gate off again."""

from __future__ import annotations

import copy
import math
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path

import joblib
import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

import awn
from awn import Exponential
from awn.advanced import Axis, Width
from awn.core.axes import consumed_by, produced_by
from awn.core.gate import Gated, gate_, gates_of, read_once, ungate_
from awn.core.groups import disconnect_


def importance(rate: float, units: int, capacity: int) -> torch.Tensor:
    """The paper's f, written anew: zero beyond the width."""
    f = [math.exp(-rate * j) - math.exp(-rate * (j + 1)) if j < units else 0.0 for j in range(capacity)]
    return torch.tensor(f)


def gated_linear(units: int = 5, block: int = 8) -> tuple[nn.Linear, nn.Linear, Width]:
    torch.manual_seed(0)
    width = Width(Exponential.for_units(units, scale="mass"), block=block)
    first, second = nn.Linear(3, width.capacity), nn.Linear(width.capacity, 2)
    awn.advanced.connect_(width, [*produced_by(first), *consumed_by(second)])
    return first, second, width


def stored(layer: nn.Module) -> nn.Parameter:
    return layer._parameters["weight"]


def test_a_linear_layer_reads_scaled_units():
    _, second, width = gated_linear()
    h = torch.randn(4, 8)
    expected = F.linear(h * importance(width.value, 5, 8), stored(second), second.bias)
    torch.testing.assert_close(second(h), expected)


def test_a_convolution_reads_scaled_channels():
    torch.manual_seed(0)
    width = Width(Exponential.for_units(5, scale="mass"), block=8)
    first, second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 2, 3)
    awn.advanced.connect_(width, [Axis(first, "weight", 0, "producer"), Axis(second, "weight", 1, "consumer")])
    h = torch.randn(4, 8, 6, 6)
    scaled = h * importance(width.value, 5, 8).view(8, 1, 1)
    torch.testing.assert_close(second(h), F.conv2d(scaled, stored(second), second.bias))


def test_a_transposed_convolution_reads_along_its_first_dimension():
    torch.manual_seed(0)
    width = Width(Exponential.for_units(5, scale="mass"), block=8)
    first, second = nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 2, 3)
    awn.advanced.connect_(width, [Axis(first, "weight", 0, "producer"), Axis(second, "weight", 0, "consumer")])
    h = torch.randn(4, 8, 6, 6)
    scaled = h * importance(width.value, 5, 8).view(8, 1, 1)
    torch.testing.assert_close(second(h), F.conv_transpose2d(scaled, stored(second), second.bias))


def test_repeat_reads_several_entries_of_each_unit():
    torch.manual_seed(0)
    width = Width(Exponential.for_units(5, scale="mass"), block=8)
    first, second = nn.Conv2d(3, 8, 3), nn.Linear(8 * 16, 2)
    awn.advanced.connect_(width, [Axis(first, "weight", 0, "producer"), *consumed_by(second, repeat=16)])
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
    width = Width(Exponential.for_units(5, scale="mass"), block=8)
    first, second = nn.Linear(3, 8, dtype=dtype), nn.Linear(8, 2, dtype=dtype)
    awn.advanced.connect_(width, [*produced_by(first), *consumed_by(second)])
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
        "1.weight",
    }


def test_two_gates_on_one_weight_multiply():
    torch.manual_seed(0)
    rows, columns = (Width(Exponential.for_units(units, scale="mass"), block=4) for units in (3, 5))
    one, two, both = nn.Linear(2, 4), nn.Linear(2, 8), nn.Bilinear(4, 8, 1)
    awn.advanced.connect_(rows, [*produced_by(one), Axis(both, "weight", 1, "consumer")])
    awn.advanced.connect_(columns, [*produced_by(two), Axis(both, "weight", 2, "consumer")])
    a, b = torch.randn(6, 4), torch.randn(6, 8)
    scaled = F.bilinear(a * importance(rows.value, 3, 4), b * importance(columns.value, 5, 8), stored(both), both.bias)
    torch.testing.assert_close(both(a, b), scaled)


def test_a_gate_that_is_removed_leaves_a_plain_layer_that_computes_the_same():
    _, second, width = gated_linear()
    h, raw = torch.randn(4, 8), stored(second)
    before = second(h)
    disconnect_(width, fold=True)
    assert type(second) is nn.Linear
    assert second.weight is raw
    torch.testing.assert_close(second(h), before)


def test_a_weight_that_two_layers_share_is_folded_once():
    first, second, width = gated_linear()
    tied = nn.Linear(8, 2)
    other = Width(Exponential.for_units(5), block=8)
    tied.weight = stored(second)
    disconnect_(width, fold=False)
    awn.advanced.connect_(other, [*produced_by(first), *consumed_by(second), *consumed_by(tied)])
    x = torch.randn(40, 8)
    before = second(x), tied(x)
    disconnect_(other, fold=True)
    assert second.weight is tied.weight
    torch.testing.assert_close((second(x), tied(x)), before)


def test_removing_a_copys_gate_leaves_the_original_gated():
    first, second, _ = gated_linear()
    model, x = nn.Sequential(first, nn.ReLU(), second), torch.randn(4, 3)
    before = model(x)
    twin = copy.deepcopy(model)
    disconnect_(twin[0].width, fold=True)
    torch.testing.assert_close(twin(x), before)
    torch.testing.assert_close(model(x), before)
    assert isinstance(model[2], Gated)
    assert not isinstance(twin[2], Gated)


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
    expected = F.linear(h * f, given["2.weight"], given["2.bias"])
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
        awn.advanced.set_units_(model, dict.fromkeys(awn.widths(model), 40 + number % 20), optimizer)
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
    awn.advanced.connect_(width, [*produced_by(producer), *consumed_by(consumer, repeat)])
    leaves = [stored(consumer), width.log_nu]
    few = torch.randn(*shape, 8 * repeat, dtype=torch.float64)
    assert few.numel() < stored(consumer).numel()
    found, expected = consumer(few), F.linear(few, consumer.weight, consumer.bias)
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(found)
    gradients = [torch.autograd.grad((output * direction).sum(), leaves) for output in (found, expected)]
    torch.testing.assert_close(gradients[0], gradients[1])


def test_hooks_of_a_layer_see_the_units_as_they_are() -> None:
    model, seen = awn.AdaptiveMLP(2, 50), []
    model.output.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    x = torch.randn(1, 2)
    model(x)
    torch.testing.assert_close(seen[0], torch.relu(model.hidden[0](x)))


def test_a_weight_that_is_read_once_is_computed_once_and_is_not_another_modules() -> None:
    model = awn.AdaptiveMLP(2, 2)
    other = copy.deepcopy(model)
    assert model.output.weight is not model.output.weight
    with read_once(model), read_once(other):
        assert model.output.weight is model.output.weight
        assert other.output.weight is other.output.weight
        assert other.output.weight is not model.output.weight
        with read_once(model):  # a part that does the same
            assert model.output.weight is model.output.weight
        assert model.output.weight is model.output.weight
    assert model.output.weight is not model.output.weight


# Every kind of layer, and back


class Doubled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


class Slotted(nn.Linear):
    __slots__ = ("extra",)


class Meta(type):
    pass


class Made(nn.Linear, metaclass=Meta):
    pass


UNITS = 8
LAYERS: dict[str, tuple[Callable[[], nn.Module], int, tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(UNITS, 6), 1, (UNITS,)),
    "Linear without bias": (lambda: nn.Linear(UNITS, 6, bias=False), 1, (UNITS,)),
    "a forward of its own": (lambda: Doubled(UNITS, 6), 1, (UNITS,)),
    "slots": (lambda: Slotted(UNITS, 6), 1, (UNITS,)),
    "metaclass": (lambda: Made(UNITS, 6), 1, (UNITS,)),
    "Conv1d": (lambda: nn.Conv1d(UNITS, 4, 3), 1, (UNITS, 5)),
    "Conv2d": (lambda: nn.Conv2d(UNITS, 4, 3), 1, (UNITS, 5, 5)),
    "Conv3d": (lambda: nn.Conv3d(UNITS, 4, 3), 1, (UNITS, 5, 5, 5)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(UNITS, 4, 3), 0, (UNITS, 5)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(UNITS, 4, 3), 0, (UNITS, 5, 5)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(UNITS, 4, 3), 0, (UNITS, 5, 5, 5)),
    "Hugging Face's Conv1D": (lambda: transformers.pytorch_utils.Conv1D(6, UNITS), 0, (UNITS,)),
}


@pytest.mark.parametrize("samples", [1, 64])
@pytest.mark.parametrize("case", LAYERS)
def test_a_gated_layer_computes_what_scaled_units_would_and_goes_back_to_what_it_was(case: str, samples: int) -> None:
    make, dim, shape = LAYERS[case]
    layer, width = make(), Width(Exponential.for_units(UNITS, scale="unit"), block=1)
    x = torch.randn(samples, *shape)
    expected = layer(x * width.importance().view(-1, *[1] * (len(shape) - 1)))
    attributes, parameters, plain, before = dict(vars(layer)), dict(layer._parameters), type(layer), layer(x)
    gate_(layer, width, dim)
    torch.testing.assert_close(layer(x), expected)
    assert isinstance(layer, plain)
    assert list(layer.state_dict()) == list(parameters) or "bias" not in layer.state_dict()
    ungate_(layer, width)
    assert type(layer) is plain
    assert vars(layer) == attributes
    assert all(layer._parameters[name] is parameter for name, parameter in parameters.items())
    assert torch.equal(layer(x), before)


def test_one_of_two_gates_on_a_weight_is_removed() -> None:
    rows, columns = (Width(Exponential.for_units(UNITS), block=1) for _ in range(2))
    both, a, b = nn.Bilinear(UNITS, UNITS, 3), torch.randn(6, UNITS), torch.randn(6, UNITS)
    gate_(both, rows, 1)
    gate_(both, columns, 2)
    expected = F.bilinear(a, b * columns.importance(), stored(both), both.bias)
    ungate_(both, rows)
    torch.testing.assert_close(both(a, b), expected)
    assert [gate.width for gate in gates_of(both)["weight"]] == [columns]


def test_an_embedding_whose_entries_are_units() -> None:
    width, layer, chosen = Width(Exponential.for_units(5), block=1), nn.Embedding(5, 3), torch.tensor([4, 0, 0])
    expected = layer(chosen) * width.importance()[chosen][:, None]
    gate_(layer, width, 0)
    torch.testing.assert_close(layer(chosen), expected)


# What cannot be gated is refused, and stays as it was


def pruned(layer: nn.Module) -> nn.Module:
    return prune.l1_unstructured(layer, "weight", amount=0.3)


COMPUTED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "old spectral norm": nn.utils.spectral_norm,
    "pruning": pruned,
}


@pytest.mark.parametrize("case", COMPUTED)
def test_a_computed_weight_is_not_gated(case: str) -> None:
    layer, x = COMPUTED[case](nn.Linear(UNITS, 6)).eval(), torch.randn(2, UNITS)
    before, kind = layer(x), type(layer)
    with pytest.raises(awn.AwnError, match=r"not a stored Parameter: .* Remove the parametrization or pruning first"):
        gate_(layer, Width(Exponential.for_units(UNITS)), 1)
    assert type(layer) is kind
    torch.testing.assert_close(layer(x), before)


@pytest.mark.parametrize("case", COMPUTED)
def test_a_gated_weight_is_not_computed_by_something_else(case: str) -> None:
    _, second, _ = gated_linear()
    x, state = torch.randn(4, 8), {name: tensor.clone() for name, tensor in second.state_dict().items()}
    before = second(x)
    with pytest.raises((awn.AwnError, TypeError), match=r"awn\.finalize\(model\) first|torch.nn.Parameter or None"):
        COMPUTED[case](second)
    assert list(second.state_dict()) == list(state)
    torch.testing.assert_close(dict(second.state_dict()), state)
    assert torch.equal(second(x), before)


@pytest.mark.parametrize(
    ("layer", "name", "why"),
    [
        (nn.LazyLinear(2), "weight", "is lazy: it has no shape yet"),
        (nn.Embedding(9, UNITS, max_norm=1.0), "weight", "max_norm"),
        (nn.EmbeddingBag(9, UNITS, sparse=True), "weight", "sparse gradients"),
        (nn.Linear(UNITS, 2), "wait", "is not a stored Parameter"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_layers_that_cannot_be_gated_say_why(layer: nn.Module, name: str, why: str) -> None:
    kind, attributes = type(layer), dict(vars(layer))
    with pytest.raises(awn.AwnError, match=why):
        gate_(layer, Width(Exponential.for_units(UNITS)), 1, name)
    assert type(layer) is kind
    assert vars(layer) == attributes


def test_a_class_that_allows_no_subclass_is_refused() -> None:
    class Final(nn.Linear):
        def __init_subclass__(cls) -> None:
            raise TypeError("final")

    layer = Final(UNITS, 2)
    with pytest.raises(awn.AwnError, match="allows no subclass: final"):
        gate_(layer, Width(Exponential.for_units(UNITS)), 1)
    assert type(layer) is Final


# Writing to a gated weight


def test_a_parameter_that_is_assigned_becomes_the_raw_weight() -> None:
    _, second, width = gated_linear()
    second.weight = nn.Parameter(torch.ones(2, 8))
    torch.testing.assert_close(second.weight[0], importance(width.value, 5, 8))
    second.register_parameter("weight", nn.Parameter(torch.zeros(2, 8)))
    assert not second.weight.any()
    second.reset_parameters()
    assert stored(second).any()
    with pytest.raises(TypeError, match="cannot assign"):
        second.weight = torch.ones(2, 8)
    with pytest.raises(awn.AwnError, match="cannot be deleted"):
        del second.weight


def test_a_write_to_the_product_is_noticed_at_the_next_read() -> None:
    _, second, _ = gated_linear()
    nn.init.ones_(second.weight)
    with pytest.raises(awn.AwnError, match="the values were lost"):
        second(torch.randn(100, 8))
    second(torch.randn(100, 8))  # said once
    nn.init.ones_(second.weight)
    with pytest.raises(awn.AwnError, match="the values were lost"):
        copy.deepcopy(second)
    nn.init.ones_(second.weight)
    with pytest.raises(awn.AwnError, match="the values were lost"):
        second(torch.randn(1, 8))  # few inputs: the weight itself is not computed
    assert second.weight.sum() is not None  # reading alone is no write
    second(torch.randn(1, 8))


def test_a_fault_inside_a_gate_never_falls_back_to_the_raw_weight() -> None:
    _, second, width = gated_linear()
    width.family = None
    with pytest.raises(awn.AwnError, match="the gate of weight failed"):
        _ = second.weight
    assert not hasattr(nn.Linear(2, 2), "_gates")


# Copies


def test_a_gated_model_is_pickled_in_every_way(tmp_path: Path) -> None:
    model, x = nn.Sequential(*gated_linear()[:2]), torch.randn(4, 3)
    torch.save(model, tmp_path / "torch")
    joblib.dump(model, tmp_path / "joblib")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (spawned,) = pool.map(copy.deepcopy, [model])
    twins = {
        "pickle": pickle.loads(pickle.dumps(model)),
        "torch.save": torch.load(tmp_path / "torch", weights_only=False),
        "joblib": joblib.load(tmp_path / "joblib"),
        "deepcopy": copy.deepcopy(model),
        "spawn": spawned,
    }
    for name, twin in twins.items():
        assert torch.equal(twin(x), model(x)), name
        assert type(twin[1]) is type(model[1]), name
        (gate,) = gates_of(twin[1])["weight"]
        assert gate.width is twin[0].width, name
        assert twin[0].width is not model[0].width, name
        assert twin[0].width.axes[-1].module is twin[1], name
        assert twin[0].width.optimizer_may_be_stale, name
        awn.advanced.set_units_(twin, {"0": 3})
        assert awn.widths(twin) == {"0": 3}, name
    assert awn.widths(model) == {"0": 5}


# State dicts


@pytest.mark.parametrize("assign", [False, True])
def test_plain_and_gated_models_exchange_state_dicts(assign: bool) -> None:
    model = nn.Sequential(*gated_linear()[:2])
    plain = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 2))
    of_the_width = {"0.width.log_nu", "0.width._extra_state"}
    assert set(model.state_dict()) == set(plain.state_dict()) | of_the_width
    state = copy.deepcopy(model.state_dict())
    assert set(plain.load_state_dict(state, strict=False, assign=assign).unexpected_keys) == of_the_width
    state = copy.deepcopy(plain.state_dict())
    assert set(model.load_state_dict(state, strict=False, assign=assign).missing_keys) == of_the_width
    torch.testing.assert_close(stored(model[1]), plain[1].weight)


@pytest.mark.parametrize("assign", [False, True])
def test_a_model_made_on_the_meta_device_takes_a_state_dict(assign: bool) -> None:
    filled, x = awn.AdaptiveMLP(2, 2, importance=Exponential.for_units(20)), torch.randn(4, 2)
    with torch.device("meta"):
        model = awn.AdaptiveMLP(2, 2, importance=Exponential.for_units(20))
    if not assign:
        model.to_empty(device="cpu")
    model.load_state_dict(copy.deepcopy(filled.state_dict()), assign=assign)
    assert torch.equal(model(x), filled(x))


def test_buffers_that_a_loader_leaves_empty_are_counted_anew() -> None:
    """Hugging Face's from_pretrained fills Parameters alone."""
    model, x = awn.AdaptiveMLP(2, 2, importance=Exponential.for_units(20)), torch.randn(4, 2)
    before = model(x)
    for name, buffer in list(model.hidden[0].width.named_buffers()):
        model.hidden[0].width._buffers[name] = torch.full_like(buffer, torch.nan)
    assert torch.equal(model(x), before)


class AdaptiveGPT2(transformers.GPT2LMHeadModel):
    """A class of a user's own that gates itself."""

    def __init__(self, config: transformers.GPT2Config) -> None:
        super().__init__(config)
        for block in self.transformer.h:
            make, read = block.mlp.c_fc, block.mlp.c_proj
            width = Width(Exponential.for_units(8), block=1, device=make.weight.device)
            axes = [Axis(make, "weight", 1, "producer"), Axis(make, "bias", 0, "producer")]
            awn.advanced.connect_(width, [*axes, Axis(read, "weight", 0, "consumer")])


def test_a_self_gated_model_goes_through_hugging_faces_own_files(tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=9, n_positions=8, n_embd=8, n_layer=2, n_head=2, n_inner=8)
    model, tokens = AdaptiveGPT2(config).eval(), torch.arange(8)[None]
    model.transformer.h[1].mlp.c_fc.width.move_(-3.0)
    model.save_pretrained(tmp_path)
    twin = AdaptiveGPT2.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(twin(tokens).logits, model(tokens).logits)


# Torch's transformations


def test_gradients_of_single_samples_by_vmap() -> None:
    model, x, y = awn.AdaptiveMLP(3, 2, importance=Exponential.for_units(5)), torch.randn(4, 3), torch.randn(4, 2)
    values = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(values: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(torch.func.functional_call(model, values, (x[None],)), y[None])

    single = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(values, x, y)
    F.mse_loss(model(x), y).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(single[name].mean(0), parameter.grad)


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_program_computes_the_same(strict: bool) -> None:
    model, x = awn.AdaptiveMLP(3, 2, hidden_layers=2, importance=Exponential.for_units(5)), torch.randn(4, 3)
    exported = torch.export.export(model, (x,), strict=strict).module()
    torch.testing.assert_close(exported(x), model(x))


@pytest.mark.filterwarnings("ignore:`torch.jit.trace")
def test_a_model_traced_by_torchscript_computes_the_same() -> None:
    model, x = awn.AdaptiveMLP(3, 2, hidden_layers=2, importance=Exponential.for_units(5)), torch.randn(4, 3)
    traced = torch.jit.trace(model, (x,))
    torch.testing.assert_close(traced(x), model(x))


def test_torch_fx_takes_gated_layers_for_leaves_and_refuses_to_look_inside() -> None:
    model, x = nn.Sequential(*gated_linear()[:2]), torch.randn(4, 3)
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(x), model(x))
    width = Width(Exponential.for_units(5, scale="mass"), block=8)
    first, second = nn.Linear(3, 8), Doubled(8, 2)
    awn.advanced.connect_(width, [*produced_by(first), *consumed_by(second)])
    with pytest.raises(awn.AwnError, match="as a constant"):
        torch.fx.symbolic_trace(nn.Sequential(first, second))


def test_the_inference_fast_path_of_a_transformer_layer_reads_the_product() -> None:
    layer, x = nn.TransformerEncoderLayer(16, 4, 40, dropout=0.0, batch_first=True).eval(), torch.randn(2, 5, 16)
    attention = layer.self_attn
    for part, name in ((layer.linear2, "weight"), (attention.out_proj, "weight"), (attention, "in_proj_weight")):
        gate_(part, Width(Exponential.for_units(part._parameters[name].shape[1]), block=1), 1, name)
    expected = layer(x)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:torch.ao.quantization is deprecated")
def test_a_finalized_model_is_quantized_as_any_other() -> None:
    model, x = awn.AdaptiveMLP(3, 2, importance=Exponential.for_units(5)), torch.randn(4, 3)
    quantized = torch.ao.quantization.quantize_dynamic(awn.finalize(model), {nn.Linear})
    torch.testing.assert_close(quantized(x), model(x), atol=0.1, rtol=0.1)
    assert not any(type(layer) is nn.Linear for layer in quantized.modules())


def test_hooks_and_averages_see_an_ordinary_layer() -> None:
    model, x, seen = awn.AdaptiveMLP(3, 2, importance=Exponential.for_units(5)), torch.randn(4, 3), []
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    torch.testing.assert_close(average(x), model(x))
    stored(model.output).register_hook(seen.append)
    model.output.register_forward_hook(lambda layer, inputs, result: seen.append(result.detach()))
    model(x).sum().backward()
    assert torch.equal(seen[0], model(x))
    assert torch.equal(seen[1], stored(model.output).grad)
