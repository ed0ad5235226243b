"""AdaptiveMLP: what its options build, compared with the same network written by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import awn
from awn import AdaptiveMLP, AwnError, Exponential, PowerLaw, Sigmoid
from awn.nn.activations import ACTIVATIONS

SMALL = Exponential.for_units(12, scale="mass")  # the paper's scale, for its formulas


def network(*args, **options) -> AdaptiveMLP:
    torch.manual_seed(0)
    options.setdefault("importance", SMALL)
    return AdaptiveMLP(*(args or (3, 2)), **options)


def stored(layer: nn.Module) -> Tensor:
    return layer._parameters["weight"]


def by_hand(model: AdaptiveMLP, x: Tensor, activation: nn.Module) -> Tensor:
    """The forward pass as the paper writes it: activations times their importance, an exponential's mass."""
    for number, layer in enumerate(model.hidden):
        width = (model.hidden[0] if model.options["shared_width"] else layer).width
        rate, units = width.value, width.units
        f = torch.tensor([math.exp(-rate * j) - math.exp(-rate * (j + 1)) for j in range(units)], dtype=x.dtype)
        z = F.linear(x, stored(layer)[:units, : x.shape[-1]], None if layer.bias is None else layer.bias[:units])
        if model.norms:
            norm = model.norms[number]
            z = F.batch_norm(
                z, norm.running_mean[:units], norm.running_var[:units], norm.weight[:units], norm.bias[:units]
            )
        x = activation(z) * f
    return F.linear(x, stored(model.output)[:, : x.shape[-1]], model.output.bias)


@pytest.mark.parametrize("hidden_layers", [1, 2, 5])
@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"block": 1}, {"shared_width": True}, {"batch_norm": True}], ids=str
)
def test_computes_what_the_paper_writes(hidden_layers, options):
    model = network(hidden_layers=hidden_layers, **options).eval()
    for norm in model.norms:
        norm.running_mean[:12].normal_()
        norm.running_var[:12].uniform_(0.5, 2)
    x = torch.randn(5, 3)
    torch.testing.assert_close(model(x), by_hand(model, x, nn.ReLU()))


@pytest.mark.parametrize("hidden_layers", [1, 2, 5])
def test_an_amplitude_scales_the_importances_and_leaves_the_initial_function(hidden_layers):
    whole, scaled = (network(hidden_layers=hidden_layers, bias=False, amplitude=size) for size in (1.0, 0.4))
    for one, other in zip(whole.hidden, scaled.hidden, strict=True):
        torch.testing.assert_close(other.width.importance(), 0.4 * one.width.importance())
    x = torch.randn(5, 3)
    torch.testing.assert_close(scaled(x), whole(x))


@pytest.mark.parametrize("hidden_layers", [1, 2, 5])
def test_every_hidden_layer_has_a_width(hidden_layers):
    model = network(hidden_layers=hidden_layers)
    assert awn.widths(model) == {f"hidden.{n}": 12 for n in range(hidden_layers)}
    assert model(torch.randn(4, 3)).shape == (4, 2)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_by_name(name):
    model, x = network(hidden_layers=2, activation=name), torch.randn(5, 3)
    named = {"leaky_relu": F.leaky_relu, "identity": lambda z: z, "softsign": F.softsign, "hardtanh": F.hardtanh}
    function = named.get(name) or getattr(F, name, None) or getattr(torch, name)
    torch.testing.assert_close(model(x), by_hand(model, x, function))


def test_activations_by_module():
    model, x = network(hidden_layers=2, activation=nn.LeakyReLU(0.3)), torch.randn(5, 3)
    torch.testing.assert_close(model(x), by_hand(model, x, nn.LeakyReLU(0.3)))


@pytest.mark.parametrize(
    ("activation", "why"),
    [
        (nn.Softmax(-1), "mixes the units"),
        (nn.LogSoftmax(-1), "mixes the units"),
        (nn.LayerNorm(8), "does not act on any number of units"),
        (nn.PReLU(16), "does not act on any number of units"),
        (nn.Linear(8, 8), "does not act on any number of units"),
    ],
)
def test_an_activation_acts_on_each_unit_alone(activation: nn.Module, why: str):
    with pytest.raises(AwnError, match=why):
        network(activation=activation)


def test_an_activation_is_tried_wherever_the_network_is_made():
    with torch.device("meta"):
        assert network(activation=nn.PReLU()).activation.weight.is_meta
        assert network(activation=nn.SiLU()).output._parameters["weight"].is_meta


def test_an_activation_may_have_parameters_of_its_own():
    model = network(activation=nn.PReLU())
    model(torch.randn(4, 3)).sum().backward()
    assert model.activation.weight.grad is not None
    assert awn.advanced.count_parameters(model) == 12 * 4 + 2 * 13 + 1


def test_one_family_for_each_layer():
    families = [Exponential.for_units(5), PowerLaw.for_units(6), Sigmoid.for_units(7)]
    model = network(hidden_layers=3, importance=families)
    assert awn.widths(model) == {"hidden.0": 5, "hidden.1": 6, "hidden.2": 7}
    assert [layer.width.family for layer in model.hidden] == families


def test_the_default_start_is_the_papers():
    assert awn.widths(AdaptiveMLP(2, 2)) == {"hidden.0": 231}


def test_options_reach_every_width():
    model = network(hidden_layers=2, quantile=0.8, min_units=3, max_units=10, block=4, new_units="normal")
    for layer in model.hidden:
        width = layer.width
        assert (width.quantile, width.min_units, width.max_units) == (0.8, 3, 10)
        assert (width.block, width.new_units, width.capacity % 4) == (4, "normal", 0)


def test_a_shared_width_changes_every_layer():
    model = network(hidden_layers=3, shared_width=True, batch_norm=True, block=1)
    assert awn.widths(model) == {"hidden.0": 12}
    model.hidden[0].width.move_to_(20)
    assert awn.resize_(model, None) == {"hidden.0": awn.advanced.Resize(before=12, after=20)}
    assert [tuple(stored(layer).shape) for layer in (*model.hidden, model.output)] == [
        (20, 3),
        (20, 20),
        (20, 20),
        (2, 20),
    ]
    assert all(norm.num_features == 20 for norm in model.norms)
    assert model(torch.randn(4, 3)).shape == (4, 2)


def test_a_shared_width_has_one_nu_with_the_gradient_of_all_layers():
    model, x = network(hidden_layers=2, shared_width=True).double(), torch.randn(5, 3).double()
    log_nu = model.hidden[0].width.log_nu
    assert [name for name, _ in model.named_parameters() if name.endswith("log_nu")] == ["hidden.0.width.log_nu"]
    model(x).square().mean().backward()
    losses = []
    for step in (1e-6, -2e-6):
        with torch.no_grad():
            log_nu += step
            losses.append(model(x).square().mean().item())
    assert log_nu.grad.item() == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-5)


def test_batch_norm_comes_before_the_activation():
    model = network(batch_norm=True, block=1)
    x = torch.randn(64, 3)
    seen = []
    model.activation.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(x)
    torch.testing.assert_close(seen[0].mean(0), torch.zeros(12), atol=1e-6, rtol=0)
    torch.testing.assert_close(seen[0].var(0, correction=0), torch.ones(12), atol=1e-3, rtol=0)


def test_dropout_comes_after_the_activation_and_only_in_training():
    model, x = network(dropout=0.5, activation=nn.Softplus()), torch.randn(200, 3)
    seen = []
    model.output.register_forward_pre_hook(lambda _, args: seen.append(args[0][:, :12]))
    model(x)
    dropped = (seen[0] == 0).float().mean().item()  # a softplus itself is never zero
    assert dropped == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(2400))
    assert torch.equal(model.eval()(x), model(x))
    assert (seen[-1] > 0).all()


def test_without_dropout_training_and_evaluation_agree():
    model, x = network(), torch.randn(4, 3)
    assert torch.equal(model.train()(x), model.eval()(x))


@pytest.mark.parametrize("shape", [(4, 5, 3), (2, 3, 4, 3), (12, 12, 3), (3,)], ids=str)
def test_leading_dimensions_are_samples(shape):
    model, x = network(hidden_layers=2, block=1), torch.randn(shape)
    expected = model(x.reshape(-1, 3)).reshape(*shape[:-1], 2)
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("shape", [(4, 5, 3), (12, 12, 3), (3,)], ids=str)
def test_a_batch_norm_needs_samples_by_features(shape):
    # With as many positions as units, torch would not notice that it normalises the wrong dimension.
    with pytest.raises(AwnError, match=r"\[samples, features\]"):
        network(hidden_layers=2, batch_norm=True, block=1)(torch.randn(shape))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_built_in_another_precision(dtype):
    model = network(dtype=dtype, batch_norm=True)
    weights = [p for name, p in model.named_parameters() if not name.endswith("log_nu")]
    assert {p.dtype for p in weights} == {dtype}
    assert torch.promote_types(model.hidden[0].width.log_nu.dtype, torch.float32) == model.hidden[0].width.log_nu.dtype


def test_computes_in_double_precision():
    model, x = network(hidden_layers=2, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    assert model(x).dtype == torch.float64


def test_as_sequential_shares_the_layers():
    model, x = network(hidden_layers=2, batch_norm=True, dropout=0.5).eval(), torch.randn(5, 3)
    sequence = model.as_sequential().eval()
    assert [type(layer) for layer in sequence if not isinstance(layer, nn.Linear)] == [
        nn.BatchNorm1d,
        nn.ReLU,
        nn.Dropout,
    ] * 2
    torch.testing.assert_close(sequence(x), model(x))
    assert sequence[0] is model.hidden[0]


def test_a_seed_decides():
    one, two = network(hidden_layers=2), network(hidden_layers=2)
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))
    another = AdaptiveMLP(3, 2, hidden_layers=2, importance=SMALL)  # the generator has gone on
    assert not torch.equal(one.hidden[0].weight, another.hidden[0].weight)


def test_trains():
    model = network(hidden_layers=2, importance=Exponential.for_units(30))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = torch.randn(64, 3)
    y = (x[:, 0] * x[:, 1] > 0).long()
    first = F.cross_entropy(model(x), y).item()
    for _ in range(100):
        loss = awn.objective(F.cross_entropy(model(x), y), model, 64)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        awn.resize_(model, optimizer)
    assert F.cross_entropy(model(x), y).item() < first / 4


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((0, 2), {}, "in_features must be a whole number of at least 1, got 0"),
        ((2.0, 2), {}, "in_features .* got 2.0"),
        ((2, -1), {}, "out_features must be a whole number of at least 1, got -1"),
        ((2, 2, 0), {}, "hidden_layers must be a whole number of at least 1, got 0"),
        ((2, 2), {"hidden_layers": 1.5}, "hidden_layers .* got 1.5"),
        ((2, 2), {"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1"),
        ((2, 2), {"dropout": -0.1}, "dropout .* got -0.1"),
        ((2, 2), {"dropout": math.nan}, "dropout .* got nan"),
        ((2, 2), {"activation": "rleu"}, r"unknown activation 'rleu'\. Known: .*relu.*; or pass a module"),
        ((2, 2), {"activation": nn.ReLU}, "or pass a module"),
        ((2, 2), {"activation": torch.tanh}, "or pass a module"),
        (
            (2, 2, 3),
            {"importance": [SMALL, SMALL]},
            "importance lists 2 families for 3 learned widths. Give one per width",
        ),
        ((2, 2, 3), {"importance": [SMALL] * 3, "shared_width": True}, "lists 3 families for 1 learned width"),
        ((2, 2, 2), {"importance": [SMALL, 0.01]}, r"family such as awn\.Exponential\(\), got 0.01"),
        ((2, 2), {"importance": "exponential"}, r"family such as awn\.Exponential\(\), got 'exponential'"),
        ((2, 2), {"importance": 0.01}, r"family such as awn\.Exponential\(\), got 0.01"),
        ((2, 2), {"quantile": 1.0}, "quantile must lie strictly between 0 and 1, got 1"),
        ((2, 2), {"min_units": 5, "max_units": 4}, r"max_units \(4\) is below min_units \(5\)"),
        ((2, 2), {"block": -1}, "block must be a whole number of at least 1, got -1"),
        ((2, 2), {"new_units": "random"}, "new_units must be one of"),
    ],
)
def test_wrong_arguments_are_named(args, options, message):
    with pytest.raises(AwnError, match=message):
        AdaptiveMLP(*args, **options)
