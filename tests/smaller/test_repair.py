"""repair: the weights that read the units of a cut network are refitted, and the network is never worse for it."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import awn
import convert_models
from awn.advanced import Axis, Width, connect_, find_groups, repair_
from awn.basics.batches import Batch, evaluating, hold_out, read_batches
from awn.core.places import own_parts
from awn.errors import ArgumentError
from awn.smaller.batch_norms import BatchNorms
from awn.smaller.least_squares import Moments
from awn.smaller.readers import find_readers
from awn.smaller.reference import Reference
from cases import IN, MODELS, assert_inert_is_zero, assert_same, build, pairwise, snapshot

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning",  # PyTorch Geometric, as it is imported
)

BATCHES = 30  # every fifth is held out


def case_data(case: convert_models.Case, model: nn.Module) -> list[dict[str, Any]]:
    """Batches of named arguments, in double precision."""
    names = list(inspect.signature(model.forward).parameters)
    made = (case.inputs() for _ in range(BATCHES))
    named = (x if isinstance(x, dict) else dict(zip(names, x, strict=False)) for x in made)
    return [{name: in_double(value) for name, value in batch.items()} for batch in named]


def in_double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def adapted(name: str) -> tuple[nn.Module, list[dict[str, Any]]]:
    """An adaptive model of the table, in double precision, and data for it."""
    torch.manual_seed(0)
    case = convert_models.MODELS[name]
    model = case.build()
    awn.adapt_(model, example_input=case.inputs() if case.example else None)
    return model.double(), case_data(case, model)


def copy_units_(model: nn.Module) -> None:
    """Make the last units of every layer copies of the first ones: those of the second half, of the first half."""
    with torch.no_grad():
        for group in find_groups(model):
            units = group.width.units
            half = math.ceil(units / 2)
            for axis in group.axes:
                blocks = axis.blocks_of(group.width) if axis.role == "producer" else ()
                for part in own_parts(axis.tensor, axis.dim, blocks, group.width):
                    rows = part.movedim(axis.dim, 0)
                    entries = len(rows) // group.width.capacity
                    rows[half * entries : units * entries] = rows[: (units - half) * entries].clone()


def output_error(model: nn.Module, small: nn.Module, batches: list[Any]) -> float:
    """The root of the mean, over what the models return, of the relative squared errors."""
    with evaluating(model, small):
        pairs = zip(*([convert_models.run(net, batch) for batch in batches] for net in (model, small)), strict=True)
    by_output = [list(zip(*pair, strict=True)) for pair in pairs]
    errors = []
    for output in zip(*by_output, strict=True):
        if output[0][0].shape == output[0][1].shape and output[0][0].dim():
            off = sum((found - wanted).double().square().sum() for wanted, found in output)
            errors.append(off / sum(wanted.double().square().sum() for wanted, _ in output))
    return float(torch.stack(errors).mean().sqrt())


# Least squares


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("columns", [None, [0, 1, 2, 5]])
def test_solve_equals_least_squares_with_rows_for_the_ridge(ridge: float, columns: list[int] | None) -> None:
    x, z, now = (np.random.default_rng(0).normal(size=shape) for shape in ((40, 6), (40, 3), (6, 3)))
    moments = Moments.of(6, 3)
    for part in np.split(np.arange(40), 4):
        moments.add_(torch.from_numpy(x[part]), torch.from_numpy(z[part]))
    kept = list(range(6)) if columns is None else columns
    x, now = x[:, kept], now[kept]
    weight = math.sqrt(ridge * np.square(x).sum(0).mean())
    wanted = np.linalg.lstsq(np.vstack([x, weight * np.eye(len(kept))]), np.vstack([z, weight * now]), rcond=None)[0]
    found = moments.solve(torch.from_numpy(now), None if columns is None else torch.tensor(columns), ridge)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-11)


def test_a_singular_system_gives_the_nearest_solution() -> None:
    x = torch.tensor([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]], dtype=torch.float64)
    moments = Moments.of(3, 1)
    moments.add_(x, 4 * x[:, :1])
    found = moments.solve(torch.tensor([[1.0], [1.0], [7.0]]), ridge=0.0)
    torch.testing.assert_close(found, torch.tensor([[2.0], [2.0], [7.0]], dtype=torch.float64))


# What layers read


def flat(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), layer)


def after_conv(layer: nn.Module) -> nn.Module:
    dims = layer.weight.dim() - 2
    return nn.Sequential({1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims](2, 6, 1), nn.Tanh(), layer)


READERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3)), (4, 2)),
    "no bias": (lambda: nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3, bias=False)), (4, 2)),
    "tokens": (lambda: nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3)), (4, 5, 2)),
    "flattened": (lambda: flat(nn.Linear(6 * 4, 3)), (4, 2, 4, 4)),
    "conv 1d": (lambda: after_conv(nn.Conv1d(6, 3, 3, stride=2, padding=1)), (4, 2, 9)),
    "conv 2d": (lambda: after_conv(nn.Conv2d(6, 3, (3, 2), (2, 1), (0, 1), (1, 2))), (4, 2, 7, 6)),
    "conv 2d, same": (lambda: after_conv(nn.Conv2d(6, 3, 4, padding="same")), (4, 2, 5, 6)),
    "conv 2d, circular": (lambda: after_conv(nn.Conv2d(6, 3, 3, padding=1, padding_mode="circular")), (4, 2, 5, 6)),
    "conv 3d": (lambda: after_conv(nn.Conv3d(6, 3, (1, 2, 3), padding=1)), (2, 2, 3, 4, 5)),
    "transposed 1d": (lambda: after_conv(nn.ConvTranspose1d(6, 3, 4, 3, 1, 1, dilation=2)), (4, 2, 7)),
    "transposed 2d": (lambda: after_conv(nn.ConvTranspose2d(6, 3, (3, 2), (2, 3), (1, 0), (1, 2))), (4, 2, 5, 4)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("most", [7, 10_000])
@pytest.mark.parametrize("name", READERS)
def test_a_reader_is_a_matrix_product_of_what_it_reads(name: str, most: int) -> None:
    make, shape = READERS[name]
    model = make()
    awn.adapt_(model)
    awn.advanced.set_units_(model, dict.fromkeys(awn.widths(model), 5))  # with inert slots
    model = model.double()
    x = torch.randn(*shape, dtype=torch.float64)
    (reader,) = find_readers(model)[0].values()
    inputs = model[:-1](x).detach()
    outputs = model[-1](inputs).detach()
    rows, results = reader.rows(model[-1], inputs, most), reader.results(model[-1], outputs, most)
    assert len(rows) == min(most, outputs.numel() // 3) == min(most, reader.count(outputs))
    torch.testing.assert_close(rows @ reader.weights(), results, rtol=1e-9, atol=1e-12)
    changed = reader.weights() + torch.randn_like(reader.weights())
    reader.set_weights_(changed)
    torch.testing.assert_close(reader.weights(), changed, rtol=1e-6, atol=1e-9)
    again = reader.results(model[-1], model[-1](inputs).detach(), most)
    torch.testing.assert_close(rows @ changed, again, rtol=1e-6, atol=1e-9)


def test_patches_of_a_convolution_are_those_of_unfold() -> None:
    model = nn.Sequential(nn.Conv2d(2, 6, 1), nn.ReLU(), nn.Conv2d(6, 3, (3, 2), (2, 1), (0, 1), (1, 2), bias=False))
    awn.adapt_(model, block=1)
    (reader,) = find_readers(model)[0].values()
    inputs = torch.randn(4, 6, 7, 6)
    wanted = F.unfold(inputs, (3, 2), dilation=(1, 2), padding=(0, 1), stride=(2, 1)).transpose(1, 2).flatten(0, 1)
    assert torch.equal(reader.rows(model[2], inputs, 10_000), wanted)


# Units that others can stand in for

# A layer that is called again on what it made itself is fitted to inputs that its new weights change.
CALLED_AGAIN = ("shared", "recurrent")
# What a recurrent layer, or the projections of an attention, read is weighed inside the layer, out of sight.
INSIDE = ("lstm", "gru, two layers both ways", "packed", "attending")


@pytest.mark.parametrize("name", INSIDE)
def test_layers_that_weigh_what_they_read_out_of_sight_say_so(name: str) -> None:
    model, data = adapted(name)
    small = awn.truncate(model, keep=0.5)
    report = repair_(small, model, data)
    left = [one for one in report.layers if not one.repaired]
    assert any("is not known to be a weighted sum of what it reads" in one.reason for one in left)
    assert report.after <= report.before


@pytest.mark.parametrize("name", [name for name in convert_models.MODELS if name not in (*CALLED_AGAIN, *INSIDE)])
def test_copies_of_units_can_be_cut_without_loss(name: str) -> None:
    model, data = adapted(name)
    copy_units_(model)
    half = {layer: math.ceil(units / 2) for layer, units in awn.widths(model).items()}
    small = awn.truncate(model, units=half)
    assert output_error(model, small, data) > 1e-5
    report = repair_(small, model, data, ridge=1e-9)
    assert all(layer.repaired for layer in report.layers), report
    assert output_error(model, small, data) < 1e-5, report


def test_sums_of_units_can_be_cut_without_loss() -> None:
    """The last unit of a linear layer is a sum of the others, and a constant."""
    model = nn.Sequential(nn.Linear(4, 5), nn.Identity(), nn.Linear(5, 3)).double()
    with torch.no_grad():
        model[0].weight[4], model[0].bias[4] = model[0].weight[:4].T @ torch.arange(4.0).double(), 5.0
    awn.adapt_(model)
    x = torch.randn(200, 4).double()
    small = awn.truncate(model, units=4)
    repair_(small, model, x, ridge=1e-10)
    torch.testing.assert_close(small(x), model(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("removed", [range(6), [0, 5, 10, 3], [11, 0]])
def test_any_units_can_be_removed_and_repaired(removed: Any) -> None:
    """Twelve units of four kinds in both layers: some of each kind are left."""
    model = build("2 layers", units=12, block=1)
    with torch.no_grad():
        for layer in model.hidden:
            for tensor in (layer._parameters["weight"], layer.bias):
                tensor.copy_(tensor[:4].repeat(3, *[1] * (tensor.dim() - 1)))
    x = torch.randn(300, IN, dtype=torch.float64)
    units = {"hidden.0": removed, "hidden.1": list(removed)[:2]}
    plain, small = (awn.advanced.remove_units(model, units, repair=data) for data in (None, x))
    assert awn.widths(small) == {"hidden.0": 12 - len(removed), "hidden.1": 10}
    assert (small(x) - model(x)).norm() < 0.05 * (plain(x) - model(x)).norm()


def test_layers_that_share_a_weight_are_fitted_together() -> None:
    """Two readers with one weight: with one bias it is fitted as well, and with a bias each these stay."""
    for one_bias in (True, False):
        torch.manual_seed(0)
        maker, first, second = nn.Linear(3, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        second.weight = first.weight
        second.bias = first.bias if one_bias else second.bias
        axes = [Axis(maker, "weight", 0, "producer"), Axis(maker, "bias", 0, "producer")]
        axes += [Axis(layer, "weight", 1, "consumer") for layer in (first, second)]
        connect_(Width(awn.Exponential.for_units(8, scale="unit"), block=1), axes)
        model = _Twice(maker, first, second).double()
        copy_units_(model)
        x = torch.randn(200, 3).double()
        small = awn.truncate(model, units=4)
        bias = small.second.bias.detach().clone()
        report = repair_(small, model, x, ridge=1e-10)
        assert [layer.name for layer in report.layers] == ["first"]
        assert small.first._parameters["weight"] is small.second._parameters["weight"]
        assert one_bias or torch.equal(small.second.bias, bias)
        torch.testing.assert_close(small(x), model(x), rtol=1e-6, atol=1e-6)


class _Twice(nn.Module):
    def __init__(self, maker: nn.Module, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.maker, self.first, self.second = maker, first, second

    def forward(self, x: Tensor) -> Tensor:
        units = torch.relu(self.maker(x))
        return self.first(units) + self.second(units.flip(0))


def test_layers_are_repaired_in_the_order_of_the_forward() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.middle, self.first = nn.Linear(8, 2), nn.Linear(8, 8), nn.Linear(3, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.relu(self.middle(torch.relu(self.first(x)))))

    model = Backwards().double()
    awn.adapt_(model)
    copy_units_(model)
    x = torch.randn(300, 3).double()
    small = awn.truncate(model, units=4)
    report = repair_(small, model, x, ridge=1e-10)
    assert [layer.name for layer in report.layers] == ["middle", "last"]
    torch.testing.assert_close(small(x), model(x), rtol=1e-6, atol=1e-6)


def test_compress_counts_on_the_repair() -> None:
    model = build("1 layer", units=24)
    copy_units_(model)
    x = torch.randn(200, IN, dtype=torch.float64)
    wanted = model(x).detach()

    def score(net: nn.Module) -> float:
        return -float((net(x).detach() - wanted).norm() / wanted.norm())

    plain, small = (awn.compress(model, score, max_drop=1e-2, repair=data) for data in (None, x))
    assert awn.widths(small)["hidden.0"] <= 12 < awn.widths(plain)["hidden.0"]


# Never worse


@pytest.mark.parametrize("keep", [0.8, 0.4])
@pytest.mark.parametrize("name", convert_models.MODELS)
def test_a_repaired_cut_is_never_worse_on_the_held_out_part(name: str, keep: float) -> None:
    model, data = adapted(name)
    plain = awn.truncate(model, keep=keep)
    small = copy.deepcopy(plain)
    report = repair_(small, model, data)
    held = data[4::5]
    assert report.after <= report.before
    assert report.before == pytest.approx(output_error(model, plain, held), rel=1e-6)
    assert report.after == pytest.approx(output_error(model, small, held), rel=1e-6)


@pytest.mark.parametrize(("case", "block"), pairwise(MODELS, (1, 32)))
def test_a_repair_leaves_widths_and_inert_slots(case: str, block: int) -> None:
    model = build(case, block=block)
    plain = awn.truncate(model, keep=0.5)
    small = awn.truncate(model, keep=0.5, repair=torch.randn(200, IN, dtype=torch.float64))
    assert awn.widths(small) == awn.widths(plain)
    assert_inert_is_zero(small)
    for one, other in zip(find_groups(small), find_groups(plain), strict=True):
        assert torch.equal(one.width.importance(), other.width.importance())
    awn.resize_(small)
    assert awn.widths(small) == awn.widths(plain)


def test_a_repair_that_cannot_help_changes_nothing() -> None:
    model, x = build(), torch.randn(100, IN, dtype=torch.float64)
    same = awn.truncate(model, keep=1.0)
    before = snapshot(same)
    report = repair_(same, model, x)
    assert_same(before, snapshot(same))
    assert report.before == report.after == 0
    assert all(layer.reason and not layer.repaired for layer in report.layers)


def test_statistics_of_batch_norms_are_those_of_the_data() -> None:
    """Batches of equal size and of one row, which has no variance; dropout is off, and the momentum stays."""
    model = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm1d(3), nn.Linear(3, 2)).double()
    x = torch.randn(40, 3).double() + 5
    parts = [*x.split(10), x[:1]]
    BatchNorms.of(model).recalibrate_([Batch((part,), {}) for part in parts])
    torch.testing.assert_close(model[1].running_mean, x.mean(0))
    torch.testing.assert_close(model[1].running_var, torch.stack([part.var(0) for part in x.split(10)]).mean(0))
    assert model.training
    assert model[1].training
    assert model[1].momentum == 0.1


def test_a_repair_estimates_statistics_if_that_helps() -> None:
    model = build("batch norm", units=30)
    x = torch.randn(400, IN, dtype=torch.float64)
    BatchNorms.of(model).recalibrate_(read_batches(x, "x"))
    small = awn.truncate(model, keep=0.3)
    before = copy.deepcopy(small.state_dict())
    report = repair_(small, model, x, ridge=1e12)  # the weights stay
    assert report.after < report.before
    changed = {name for name, tensor in small.state_dict().items() if not torch.allclose(tensor, before[name])}
    assert changed
    assert all(name.startswith("norms.") for name in changed)


# Nothing else changes


@pytest.mark.parametrize("case", ["dropout", "batch norm", "shared width"])
def test_the_model_and_the_random_states_are_left(case: str) -> None:
    model, x = build(case), torch.randn(100, IN, dtype=torch.float64)
    model.norms.eval()
    modes, before = [module.training for module in model.modules()], snapshot(model)
    state = torch.get_rng_state()
    small = awn.truncate(model, keep=0.5, repair=x)
    assert torch.equal(state, torch.get_rng_state())
    assert_same(before, snapshot(model))
    assert [module.training for module in model.modules()] == modes == [module.training for module in small.modules()]
    assert not any(module._forward_hooks for net in (model, small) for module in net.modules())
    assert torch.backends.mha.get_fastpath_enabled()


KINDS: dict[str, Callable[[Tensor], Any]] = {
    "list of tensors": lambda x: list(x.split(10)),
    "generator": lambda x: (rows for rows in x.split(10)),
    "loader of pairs": lambda x: DataLoader(TensorDataset(x, torch.zeros(len(x))), batch_size=10),
    "named arguments": lambda x: [{"x": rows} for rows in x.split(10)],
    "pairs of named arguments": lambda x: [({"x": rows}, None) for rows in x.split(10)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_gives_the_same(kind: str) -> None:
    model, x = build(), torch.randn(100, IN, dtype=torch.float64)
    wanted = awn.truncate(model, keep=0.5, repair=list(x.split(10)))
    assert_same(wanted.state_dict(), awn.truncate(model, keep=0.5, repair=KINDS[kind](x)).state_dict())


@pytest.mark.parametrize("one_batch", [lambda x: {"x": x}, lambda x: [x], lambda x: x])
def test_a_single_batch_is_split_by_rows(one_batch: Callable[[Tensor], Any]) -> None:
    fitted, held = hold_out(read_batches(one_batch(torch.arange(40.0)[:, None]), "repair"), "repair")
    rows = [torch.cat([batch.tensors[0] for batch in part])[:, 0] for part in (fitted, held)]
    assert [len(part) for part in rows] == [32, 8]
    assert torch.equal(torch.cat(rows).sort().values, torch.arange(40.0))


def test_many_rows_are_sampled() -> None:
    assert sum(batch.rows for batch in read_batches(torch.zeros(50_000, 1), "repair")) == 8192
    endless = (torch.zeros(100, 1) for _ in itertools.count())
    assert sum(batch.rows for batch in read_batches(endless, "repair")) == 8200


@pytest.mark.parametrize(("units", "used"), [(20, 4 * 8192), (1400, 2**35 // 1400**2), (4200, 8192)])
def test_layers_that_read_few_numbers_use_more_positions(units: int, used: int) -> None:
    model = awn.AdaptiveMLP(IN, 1, importance=awn.Exponential.for_units(units, scale="unit"), block=1)
    reference = Reference.of(model, torch.randn(10, 2, IN))
    assert reference.positions["output"] == -(-used // len(reference.fitted))


def test_moments_of_a_network_serve_every_prefix() -> None:
    """One pass over the data: the solution for a prefix is that of the network cut there."""
    model, x = build("1 layer", units=20, block=1), torch.randn(200, IN, dtype=torch.float64)
    reference = Reference.of(model, x)
    whole = reference.collect(model)["output"]
    for units in (3, 11):
        small = awn.truncate(model, units=units)
        reader = reference.readers(small)["output"]
        columns = torch.tensor([*range(units), 20])  # the bias is the last column
        wanted = reference.collect(small)["output"].solve(reader.weights())
        torch.testing.assert_close(whole.solve(reader.weights(), columns), wanted, rtol=1e-8, atol=1e-10)


# Errors


class OwnForward(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).abs()


def odd_model() -> nn.Module:
    maker, reader = nn.Linear(IN, 8), OwnForward(8, 2)
    axes = [Axis(maker, "weight", 0, "producer"), Axis(maker, "bias", 0, "producer")]
    connect_(Width(awn.Exponential.for_units(8), block=1), [*axes, Axis(reader, "weight", 1, "consumer")])
    return nn.Sequential(maker, nn.ReLU(), reader)


BAD = {
    "another shape": (torch.zeros(10, IN + 1), "cannot be run on, \\(2, 4\\) of float32"),
    "no rows": (torch.zeros(0, IN), "at least two rows"),
    "no batches": ([], "at least two rows"),
    "one row": (torch.zeros(1, IN), "at least two rows"),
    "not finite": (torch.full((10, IN), math.nan), "not finite"),
    "a number": (3, "a tensor of inputs or an iterable of batches, got int"),
    "a single number": (torch.tensor(3.0), "got a single number"),
    "words": (["ab"], "must hold batches of inputs.*got str"),
    "uneven": ([{"x": torch.zeros(4, IN), "mask": torch.zeros(3)}], "single batch.*Give at least two"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("cut", ["truncate", "compress", "remove"])
def test_data_that_cannot_be_used_is_refused(kind: str, cut: str) -> None:
    model = build(dtype=torch.float32)
    data, message = BAD[kind]
    before = snapshot(model)
    cuts: dict[str, Callable[[], Any]] = {
        "truncate": lambda: awn.truncate(model, keep=0.5, repair=data),
        "compress": lambda: awn.compress(model, lambda net: 1.0, repair=data),
        "remove": lambda: awn.advanced.remove_units(model, {"hidden.0": [0]}, repair=data),
    }
    with pytest.raises(ArgumentError, match=message):
        cuts[cut]()
    assert_same(before, snapshot(model))


def test_a_model_that_cannot_be_repaired_says_why() -> None:
    with pytest.raises(ArgumentError, match="no layer of Sequential can be repaired:\n  2: OwnForward is not known"):
        awn.truncate(odd_model(), keep=0.5, repair=torch.randn(20, IN))


def test_a_layer_that_cannot_be_repaired_is_named() -> None:
    model = nn.Sequential(odd_model(), nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    group = [Axis(model[1], name, 0, "producer") for name in ("weight", "bias")]
    connect_(Width(awn.Exponential.for_units(8), block=1), [*group, Axis(model[3], "weight", 1, "consumer")])
    small = awn.truncate(model, keep=0.5)
    report = repair_(small, model, torch.randn(100, IN))
    assert [(layer.name, layer.repaired) for layer in report.layers] == [("3", True), ("0.2", False)]
    assert "OwnForward" in str(report)


def test_a_network_that_is_no_cut_is_refused() -> None:
    model, x = build(units=20), torch.randn(50, IN, dtype=torch.float64)
    for other in (build(units=21), build("4 layers", units=10)):
        with pytest.raises(ArgumentError, match="is no cut of one with"):
            repair_(other, model, x)
    with pytest.raises(ArgumentError, match=r"kept\['hidden.0'\]"):
        repair_(awn.truncate(model, units=5), model, x, kept={"hidden.0": [1, 2]})
    with pytest.raises(ArgumentError, match="ridge must be"):
        repair_(awn.truncate(model, units=5), model, x, ridge=-1.0)


def test_a_failure_in_the_middle_leaves_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = build("4 layers"), torch.randn(50, IN, dtype=torch.float64)
    small = awn.truncate(model, keep=0.5)
    before, calls, solve = snapshot(small), [], Moments.solve

    def failing(self: Moments, *arguments: Any, **options: Any) -> Tensor:
        calls.append(self)
        if len(calls) == 3:
            raise RuntimeError("no memory")
        return solve(self, *arguments, **options)

    monkeypatch.setattr(Moments, "solve", failing)
    with pytest.raises(RuntimeError, match="no memory"):
        repair_(small, model, x)
    assert_same(before, snapshot(small))
