"""Groups: connecting a width to hand-made models, finding it again, and counting what it governs."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import awn
from awn import AwnError, Exponential
from awn.advanced import Axis, Width
from awn.core.axes import consumed_by, produced_by
from awn.core.gate import gates_of


def conv_axes(conv: nn.Conv2d) -> list[Axis]:
    return [
        Axis(conv, "weight", 0, "producer", size_name="out_channels"),
        Axis(conv, "bias", 0, "producer"),
    ]


def dense(units: int = 20, block: int = 32) -> nn.Sequential:
    width = Width(Exponential.for_units(units), block=block)
    first, second = nn.Linear(3, width.capacity), nn.Linear(width.capacity, 2)
    awn.advanced.connect_(width, [*produced_by(first), *consumed_by(second)])
    return nn.Sequential(first, nn.ReLU(), second)


def convolutional(**options) -> nn.Sequential:
    """Two adaptive convolutions, the second with a batch norm, flattened into a linear layer: 4 · 4 inputs a unit."""
    one, two = (Width(Exponential.for_units(5), block=8, **options) for _ in range(2))
    first, second = nn.Conv2d(1, one.capacity, 3, padding=1), nn.Conv2d(one.capacity, two.capacity, 3, padding=1)
    norm, last = nn.BatchNorm2d(two.capacity), nn.Linear(16 * two.capacity, 3)
    awn.advanced.connect_(one, [*conv_axes(first), Axis(second, "weight", 1, "consumer", size_name="in_channels")])
    awn.advanced.connect_(two, [*conv_axes(second), *produced_by(norm), *consumed_by(last, repeat=16)])
    return nn.Sequential(first, nn.ReLU(), second, norm, nn.ReLU(), nn.Flatten(), last)


def parameters_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# Connecting


def test_connect_registers_the_width_on_its_first_producer():
    model = dense()
    assert model[0].width.units == 20
    assert awn.widths(model) == {"0": 20}
    assert [axis.role for axis in model[0].width.axes] == ["producer", "producer", "consumer"]


def test_inert_slots_hold_zeros_from_the_start():
    model = dense(units=20, block=32)
    assert (model[0].weight[20:] == 0).all()
    assert (model[0].bias[20:] == 0).all()
    assert (model[2]._parameters["weight"][:, 20:] == 0).all()
    assert (model[0].weight[:20] != 0).all()


def test_axes_are_kept_with_producers_first():
    width = Width(Exponential.for_units(20), block=32)
    first, second = nn.Linear(3, 32), nn.Linear(32, 2)
    awn.advanced.connect_(width, [*consumed_by(second), *produced_by(first)])
    (group,) = awn.advanced.find_groups(nn.Sequential(first, second))
    assert [axis.role for axis in group.axes] == ["producer", "producer", "consumer"]
    assert [axis.module for axis in group.consumers] == [second]


def test_units_after_a_flatten_are_resized_together():
    torch.manual_seed(0)
    model, x = convolutional(new_units="rescaled"), torch.randn(6, 1, 4, 4)
    model[2].width.move_to_(13)
    awn.resize_(model, None)
    assert awn.widths(model) == {"0": 5, "2": 13}
    assert model[2].weight.shape == (16, 8, 3, 3)
    assert (model[2].out_channels, model[3].num_features, model[6].in_features) == (16, 16, 256)
    assert model[3].running_mean.shape == (16,)
    assert model[6].weight.shape == (3, 256)
    assert (model[6].weight[:, 13 * 16 :] == 0).all()
    assert (model[6].weight[:, : 13 * 16] != 0).all()
    expected = model.eval()(x)
    plain = awn.finalize(model)
    assert plain[6].weight.shape == (3, 13 * 16)
    torch.testing.assert_close(plain(x), expected)


def test_shrinking_after_a_flatten_keeps_the_leading_units():
    torch.manual_seed(0)
    model = convolutional()
    before = model[6]._parameters["weight"].detach().clone()
    model[2].width.move_to_(2)
    awn.resize_(model, None)
    after = model[6]._parameters["weight"]
    assert torch.equal(after[:, :32], before[:, :32])
    assert (after[:, 32 : 5 * 16] == 0).all()


def test_several_consumers_read_the_same_units():
    torch.manual_seed(0)

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.left, self.right = nn.Linear(3, 32), nn.Linear(32, 2), nn.Linear(32, 5, bias=False)
            width = Width(Exponential.for_units(20), block=32)
            awn.advanced.connect_(width, [*produced_by(self.trunk), *consumed_by(self.left), *consumed_by(self.right)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.trunk(x).relu()
            return torch.cat([self.left(h), self.right(h)], -1)

    model, x = Heads(), torch.randn(4, 3)
    model.trunk.width.move_to_(7)
    awn.resize_(model, None)
    expected = model(x)
    plain = awn.finalize(model)
    assert (plain.left.weight.shape, plain.right.weight.shape) == ((2, 7), (5, 7))
    torch.testing.assert_close(plain(x), expected)
    assert awn.advanced.count_parameters(model) == parameters_of(plain) == 7 * 4 + 2 * 8 + 5 * 7


@pytest.mark.parametrize("affine", [True, False])
def test_a_batch_norm_knows_its_size(affine):
    width = Width(Exponential.for_units(20), block=32)
    first, norm, second = nn.Linear(3, 32), nn.BatchNorm1d(32, affine=affine), nn.Linear(32, 2)
    model = nn.Sequential(first, norm, second)
    awn.advanced.connect_(width, [*produced_by(first), *produced_by(norm), *consumed_by(second)])
    width.move_to_(50)
    awn.resize_(model, None)
    assert norm.running_var.shape == (64,)
    assert norm.num_features == 64
    assert awn.finalize(model)[1].num_features == 50


def test_a_batch_norm_without_statistics_can_follow():
    width = Width(Exponential.for_units(20), block=32)
    first, norm, second = nn.Linear(3, 32), nn.BatchNorm1d(32, track_running_stats=False), nn.Linear(32, 2)
    awn.advanced.connect_(width, [*produced_by(first), *produced_by(norm), *consumed_by(second)])
    model = nn.Sequential(first, norm, second)
    width.move_to_(50)
    awn.resize_(model, None)
    assert model(torch.randn(4, 3)).shape == (4, 2)
    assert norm.num_features == 64


def per_unit(fill: float | None) -> nn.Sequential:
    """A slope of its own for every unit."""
    width = Width(Exponential.for_units(20), block=32)
    first, slopes, second = nn.Linear(3, 32), nn.PReLU(32), nn.Linear(32, 2)
    slope_axis = Axis(slopes, "weight", 0, "producer", fill=fill, size_name="num_parameters")
    awn.advanced.connect_(width, [*produced_by(first), slope_axis, *consumed_by(second)])
    return nn.Sequential(first, slopes, second)


def test_a_vector_of_units_starts_new_ones_at_its_fill():
    model = per_unit(fill=0.5)
    model[0].width.move_to_(50)
    awn.resize_(model, None)
    assert model[1].num_parameters == 64
    assert (model[1].weight[:20] == 0.25).all()
    assert (model[1].weight[20:50] == 0.5).all()
    assert model(torch.randn(4, 3)).shape == (4, 2)


def test_a_vector_of_units_that_no_weight_makes_needs_a_fill():
    with pytest.raises(AwnError, match="fill"):
        per_unit(fill=None)


# Errors, and that they change nothing


def untouched(model: nn.Module) -> bool:
    return not any("width" in name for name in model.state_dict())


@pytest.mark.parametrize("kept", ["producer", "consumer"])
def test_a_width_needs_makers_and_readers(kept):
    first, second = nn.Linear(3, 32), nn.Linear(32, 2)
    axes = [axis for axis in [*produced_by(first), *consumed_by(second)] if axis.role == kept]
    with pytest.raises(AwnError, match=r"needs at least one producer, .* and one consumer"):
        awn.advanced.connect_(Width(Exponential.for_units(20), block=32), axes)
    assert untouched(nn.Sequential(first, second))


def test_a_tensor_of_another_size_is_refused():
    first, second = nn.Linear(3, 32), nn.Linear(30, 2)
    message = r"Linear\.weight has 30 entries along dimension 1, but the width's capacity of 32 units needs 32"
    with pytest.raises(AwnError, match=message):
        awn.advanced.connect_(Width(Exponential.for_units(20), block=32), [*produced_by(first), *consumed_by(second)])
    assert untouched(nn.Sequential(first, second))


def test_a_forgotten_repeat_is_refused():
    first, second = nn.Conv2d(1, 32, 3), nn.Linear(32 * 16, 2)
    with pytest.raises(AwnError, match=r"has 512 entries .* capacity of 32 units needs 32"):
        awn.advanced.connect_(Width(Exponential.for_units(20), block=32), [*conv_axes(first), *consumed_by(second)])
    awn.advanced.connect_(
        Width(Exponential.for_units(20), block=32), [*conv_axes(first), *consumed_by(second, repeat=16)]
    )


def test_a_layer_has_one_width():
    model = dense()
    extra = nn.Linear(32, 1)
    with pytest.raises(AwnError, match=r"already has a learned width\. Connect all its axes at once"):
        awn.advanced.connect_(Width(Exponential.for_units(20), block=32), [*produced_by(model[0]), *consumed_by(extra)])
    assert untouched(extra)


def test_columns_have_one_width():
    model, other = dense(), nn.Linear(3, 32)
    with pytest.raises(AwnError, match="already"):
        awn.advanced.connect_(Width(Exponential.for_units(9), block=32), [*produced_by(other), *consumed_by(model[2])])
    assert untouched(other)
    assert len(gates_of(model[2])["weight"]) == 1


def test_a_width_is_connected_once():
    model, other, reader = dense(), nn.Linear(3, 32), nn.Linear(32, 2)
    with pytest.raises(AwnError, match="already"):
        awn.advanced.connect_(model[0].width, [*produced_by(other), *consumed_by(reader)])
    assert untouched(nn.Sequential(other, reader))
    assert [axis.module for axis in model[0].width.axes] == [model[0], model[0], model[2]]


def test_a_layer_with_an_attribute_named_width_is_refused_in_words():
    class Sized(nn.Linear):
        width = 3

    first, second = Sized(3, 32), nn.Linear(32, 2)
    with pytest.raises(AwnError, match="width"):
        awn.advanced.connect_(Width(Exponential.for_units(20), block=32), [*produced_by(first), *consumed_by(second)])
    assert untouched(nn.Sequential(first, second))


def test_a_weight_computed_from_others_is_refused_in_words():
    first, second = parametrizations.weight_norm(nn.Linear(3, 32)), nn.Linear(32, 2)
    names = set(nn.Sequential(first, second).state_dict())
    with pytest.raises(AwnError, match="weight"):
        awn.advanced.connect_(Width(Exponential.for_units(20), block=32), [*produced_by(first), *consumed_by(second)])
    assert set(nn.Sequential(first, second).state_dict()) == names


@pytest.mark.parametrize("use", [awn.summary, lambda model: awn.resize_(model, None), awn.finalize])
def test_a_plain_model_has_nothing_to_learn(use):
    with pytest.raises(AwnError, match=r"Sequential has no layer with a learned width.*adapt_.*AdaptiveMLP"):
        use(nn.Sequential(nn.Linear(2, 2)))


# Finding and counting


def test_groups_are_found_in_the_order_of_the_modules_and_by_path():
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.ModuleDict({"b": dense(10), "a": dense(12)})
            self.mlp = awn.AdaptiveMLP(2, 2, hidden_layers=2, importance=Exponential.for_units(5))

    assert awn.widths(Outer()) == {"body.b.0": 10, "body.a.0": 12, "mlp.hidden.0": 5, "mlp.hidden.1": 5}
    assert awn.advanced.find_groups(nn.Linear(2, 2)) == []


def test_a_shared_width_is_one_group():
    model = awn.AdaptiveMLP(2, 2, hidden_layers=3, shared_width=True)
    (group,) = awn.advanced.find_groups(model)
    assert group.name == "hidden.0"
    assert len(group.consumers) == 3


@pytest.mark.parametrize("block", [1, 32])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden_layers": 3},
        {"hidden_layers": 2, "batch_norm": True, "dropout": 0.5},
        {"hidden_layers": 2, "bias": False},
        {"hidden_layers": 3, "shared_width": True},
        {"activation": nn.PReLU()},
    ],
    ids=str,
)
def test_parameters_are_those_of_the_finalized_network(block, options):
    model = awn.AdaptiveMLP(4, 3, block=block, importance=Exponential.for_units(37), **options)
    assert awn.advanced.count_parameters(model) == parameters_of(awn.finalize(model))


def test_parameters_of_convolutions_are_those_of_the_finalized_network():
    model = convolutional()
    expected = 5 * 10 + 5 * (5 * 9 + 1) + 2 * 5 + 3 * (5 * 16 + 1)
    assert awn.advanced.count_parameters(model) == parameters_of(awn.finalize(model)) == expected


def test_parameters_at_other_widths():
    model = awn.AdaptiveMLP(4, 3, hidden_layers=2, importance=Exponential.for_units(10))
    assert awn.advanced.count_parameters(model, {"hidden.0": 6, "hidden.1": 40}) == 6 * 5 + 40 * 7 + 3 * 41
    assert awn.widths(model) == {"hidden.0": 10, "hidden.1": 10}


def test_parameters_where_one_width_of_two_is_another():
    model = awn.AdaptiveMLP(4, 3, hidden_layers=2, importance=Exponential.for_units(10))
    assert awn.advanced.count_parameters(model, {"hidden.1": 40}) == 10 * 5 + 40 * 11 + 3 * 41


def test_parameters_at_the_width_of_a_layer_that_is_not_there():
    model = awn.AdaptiveMLP(4, 3, importance=Exponential.for_units(10))
    with pytest.raises(AwnError, match=r"'hiden\.0'.*'hidden\.0'"):
        awn.advanced.count_parameters(model, {"hidden.0": 10, "hiden.0": 6})


def test_a_model_without_learned_widths_has_its_own_parameters():
    assert awn.advanced.count_parameters(nn.Linear(3, 4)) == 16


# Groups follow the model


def pair() -> nn.Sequential:
    return nn.Sequential(awn.AdaptiveMLP(2, 2), awn.AdaptiveMLP(2, 2, hidden_layers=2))


def replaced(model: nn.Sequential) -> nn.Module:
    model[1] = awn.AdaptiveMLP(2, 2)
    return model


def wholly_replaced(model: nn.Sequential) -> nn.Module:
    model._modules = {"only": awn.AdaptiveMLP(2, 2)}
    return model


def deleted(model: nn.Sequential) -> nn.Module:
    del model[0]
    return model


def moved(model: nn.Sequential) -> nn.Module:
    model.add_module("2", model._modules.pop("0"))
    return model


def added_deep_inside(model: nn.Sequential) -> nn.Module:
    model[0].activation.part = awn.AdaptiveMLP(2, 2)
    return model


def adapted(model: nn.Sequential) -> nn.Module:
    model.append(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2)))
    awn.adapt_(model[2])
    return model


def disconnected(model: nn.Sequential) -> nn.Module:
    awn.advanced.disconnect_(model[1].hidden[0].width, fold=True)
    return model


def shared(model: nn.Sequential) -> nn.Module:
    model[1] = model[0]
    return model


def loaded(model: nn.Sequential) -> nn.Module:
    other = pair()
    awn.advanced.set_units_(other, {"0.hidden.0": 7})
    model.load_state_dict(other.state_dict())
    return model


CHANGES = {
    "replaced": replaced,
    "wholly replaced": wholly_replaced,
    "deleted": deleted,
    "moved": moved,
    "added deep inside": added_deep_inside,
    "adapted": adapted,
    "disconnected": disconnected,
    "shared": shared,
    "loaded": loaded,
    "copied": copy.deepcopy,
    "pickled": lambda model: pickle.loads(pickle.dumps(model)),
    "compiled": lambda model: torch.compile(model, backend="eager"),
    "part of another model": lambda model: nn.ModuleDict({"first": model[1], "second": model}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_groups_follow_a_model_that_changes(change):
    model = pair()
    before = awn.core.groups.find_groups(model)
    assert [group.name for group in before] == ["0.hidden.0", "1.hidden.0", "1.hidden.1"]
    model = CHANGES[change](model)
    inside = getattr(model, "_orig_mod", model)
    expected = {module: name for name, module in inside.named_modules() if isinstance(module, Width)}
    found = awn.core.groups.find_groups(model)
    assert [(group.width, f"{group.name}.width") for group in found] == list(expected.items())
