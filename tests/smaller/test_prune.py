"""`awn.advanced.prune`: which units go, how many, and what is left of the function."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import awn
from awn.core.groups import find_groups
from awn.errors import ArgumentError
from awn.smaller import readers
from awn.smaller.reference import Reference
from awn.smaller.remove import prune_
from awn.smaller.weakest import weakest_units

X = torch.randn(600, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
IMAGES = torch.randn(400, 2, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Convolutions(nn.Module):
    """A convolution that another reads, and a flatten in front of a linear layer: several columns per unit."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(2, 8, 3), nn.Conv2d(8, 6, 3), nn.Linear(6 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.first(x).relu()).relu().flatten(1))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 3))


MODELS: dict[str, Any] = {"mlp": (mlp, X), "convolutions": (Convolutions, IMAGES)}


def adapted(name: str, *, block: int = 1, **options: Any) -> tuple[nn.Module, Tensor]:
    make, x = MODELS[name]
    torch.manual_seed(1)
    model = make().double()
    awn.adapt_(model, preserve=True, block=block, **options)
    return model, x


@torch.no_grad()
def copy_units_(model: nn.Module) -> None:
    """Make the units of the second half of every layer copies of those of the first half."""
    for group in find_groups(model):
        half = group.width.units // 2
        for axis in group.axes:
            if axis.role == "producer":
                size = half * axis.per_unit
                axis.tensor.narrow(axis.dim, size, size).copy_(axis.tensor.narrow(axis.dim, 0, size))


@pytest.mark.parametrize(("numbers", "passes"), [(2**26, 1), (1, 2)])
def test_layers_that_fit_into_memory_share_a_pass_over_the_data(
    numbers: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = adapted("mlp")
    reference = Reference.of(model, x)
    runs: list[nn.Module] = []
    monkeypatch.setattr("awn.smaller.weakest._MOST_NUMBERS", numbers)
    with model.register_forward_hook(lambda module, args, result: runs.append(module)):
        found = weakest_units(model, reference, {"0": 4, "2": 3})
    assert len(runs) == passes * len(reference.fitted)
    assert {name: len(units) for name, units in found.items()} == {"0": 4, "2": 3}


@pytest.mark.parametrize("name", MODELS)
def test_the_others_make_up_for_copies_of_them(name: str) -> None:
    model, x = adapted(name)
    copy_units_(model)
    half = awn.advanced.prune(model, x, keep=0.5)
    assert awn.widths(half) == {layer: units // 2 for layer, units in awn.widths(model).items()}
    wanted, cut = model(x), awn.truncate(model, keep=0.5)(x)
    # The ridge, a thousandth, holds the weights back a little.
    assert (half(x) - wanted).norm() < 0.05 * (cut - wanted).norm()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("layer", [0, 1])
def test_a_unit_that_never_changes_goes_first_and_is_not_missed(name: str, layer: int) -> None:
    model, x = adapted(name)
    group = find_groups(model)[layer]
    with torch.no_grad():
        for axis in group.axes:
            if axis.role == "producer":  # the unit is 0.7 for every input
                part = axis.tensor.narrow(axis.dim, 3 * axis.per_unit, axis.per_unit)
                part.fill_(0.7 if axis.tensor.dim() == 1 else 0.0)
    assert weakest_units(model, Reference.of(model, x), 1) == {group.name: [3]}
    smaller = awn.advanced.prune(model, x, units=sum(awn.widths(model).values()) - 1)
    assert torch.allclose(smaller(x), model(x), atol=1e-3)


def test_the_weakest_unit_is_the_one_whose_removal_costs_the_least_after_least_squares() -> None:
    model, x = adapted("mlp")
    model.eval()
    group = find_groups(model)[1]  # read by the output layer alone
    reference = Reference.of(model, x)
    fitted = torch.cat([observed.batch.args[0] for observed in reference.fitted])
    with torch.no_grad():
        read, wanted = model[:4](fitted), model(fitted)  # type: ignore[index]
    errors = []
    for unit in range(group.width.units):
        others = [each for each in range(group.width.units) if each != unit]
        columns = torch.cat([read[:, others], torch.ones(len(read), 1, dtype=read.dtype)], 1)
        solution = torch.linalg.lstsq(columns, wanted).solution
        errors.append((columns @ solution - wanted).square().sum().item())
    expected = min(range(len(errors)), key=errors.__getitem__)
    assert weakest_units(model, reference, {group.name: 1}) == {group.name: [expected]}


@pytest.mark.parametrize("keep", [1.0, 0.7, 0.3, 1e-9])
@pytest.mark.parametrize("name", MODELS)
def test_a_fraction_is_of_all_units_and_no_layer_is_emptied(name: str, keep: float) -> None:
    model, x = adapted(name)
    before = sum(awn.widths(model).values())
    after = awn.widths(awn.advanced.prune(model, x, keep=keep))
    assert sum(after.values()) == max(2, round(keep * before))
    assert min(after.values()) >= 1


def test_units_per_layer_are_met_and_the_others_stay() -> None:
    model, x = adapted("mlp")
    assert awn.widths(awn.advanced.prune(model, x, units={"0": 5})) == {"0": 5, "2": 10}


def test_a_layer_keeps_its_fewest_units() -> None:
    model, x = adapted("mlp", min_units=4)
    assert awn.widths(awn.advanced.prune(model, x, keep=0.01)) == {"0": 4, "2": 4}


def test_a_layer_whose_reader_cannot_be_refitted_loses_its_last_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MOST_COLUMNS", 11)  # so that the first layer's 12 units are too many for the second
    model, x = adapted("mlp")
    reference = Reference.of(model, x)
    assert reference.order == ("4",)
    assert weakest_units(model, reference, {"0": 3}) == {"0": [9, 10, 11]}
    assert weakest_units(model, reference, 11)["0"] == [6, 7, 8, 9, 10, 11]  # half of all units


@pytest.mark.parametrize("block", [1, 8])
def test_kept_units_keep_their_state_in_the_optimizer(block: int) -> None:
    model, x = adapted("mlp", block=block)
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.01))
    for _ in range(3):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    removed = weakest_units(model, Reference.of(model, x), 9)
    stay = [unit for unit in range(awn.widths(model)["0"]) if unit not in removed.get("0", [])]
    wanted = optimizer.state[model[0].bias]["exp_avg"][stay].clone()
    prune_(model, x, optimizer, remove=9)
    found = optimizer.state[model[0].bias]["exp_avg"]
    assert torch.equal(found[: len(stay)], wanted)
    assert not found[len(stay) :].any()
    model(x).square().mean().backward()
    optimizer.step()
    awn.resize_(model, optimizer)  # it would refuse an optimizer that does not fit the model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one way"),
        ({"keep": 0.5, "units": 3}, "exactly one way"),
        ({"keep": 0.0}, "keep must be"),
        ({"keep": 1.5}, "keep must be"),
        ({"units": 1}, "units must be from 2"),
        ({"units": 23}, "units must be from 2"),
        ({"units": {"9": 1}}, "no adaptive layer"),
        ({"units": {"0": 0}}, "at least 1"),
        ({"units": {"0": 13}}, "cannot keep 13"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    model, x = adapted("mlp")
    with pytest.raises(ArgumentError, match=message):
        awn.advanced.prune(model, x, **options)
