"""adapt_ as users call it: which layers are chosen, what it says, and what it refuses with nothing changed."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import awn
from awn.adapt import Hidden, Refusal, add_rule
from awn.adapt.rules import RULES
from awn.core.axis import Block
from awn.errors import ArgumentError, AwnError, CheckpointError, OptimizerError
from cases import assert_same, snapshot
from convert_models import PLAIN, cifar_resnet, run

pytestmark = pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage:UserWarning")


def mlp(units: int = 8) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(5, units), nn.ReLU(), nn.Linear(units, units), nn.BatchNorm1d(units), nn.ReLU(), nn.Linear(units, 3)
    )


class Named(nn.Module):
    """Three blocks of two layers each, whose names patterns can tell apart."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.ModuleDict({"up": nn.Linear(4, 8), "down": nn.Linear(8, 4)}) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block["down"](torch.relu(block["up"](x)))
        return x


def hooks_of(model: nn.Module) -> list[int]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_load_state_dict_pre_hooks", "_state_dict_hooks")
    return [len(getattr(module, kind)) for module in model.modules() for kind in kinds]


def untouched_by(model: nn.Module, match: str, **options: Any) -> None:
    """Calling adapt_ raises, and leaves the model as it was to the last bit."""
    before = snapshot(model)
    hooks = hooks_of(model)
    names = [sorted(module.__dict__) for module in model.modules()]
    with pytest.raises(AwnError, match=match):
        awn.adapt_(model, **options)
    assert_same(before, snapshot(model))
    assert names == [sorted(module.__dict__) for module in model.modules()]
    assert hooks == hooks_of(model)


# Which layers are chosen.


def test_include_and_exclude_choose_among_what_is_found() -> None:
    for options, chosen in (
        ({}, ["blocks.0.up", "blocks.1.up", "blocks.2.up"]),
        ({"include": "blocks.1.*"}, ["blocks.1.up"]),
        ({"include": ["blocks.0.up", "*.2.*"]}, ["blocks.0.up", "blocks.2.up"]),
        ({"exclude": "*.0.*"}, ["blocks.1.up", "blocks.2.up"]),
        ({"include": "*.up", "exclude": ["*.1.*"]}, ["blocks.0.up", "blocks.2.up"]),
    ):
        model = Named()
        report = awn.adapt_(model, **options)
        assert list(awn.widths(model)) == chosen
        assert [one.name for one in report.adapted] == chosen
        left = {one.name: one.reason for one in report.skipped}
        for name in {"blocks.0.up", "blocks.1.up", "blocks.2.up"} - set(chosen):
            assert "clude" in left[name]


@pytest.mark.parametrize(
    ("layers", "example", "units"),
    [
        ([nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 3)], (1,), {"0": 8}),
        ([nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)], (5,), {"0": 8}),
        ([nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1)], (1,), {"0": 8, "2": 6}),
        ([nn.Conv2d(1, 6, 1), nn.ReLU(), nn.Conv2d(6, 1, 1)], (1, 4, 4), {"0": 6}),
        ([nn.Conv1d(1, 6, 3), nn.ReLU(), nn.ConvTranspose1d(6, 1, 3)], (1, 9), {"0": 6}),
    ],
)
def test_a_layer_of_one_input_or_one_output_is_a_layer(
    layers: list[nn.Module], example: tuple[int, ...], units: dict[str, int]
) -> None:
    model = nn.Sequential(*copy.deepcopy(layers))
    awn.adapt_(model, example_input=torch.randn(4, *example))
    assert awn.widths(model) == units


def test_a_vector_that_scales_units_makes_none() -> None:
    """A parameter of the shape [1, units] is followed, but what it scales needs a weight that makes it."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.read = nn.Parameter(torch.rand(1, 5)), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.read(torch.relu(x * self.scale))

    untouched_by(Scaled(), "no hidden layer", example_input=torch.randn(4, 1))


def test_a_family_without_narrow_layers_leaves_these_fixed() -> None:
    """A sigmoid has no midpoint at which 2 units hold 0.9 of the importance."""
    model = nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    report = awn.adapt_(model, importance=awn.Sigmoid)
    assert awn.widths(model) == {"2": 8}
    assert {one.name: one.reason for one in report.skipped}["0"].startswith("Sigmoid")


@pytest.mark.parametrize(("width", "heads"), [(16, 4), (16, 2), (64, 8)])
def test_heads_are_found_whether_or_not_their_number_is_their_size(width: int, heads: int) -> None:
    layer = nn.TransformerEncoderLayer(width, heads, 32, batch_first=True)
    model = nn.Sequential(nn.Linear(3, width), layer, nn.Linear(width, 2))
    awn.adapt_(model, example_input=torch.randn(2, 5, 3))
    assert awn.widths(model) == {"1.self_attn": heads, "1.linear1": 32}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sizes", [(8, 4, 2, 4, 8), (2, 2, 1), (1, 4, 4, 1)])
def test_the_layers_that_are_found_do_not_depend_on_the_weights(sizes: tuple[int, ...], seed: int) -> None:
    """In narrow layers, all units of a ReLU may be silent on the example."""
    torch.manual_seed(seed)
    layers = [(nn.Linear(inside, outside), nn.ReLU()) for inside, outside in itertools.pairwise(sizes)]
    model = nn.Sequential(*itertools.chain(*layers))[:-1]
    awn.adapt_(model)
    assert list(awn.widths(model).values()) == list(sizes[1:-1])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_units_of_bags_are_learned(mode: str) -> None:
    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.output = nn.EmbeddingBag(30, 16, mode=mode), nn.Linear(16, 4)

        def forward(self, words: Tensor, starts: Tensor) -> Tensor:
            return self.output(self.embedding(words, starts))

    model, example = Bags(), (torch.randint(30, (12,)), torch.tensor([0, 4, 9]))
    awn.adapt_(model, example_input=example)
    model.embedding.width.move_to_(20)
    awn.resize_(model)
    outputs = model(*example)
    assert model.embedding.weight.shape == (30, model.embedding.embedding_dim) == (30, 24)
    torch.testing.assert_close(awn.finalize(model)(*example), outputs)


def test_weights_of_one_module_share_its_place_for_a_width_and_the_report_names_them() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for number, shape in enumerate([(4, 8), (8, 6), (6, 2)]):
                self.register_parameter(f"w{number}", nn.Parameter(torch.randn(shape)))

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(torch.relu(x @ self.w0) @ self.w1) @ self.w2

    report = awn.adapt_(Bare(), example_input=torch.randn(5, 4))
    assert [one.units for one in report.adapted] == [8]
    assert {one.name: one.reason for one in report.skipped} == {
        "w1": "the module that makes its units carries another learned width already"
    }
    assert "the model itself" in str(report)


def test_an_embedding_with_sparse_gradients_stays_as_it_is() -> None:
    model = nn.Sequential(
        nn.Embedding(20, 8, sparse=True), nn.Flatten(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 2)
    )
    report = awn.adapt_(model, example_input=torch.randint(20, (4, 3)))
    assert awn.widths(model) == {"2": 16}
    assert "sparse" in {one.name: one.reason for one in report.skipped}["0"]


class Energy(nn.Module):
    """An energy and its gradient, the force."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]


def test_a_forward_that_differentiates_itself_is_adapted_inside() -> None:
    model, x = Energy(), torch.randn(5, 3)
    untouched_by(model, r"Adapt the part of the model that it differentiates", example_input=x)
    awn.adapt_(model.energy)
    model.energy[0].width.move_to_(20)
    awn.resize_(model.energy)
    force = model(x)
    awn.finalize(model.energy)
    torch.testing.assert_close(model(x), force)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_what_torch_jit_compiled_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"torch\.jit\.script"):
        awn.adapt_(torch.jit.script(mlp()))


def test_the_report_says_who_makes_and_who_reads() -> None:
    report = awn.adapt_(mlp())
    assert [(one.name, one.units, one.producers, one.consumers) for one in report.adapted] == [
        ("0", 8, ("0",), ("2",)),
        ("2", 8, ("2", "3"), ("5",)),
    ]
    assert {one.name: one.reason for one in report.skipped} == {"5": "it is an output of Sequential"}


def test_options_reach_every_width() -> None:
    model = mlp()
    awn.adapt_(model, importance=awn.PowerLaw, quantile=0.8, min_units=3, max_units=50, block=16, new_units="rescaled")
    for group in awn.advanced.find_groups(model):
        width = group.width
        assert isinstance(width.family, awn.PowerLaw)
        assert (width.quantile, width.min_units, width.max_units, width.block) == (0.8, 3, 50, 16)
        assert width.new_units == "rescaled"
        assert width.units == 8


def test_an_importance_brings_its_width() -> None:
    for units in (3, 40):
        model = mlp().double()
        awn.adapt_(model, importance=awn.Exponential.for_units(units))
        assert awn.widths(model) == {"0": units, "2": units}
        x = torch.randn(4, 5).double()
        torch.testing.assert_close(awn.finalize(model.eval())(x), model(x))


@pytest.mark.parametrize("limits", [{"max_units": 4}, {"min_units": 20}])
def test_limits_that_the_present_width_breaks_take_hold_at_the_first_resize(limits: dict[str, int]) -> None:
    model = mlp()
    awn.adapt_(model, **limits)
    awn.resize_(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert set(awn.widths(model).values()) == set(limits.values())


def test_training_modes_and_precision_stay() -> None:
    model = mlp().eval()
    model[3].train()
    awn.adapt_(model, example_input=torch.randn(4, 5))
    assert [module.training for module in model] == [False, False, False, True, False, False]
    half = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).half()
    awn.adapt_(half)
    assert half[0].weight.dtype == half[2].weight.dtype == torch.float16
    assert awn.advanced.find_groups(half)[0].width.log_nu.dtype == torch.float32
    x = torch.randn(4, 5).half()
    before = half(x)
    awn.advanced.set_units_(half, {"0": 40}, None)
    torch.testing.assert_close(half(x), before, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(awn.finalize(half)(x), half(x), rtol=1e-2, atol=1e-2)


def test_frozen_layers_are_left_alone_unless_named_and_stay_frozen() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    alone = copy.deepcopy(model)
    report = awn.adapt_(alone)
    assert "0" not in awn.widths(alone)
    assert "frozen" in {one.name: one.reason for one in report.skipped}["0"]
    awn.adapt_(model, groups=[("0", "2")], include=[])
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
    frozen = model[0].weight.clone()
    model(torch.randn(6, 5)).sum().backward()
    optimizer.step()
    awn.advanced.set_units_(model, {"0": 12}, optimizer)
    assert not model[0].weight.requires_grad
    assert torch.equal(model[0].weight[:8], frozen)


# Explicit groups, and rules.


def test_groups_name_layers_of_a_model_that_no_example_is_at_hand_for() -> None:
    class Secret(Named):
        def forward(self, x: Tensor, secret: str) -> Tensor:  # type: ignore[override]
            return super().forward(x) if secret == "open" else x

    model = Secret().double()
    untouched_by(model, "example_input=")
    report = awn.adapt_(model, groups=[("blocks.*.up", "blocks.*.down")])
    assert awn.widths(model) == {f"blocks.{number}.up": 8 for number in range(3)}
    assert [one.consumers for one in report.adapted] == [(f"blocks.{number}.down",) for number in range(3)]
    x = torch.randn(4, 4).double()
    before = model(x, "open")
    awn.advanced.set_units_(model, {"blocks.1.up": 30}, None)
    torch.testing.assert_close(model(x, "open"), before)


def test_groups_order_makers_by_themselves() -> None:
    model = mlp()
    awn.adapt_(model, groups=[(["3", "2"], "5")], include="0")
    assert awn.widths(model) == {"0": 8, "2": 8}


@pytest.mark.parametrize(
    ("groups", "match"),
    [
        ([("0", "5")], "but not '2', which has to do with the same units"),
        ([("2", "5")], "but not '3'"),
        ([("3", "5")], "a BatchNorm1d acts on units, but makes none"),
        ([("0", "1")], "ReLU is not a layer whose inputs"),
        ([("1", "2")], "is not a layer whose outputs"),
        ([("0", "nope")], "'nope', which fits no layer"),
        ([("0",)], "pairs"),
        (["0"], "pairs"),
        ([("*", "2")], "where the stars stand for"),
    ],
)
def test_groups_that_cannot_be(groups: Any, match: str) -> None:
    untouched_by(mlp(), match, groups=groups)


def test_groups_of_other_sizes_are_refused() -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Unflatten(1, (2, 4)), nn.Linear(4, 3))
    untouched_by(model, "4 inputs cannot read 8 units", groups=[("0", "3")])


def test_a_rule_of_ones_own_comes_first_and_is_verified() -> None:
    class Gate(nn.Module):
        def __init__(self, mixes: bool = False) -> None:
            super().__init__()
            self.up, self.down, self.mixes = nn.Linear(4, 8), nn.Linear(8, 4), mixes

        def forward(self, x: Tensor) -> Tensor:
            return self.down(torch.softmax(self.up(x), -1) if self.mixes else torch.relu(self.up(x)))

    def rule(module: nn.Module) -> list[Hidden | Refusal] | None:
        if isinstance(module, nn.Linear) and module.out_features == 6:
            return [Refusal(module, "six is enough")]
        return [Hidden((module.up,), (module.down,), gain=1.0)] if isinstance(module, Gate) else None

    model = nn.Sequential(Gate(), Gate(mixes=True), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Linear(5, 2))
    add_rule(rule)
    try:
        report = awn.adapt_(model)
    finally:
        RULES.remove(rule)
    assert awn.widths(model) == {"0.up": 8, "0.down": 4, "1.down": 4, "4": 5}
    assert awn.advanced.find_groups(model)[0].width.gain == 1.0
    why = {one.name: one.reason for one in report.skipped}
    assert why["2"] == "six is enough"
    assert "with more units, the outputs change" in why["1.up"]  # the promise of the rule does not hold


# Bad input.


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (nn.Linear(3, 2), "no hidden layer"),
        (nn.ReLU(), "no hidden layer"),
        (
            nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2)),
            "layer_norm in LayerNorm '1' mixes its units",
        ),
        (nn.LSTM(3, 4), "it is an output of LSTM"),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LazyLinear(2)), "lazy"),
        (nn.DataParallel(nn.Linear(3, 2)), "wrap it in DataParallel afterwards"),
        (nn.Linear(3, 2, device="meta"), "meta device"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_models_that_cannot_be_adapted(model: nn.Module, match: str) -> None:
    classes = [type(module) for module in model.modules()]
    with pytest.raises(AwnError, match=match):
        awn.adapt_(model)
    assert classes == [type(module) for module in model.modules()]


def test_a_lazy_layer_is_not_run_by_the_example() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LazyLinear(2))
    with pytest.raises(AwnError, match=r"'2\.(weight|bias)' is lazy"):
        awn.adapt_(model, example_input=torch.randn(2, 3))
    assert isinstance(model[2], nn.LazyLinear)
    model(torch.randn(2, 3))
    awn.adapt_(model)
    assert awn.widths(model) == {"0": 4}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"include": "blocks.3.*"}, "include='blocks.3.\\*' fits no layer"),
        ({"include": "block.0.up"}, "blocks.0.up"),
        ({"exclude": "blokcs.0.up"}, "blocks.0.up"),
        ({"include": "*.down"}, "fits only layers whose width cannot be learned"),
        ({"include": "*.0.up", "exclude": "*.0.up"}, "no hidden layer"),
        ({"quantile": 1.0}, "quantile"),
        ({"quantile": 0}, "quantile"),
        ({"block": 0}, "block"),
        ({"min_units": 9, "max_units": 4}, "max_units"),
        ({"new_units": "random"}, "new_units"),
        ({"importance": "exponential"}, "importance must be a family"),
        ({"importance": awn.Exponential.for_units(4), "preserve": True}, "preserve=True keeps every layer's width"),
        ({"preserve": True, "redraw": True}, "choose one"),
        ({"example_input": torch.ones(2, 7)}, "example_input does not run"),
        ({"example_input": {"y": torch.ones(2, 4)}}, "example_input does not run"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
def test_options_that_cannot_be(options: dict[str, Any], match: str) -> None:
    untouched_by(Named(), match, **options)


def make_part(kind: Any) -> nn.Module:
    return kind if isinstance(kind, nn.Module) else kind()


class Builder(nn.Module):
    """Asks what kind of things it has as it is built, but not in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.activation = nn.Linear(4, 16), nn.Linear(16, 4), make_part(nn.ReLU)
        self.apply(self._start)

    def _start(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.activation(self.up(x)))


def test_what_only_builds_a_model_may_ask_what_kind_of_thing_it_has() -> None:
    model = Builder()
    awn.adapt_(model)
    assert awn.widths(model) == {"up": 16}


def test_weights_drawn_anew_are_those_of_an_adaptive_mlp() -> None:
    family = awn.Exponential.for_units(20)
    torch.manual_seed(0)
    same = awn.AdaptiveMLP(3, 2, hidden_layers=2, activation="tanh", importance=family)
    model = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2))
    nn.init.zeros_(model[-1].bias)  # no unit's: it is not drawn
    torch.manual_seed(0)
    awn.adapt_(model, importance=family, redraw=True)
    assert list(awn.widths(model).values()) == [20, 20]
    x = torch.randn(5, 3)
    torch.testing.assert_close(model(x), same(x))


def test_no_model_at_all() -> None:
    with pytest.raises(ArgumentError, match=r"takes a torch\.nn\.Module, got dict"):
        awn.adapt_({})  # type: ignore[arg-type]


def test_adapting_twice_is_refused() -> None:
    model = mlp()
    awn.adapt_(model)
    untouched_by(model, "adaptive already: '0' has a learned width of 8 units")


def test_a_failure_halfway_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    from awn.adapt import adapt

    connect, calls = adapt.connect_, []

    def fail_at_the_second(*arguments: Any) -> None:
        calls.append(arguments)
        connect(*arguments)
        if len(calls) == 2:
            raise ArgumentError("halfway")

    monkeypatch.setattr(adapt, "connect_", fail_at_the_second)
    untouched_by(Named(), "halfway")
    calls.clear()
    untouched_by(mlp(), "halfway", preserve=True)


def test_an_optimizer_built_before_is_refused_at_the_first_resize() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    awn.adapt_(model)
    model(torch.randn(6, 5)).sum().backward()
    optimizer.step()
    with pytest.raises(OptimizerError, match="built before the layer became adaptive"):
        awn.resize_(model, optimizer)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    model = mlp()
    awn.adapt_(model)
    awn.save(model, tmp_path)
    others = {
        r"0\.weight": Named(),
        r"3\.weight": nn.Sequential(*mlp()[:3], *mlp()[4:]),
        r"'0\.weight' has shape": nn.Sequential(nn.Linear(4, 8), *mlp()[1:]),
    }
    for named, other in others.items():
        before = copy.deepcopy(other.state_dict())
        with pytest.raises(CheckpointError, match=named):
            awn.load(tmp_path, other)
        assert not awn.advanced.find_groups(other)
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in before.items())


def with_attribute() -> nn.Module:
    model = mlp()
    model[0].width = 8
    return model


def old_weight_norm(index: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        model = mlp()
        with pytest.warns(FutureWarning, match="weight_norm"):
            nn.utils.weight_norm(model[index])
        return model

    return build


def new_weight_norm() -> nn.Module:
    model = mlp()
    nn.utils.parametrizations.weight_norm(model[2])
    return model


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 8))
    model[4].weight = model[2].weight
    return model


@pytest.mark.parametrize(
    ("build", "layer", "reason"),
    [
        (with_attribute, "0", "has an attribute 'width' of its own"),
        (old_weight_norm(2), "0", "mixes its units"),
        (old_weight_norm(0), "0", "it is stored as 'weight'"),
        (tied, "2", "a weight is tied: 2.weight is 4.weight"),
        (new_weight_norm, "0", "mixes its units"),
    ],
)
def test_layers_that_cannot_be_adapted_are_named_and_left(build: Any, layer: str, reason: str) -> None:
    model = build()
    kept = model.get_submodule(layer).out_features
    try:
        report = awn.adapt_(model)
    except ArgumentError as error:
        said = str(error)
    else:
        said = str(report)
        assert layer not in awn.widths(model)
        x = torch.randn(6, 5)
        model.eval()
        before = model(x)
        awn.advanced.set_units_(model, {name: units + 9 for name, units in awn.widths(model).items()}, None)
        torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-5)
    assert reason in said
    assert model.get_submodule(layer).out_features == kept


def test_padded_shortcuts_leave_the_channels_of_a_stage_in_the_middle() -> None:
    model = cifar_resnet()
    awn.adapt_(model)
    (stem,) = (group for group in awn.advanced.find_groups(model) if group.name == "stem")
    layouts = {axis.blocks for axis in stem.axes}
    padded = (Block(2, fixed=True), Block(1), Block(2, fixed=True))
    assert layouts == {(Block(1),), padded}


@pytest.mark.parametrize("options", [{}, {"affine": True}])
def test_norms_without_tensors_follow(options: Any) -> None:
    model = nn.Sequential(nn.Conv2d(2, 6, 1), nn.InstanceNorm2d(6, **options), nn.ReLU(), nn.Conv2d(6, 2, 1)).eval()
    awn.adapt_(model, block=1)
    x = torch.randn(2, 2, 4, 4)
    before = model(x)
    awn.advanced.set_units_(model, {"0": 9}, None)
    torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-5)
    assert model[1].num_features == 9


def test_an_example_loses_no_layer() -> None:
    """What is found without an example is found with one."""
    for case in PLAIN.values():
        model, inputs = case.build(), case.inputs()
        text = str(awn.adapt_(model, example_input=inputs))
        assert all(name in text for name in case.widths)
        assert awn.widths(model) == case.widths
        run(model, inputs)


class Masked(nn.Module):
    """A forward that makes tensors of its input's sizes."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.a, self.b = nn.Linear(8, 12), nn.Linear(12, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        scale = torch.tensor([x.shape[1], 1.0]).sum() * torch.tensor(x.mean().item())
        return self.b(self.a(self.layers(x, mask=mask)).relu()) * scale


def test_sizes_made_into_tensors_are_followed() -> None:
    model = Masked()
    report = awn.adapt_(model)
    assert awn.widths(model) == {"layers.layers.0.self_attn": 2, "layers.layers.0.linear1": 16, "a": 12}
    why = {one.name: one.reason for one in report.skipped}
    assert set(why) == {"b", "layers.layers.0.linear2"}
    assert model(torch.randn(2, 5, 8)).shape == (2, 5, 2)


def test_a_cap_below_the_present_width_is_where_a_fresh_layer_starts() -> None:
    model, trained = mlp(), mlp()
    awn.adapt_(model, max_units=3)
    assert set(awn.widths(model).values()) == {3}
    with pytest.raises(ArgumentError, match=r"'0' has 8 units, more than max_units=3"):
        awn.adapt_(trained, preserve=True, max_units=3)
    assert not awn.advanced.find_groups(trained)


def test_other_parametrizations_and_double_precision_survive_a_file(tmp_path: Path) -> None:
    def make() -> nn.Sequential:
        first = nn.utils.parametrizations.weight_norm(nn.Linear(4, 6))
        return nn.Sequential(first, nn.ReLU(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).double()

    model = make()
    awn.adapt_(model)
    assert awn.widths(model) == {"2": 8}
    awn.save(model, tmp_path)
    loaded = awn.load(tmp_path, make())
    x = torch.randn(3, 4, dtype=torch.float64)
    assert torch.equal(loaded(x), model(x))


def test_the_report_leaves_out_no_layer_with_a_weight() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.look_up, self.recurrent = nn.Embedding(10, 8), nn.LSTM(8, 8, batch_first=True)
            self.mixed, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 1, batch_first=True)
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
            self.hidden, self.output = nn.Linear(8, 40), nn.Linear(40, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.mixed(self.recurrent(self.mixed(self.look_up(x)))[0])
            h = torch.relu(self.normed(self.attention(h, h, h)[0]))
            return self.output(torch.relu(self.hidden(h)))

    report = awn.adapt_(Mixed())
    assert [one.name for one in report.adapted] == ["hidden"]
    why = {one.name: one.reason for one in report.skipped}
    assert set(why) == {"look_up", "recurrent", "attention", "normed", "output"}
    assert "LayerNorm 'mixed' mixes its units" in why["recurrent"]
    assert "parametrization" in why["normed"]
    assert why["attention"]
