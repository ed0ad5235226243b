"""finalize: a plain module of exact shapes that computes the same and needs no awn."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import awn
from awn.core.gate import Gated
from cases import (
    BLOCKS,
    IN,
    MODELS,
    OUT,
    Net,
    active_shapes,
    adaptive_net,
    assert_same,
    batch,
    build,
    layer_units,
    move_widths_,
    pairwise,
    snapshot,
    train_step,
)

FAMILIES = {
    "exponential": awn.Exponential.for_units(40),
    "mass scale": awn.Exponential.for_units(40, scale="mass"),
    "unit scale": awn.Exponential.for_units(40, scale="unit"),
    "power law": awn.PowerLaw.for_units(40, saturation=2.0),
    "sigmoid": awn.Sigmoid.for_units(40, steepness=2.0),
}
every_model = pytest.mark.parametrize("case", MODELS)
every_block = pytest.mark.parametrize("block", BLOCKS)


def trained(case: str, **options: Any) -> Any:
    model = build(case, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for units in (40, 33):
        train_step(model, optimizer)
        move_widths_(model, units)
        awn.resize_(model, optimizer)
    return model


@pytest.mark.parametrize(("case", "family", "block"), pairwise(MODELS, FAMILIES, BLOCKS))
def test_the_plain_model_computes_the_same(case: str, family: str, block: int) -> None:
    model = trained(case, importance=FAMILIES[family], block=block).eval()
    x, _ = batch(model)
    expected = model(x)
    torch.testing.assert_close(awn.finalize(model)(x), expected, rtol=1e-12, atol=1e-13)


@every_block
@every_model
def test_the_model_itself_is_left_as_it_was(case: str, block: int) -> None:
    model = trained(case, block=block)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    x, _ = batch(model)
    expected = model.eval()(x)
    model.train()
    before = snapshot(model, optimizer)
    awn.finalize(model)
    assert_same(before, snapshot(model, optimizer))
    assert torch.equal(model.eval()(x), expected)
    train_step(model.train(), optimizer)
    move_widths_(model, 50)
    awn.resize_(model, optimizer)
    assert awn.widths(model)["hidden.0"] == 50


@every_model
def test_a_copy_of_the_model_is_left_as_it_was_too(case: str) -> None:
    """A copy has the model's classes: what is taken off one must stay on the other."""
    model = trained(case).eval()
    small = awn.truncate(model, units=9)
    x, _ = batch(model)
    expected, expected_small = model(x), small(x)
    awn.finalize(small)
    assert torch.equal(model(x), expected)
    assert torch.equal(small(x), expected_small)
    torch.testing.assert_close(awn.finalize(small)(x), expected_small, rtol=1e-12, atol=1e-13)


@every_block
@every_model
def test_shapes_are_exact(case: str, block: int) -> None:
    model = trained(case, block=block)
    sizes = [IN, *layer_units(model), OUT]
    linear = [layer for layer in awn.finalize(model) if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == list(itertools.pairwise(sizes))
    assert [tuple(layer.weight.shape) for layer in linear] == [(b, a) for a, b in itertools.pairwise(sizes)]
    assert [tuple(layer.bias.shape) for layer in linear] == [(size,) for size in sizes[1:]]
    norms = [layer for layer in awn.finalize(model) if isinstance(layer, nn.BatchNorm1d)]
    assert [norm.num_features for norm in norms] == (sizes[1:-1] if case == "batch norm" else [])
    for norm, size in zip(norms, sizes[1:-1], strict=False):
        for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            assert tuple(tensor.shape) == (size,)


@every_model
def test_importance_is_folded_into_the_weights_in_closed_form(case: str) -> None:
    """On the unit scale an exponential's importance is e^(−rate·j)."""
    model = trained(case)
    shapes = active_shapes(model)
    own = model.output._parameters["weight"].detach()[:, : shapes["output.weight"][1]]
    rate = awn.advanced.find_groups(model)[-1].width.nu.detach()
    importance = torch.exp(-rate * torch.arange(own.shape[1], dtype=torch.float64))
    torch.testing.assert_close(awn.finalize(model)[-1].weight.detach(), own * importance, rtol=1e-12, atol=1e-14)


@every_model
def test_nothing_of_awn_is_left(case: str) -> None:
    plain = awn.finalize(trained(case))
    assert type(plain) is nn.Sequential
    for module in plain.modules():
        assert type(module).__module__.startswith("torch.nn.modules."), type(module)
        assert not isinstance(module, Gated)
        for hooks in (module._load_state_dict_pre_hooks, module._forward_pre_hooks, module._forward_hooks):
            assert not hooks
    assert all(type(p) is nn.Parameter and p.is_leaf and p.requires_grad for p in plain.parameters())
    assert not any("width" in name for name in plain.state_dict())
    assert awn.widths(plain) == {}


@pytest.mark.parametrize("case", ["batch norm", "dropout"])
@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_kept(case: str, training: bool) -> None:
    plain = awn.finalize(trained(case).train(training))
    assert {module.training for module in plain.modules()} == {training}


def test_dropout_and_activation_stay() -> None:
    plain = awn.finalize(trained("dropout"))
    assert [type(layer) for layer in plain] == [
        nn.Linear,
        nn.Tanh,
        nn.Dropout,
        nn.Linear,
        nn.Tanh,
        nn.Dropout,
        nn.Linear,
    ]
    assert [layer.p for layer in plain if isinstance(layer, nn.Dropout)] == [0.2, 0.2]


def test_frozen_parameters_stay_frozen() -> None:
    model = trained("2 layers")
    model.hidden[0].weight.requires_grad_(False)
    model.output._parameters["weight"].requires_grad_(False)
    plain = awn.finalize(model)
    assert [name for name, p in plain.named_parameters() if not p.requires_grad] == ["0.weight", "4.weight"]


def test_an_activation_with_weights_of_its_own_comes_along() -> None:
    model = trained("2 layers", activation=nn.PReLU(init=0.1)).eval()
    x, _ = batch(model)
    expected = model(x)
    torch.testing.assert_close(awn.finalize(model)(x), expected, rtol=1e-12, atol=1e-13)


@every_model
def test_the_plain_model_trains(case: str) -> None:
    plain = awn.finalize(trained(case))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    before = [p.detach().clone() for p in plain.parameters()]
    x, y = batch(plain)
    nn.functional.mse_loss(plain(x), y).backward()
    optimizer.step()
    assert all((p != old).any() for p, old in zip(plain.parameters(), before, strict=True))


@pytest.mark.parametrize("block", BLOCKS)
def test_a_network_written_by_hand_keeps_its_class(block: int) -> None:
    net = adaptive_net(12, 20, block=block).double()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    train_step(net, optimizer)
    move_widths_(net, 9)
    awn.resize_(net, optimizer)
    x, _ = batch(net)
    expected = net.eval()(x)
    plain = awn.finalize(net)
    assert type(plain) is Net
    torch.testing.assert_close(plain(x), expected, rtol=1e-12, atol=1e-13)
    assert {name: tuple(t.shape) for name, t in plain.state_dict().items()} == {
        name: tuple(t.shape) for name, t in Net(9, 8).state_dict().items()
    }
    assert (plain.conv.out_channels, plain.middle.in_features, plain.head.in_features) == (9, 18, 8)
    assert_same({name: type(m) for name, m in Net().named_modules()}, {n: type(m) for n, m in plain.named_modules()})
    fresh = Net(9, 8).double().eval()
    fresh.load_state_dict(plain.state_dict())
    assert torch.equal(fresh(x), plain(x))


def test_a_model_without_widths_is_refused() -> None:
    with pytest.raises(awn.AwnError, match="Linear has no layer with a learned width"):
        awn.finalize(nn.Linear(2, 2))


@every_model
def test_a_plain_model_can_be_pickled(case: str, tmp_path: Path) -> None:
    plain = awn.finalize(trained(case)).eval()
    x, _ = batch(plain)
    assert torch.equal(pickle.loads(pickle.dumps(plain))(x), plain(x))
    torch.save(plain, tmp_path / "plain.pt")
    assert torch.equal(torch.load(tmp_path / "plain.pt", weights_only=False)(x), plain(x))
    torch.save(plain.state_dict(), tmp_path / "state.pt")
    assert_same(dict(plain.state_dict()), dict(torch.load(tmp_path / "state.pt", weights_only=True)))


WITHOUT_AWN = """
import sys
from pathlib import Path
sys.modules["awn"] = None  # an import of it raises from here on
import torch
from torch import nn
torch.set_num_threads(1)
for folder in sorted(Path(sys.argv[1]).iterdir()):
    facts = torch.load(folder / "facts.pt", weights_only=True)
    layers = []
    for inside, outside in zip(facts["sizes"], facts["sizes"][1:-1]):
        layers += [nn.Linear(inside, outside)]
        layers += [nn.BatchNorm1d(outside)] if folder.name == "batch norm" else []
        layers += [nn.Tanh()]
        layers += [nn.Dropout(0.2)] if folder.name == "dropout" else []
    plain = nn.Sequential(*layers, nn.Linear(*facts["sizes"][-2:])).double().eval()
    plain.load_state_dict(facts["state"])
    assert torch.equal(plain(facts["x"]), facts["y"]), f"{folder.name}: another output from the state dict"
    whole = torch.load(folder / "plain.pt", weights_only=False)
    assert torch.equal(whole(facts["x"]), facts["y"]), f"{folder.name}: another output from the pickled module"
    print(folder.name)
try:
    import awn
except ImportError:
    print("awn cannot be imported")
"""


def test_the_state_dict_loads_where_there_is_no_awn(tmp_path: Path) -> None:
    for case in MODELS:
        model = trained(case)
        x, _ = batch(model)
        plain = awn.finalize(model).eval()
        sizes = [IN, *layer_units(model), OUT]
        (tmp_path / case).mkdir()
        facts = {"sizes": sizes, "state": plain.state_dict(), "x": x, "y": plain(x).detach()}
        torch.save(facts, tmp_path / case / "facts.pt")
        torch.save(plain, tmp_path / case / "plain.pt")
    command = [sys.executable, "-c", WITHOUT_AWN, str(tmp_path)]
    child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert child.returncode == 0, child.stderr
    assert child.stdout.splitlines() == [*sorted(MODELS), "awn cannot be imported"]


def test_a_network_inside_another_module_becomes_plain_too() -> None:
    whole = torch.nn.Sequential(awn.AdaptiveMLP(3, 4), torch.nn.Tanh(), awn.AdaptiveMLP(4, 2)).eval()
    plain = awn.finalize(whole)
    assert not any(type(module).__module__.startswith("awn") for module in plain.modules())
    x = torch.randn(5, 3)
    torch.testing.assert_close(plain(x), whole(x))


class Scaled(awn.AdaptiveMLP):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(super().forward(3 * x))


def test_a_subclass_keeps_its_own_forward() -> None:
    model, x = Scaled(3, 2), torch.randn(5, 3)
    torch.testing.assert_close(awn.finalize(model)(x), model(x))


def test_parameters_keep_the_order_of_a_plain_model() -> None:
    model = awn.AdaptiveMLP(2, 2, hidden_layers=2)
    plain = nn.Sequential(nn.Linear(2, 231), nn.ReLU(), nn.Linear(231, 231), nn.ReLU(), nn.Linear(231, 2))
    assert list(awn.finalize(model).state_dict()) == list(plain.state_dict())
