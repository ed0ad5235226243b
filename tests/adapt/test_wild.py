"""What people write that `adapt_` must leave alone, and say why; and what must not keep it from the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import awn
from convert_wild import Experts, OddCall

with_or_without_example = pytest.mark.parametrize("example", [False, True])


def reasons(model: nn.Module, *inputs: Tensor, example: bool = True) -> dict[str, str]:
    """Why each layer is left as it is."""
    try:
        skipped = awn.adapt_(model, example_input=inputs if example else None).skipped
    except awn.AwnError as error:
        return {"all": str(error)}
    return {one.name: one.reason for one in skipped}


# Parts that the rest of the model takes apart


class Parts(nn.Module):
    """Two parts, for forwards that cannot be traced: they go by the data."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 6))
        self.free = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 6))
        self.head, self.probe = nn.Linear(6, 2), nn.Linear(8, 2)


def _by_helper(model: Any, x: Tensor) -> Tensor:
    return _one_by_one(model.part, x)


def _one_by_one(layers: Any, x: Tensor) -> Tensor:
    for layer in layers:
        x = torch.softmax(layer(x), -1)
    return x


class ByLoop(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        for layer in self.part:
            x = torch.softmax(layer(x), -1)
        return self.head(self.free(x))


class ByIndex(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        return self.head(self.free(self.part(x))) + self.probe(self.part[0](x))


class ByMethod(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        return self.head(self.free(self.inner(x)))

    def inner(self, x: Tensor) -> Tensor:
        first, *others = list(self.part.children())
        return _one_by_one(others, torch.softmax(first(x), -1))


class ByHelper(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        return self.head(self.free(_by_helper(self, x)))


@with_or_without_example
@pytest.mark.parametrize("kind", [ByLoop, ByIndex, ByMethod, ByHelper])
def test_a_part_that_is_taken_apart_is_not_traced_by_itself(kind: Any, example: bool) -> None:
    model, x = kind(), torch.randn(3, 5)
    before = model(x)
    awn.adapt_(model, preserve=True, example_input=x if example else None)
    expected = {"free.0": 7, "free.2": 6} | ({"part.0": 8, "part.1": 6} if kind is ByIndex else {})
    assert awn.widths(model) == expected
    torch.testing.assert_close(model(x), before)
    awn.advanced.set_units_(model, dict.fromkeys(awn.widths(model), 4), None)
    assert model(x).shape == before.shape


class ByUnpacking(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        up, down = self.part
        return self.head(down(torch.softmax(up(x), -1)))


class ByStar(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        return self.head(self.run(x, *self.part))

    def run(self, x: Tensor, *layers: nn.Module) -> Tensor:
        return _one_by_one(layers, x)


class ByStaticMethod(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        return self.head(self.run(self.part, x))

    @staticmethod
    def run(layers: Any, x: Tensor) -> Tensor:
        return _one_by_one(layers, x)


class ByInnerFunction(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6

        def run(layers: Any) -> Tensor:
            return _one_by_one(layers, x)

        return self.head(run(self.part))


class ByWeight(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        return self.head(self.part(x)) + torch.relu(F.linear(x, self.part[0].weight)).mean()


class ByPlainForward(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        return self.head(self.part(x)) + self.part[0].forward(x).shape[-1]


class ByGenerator(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        return self.head(_one_by_one(self.layers(), x))

    def layers(self) -> Iterator[nn.Module]:
        yield from self.part


class ByPlainAttribute(Parts):
    def __init__(self) -> None:
        super().__init__()
        self.kept = {"layers": [self.part]}

    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        return self.head(_one_by_one(self.kept["layers"][0], x))


class ByBase(ByUnpacking):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        return super().forward(x)


def undone(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*args: Any) -> Tensor:
        assert args[1].sum() < 1e6
        return function(*args)

    return run


class ByDecorated(Parts):
    @undone
    def forward(self, x: Tensor) -> Tensor:
        return self.head(_one_by_one(self.part, x))


class Sibling(nn.Module):
    """Holds a part of another module, and uses its layers."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.kept = [part]

    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6
        return torch.softmax(self.kept[0][0](x), -1).std()


class BySibling(Parts):
    def __init__(self) -> None:
        super().__init__()
        self.sibling = Sibling(self.part)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.part(x)) + self.sibling(x)


@with_or_without_example
@pytest.mark.parametrize(
    "kind",
    [
        *(ByUnpacking, ByStar, ByStaticMethod, ByInnerFunction, ByWeight, ByPlainForward, ByGenerator),
        *(ByPlainAttribute, ByBase, ByDecorated, BySibling),
    ],
)
def test_no_way_of_taking_a_part_apart_goes_unseen(kind: Any, example: bool) -> None:
    model, x = kind(), torch.randn(3, 5)
    before = model(x)
    with contextlib.suppress(awn.AwnError):  # none of it can be adapted
        awn.adapt_(model, example_input=x if example else None)
    widths = {group.name for group in awn.advanced.find_groups(model)}
    assert "part.0" not in widths
    assert model(x).shape == before.shape


class Whole(Parts):
    def forward(self, x: Tensor) -> Tensor:
        assert x.sum() < 1e6 or self.part.training
        h = checkpoint(self.part, x, use_reentrant=False)
        return self.head(self.free(h))


@with_or_without_example
def test_a_part_that_is_called_whole_is_adapted(example: bool) -> None:
    model = Whole()
    awn.adapt_(model, example_input=torch.randn(3, 5) if example else None)
    assert {"part.0": 8, "free.0": 7}.items() <= awn.widths(model).items()


# Numbers that are not finite where units are 0


def by_units(h: Tensor) -> Tensor:
    return 1 / h


def by_their_mean(h: Tensor) -> Tensor:
    return h / h.mean(1, keepdim=True)


NOT_FINITE: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt": lambda h: (h * h).sqrt(),
    "rsqrt": lambda h: torch.rsqrt(h.abs()),
    "log": lambda h: torch.log(h.square()),
    "reciprocal": lambda h: h.reciprocal(),
    "pow": lambda h: h.abs() ** 0.5,
    "reciprocal ": by_units,
    "div ": by_their_mean,
    "masked_fill": lambda h: h.masked_fill(h == 0, -torch.inf).softmax(1),
    "where": lambda h: torch.where(h == 0, torch.inf, h),
    "log ": lambda h: torch.log(h * h + 1e-40),
    "sqrt ": lambda h: (h**2 + 1).sub_(1).sqrt(),
}


class Applied(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.function = nn.Linear(5, 8), nn.Linear(8, 3), function

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.function(self.first(x)))


@pytest.mark.parametrize("name", NOT_FINITE)
def test_what_is_not_finite_at_zero_is_refused(name: str) -> None:
    assert f"first: {name.strip()} " in reasons(Applied(NOT_FINITE[name]), torch.randn(3, 4, 5))["all"]


@pytest.mark.parametrize(
    "function",
    [
        lambda h: (h * h + 1e-6).sqrt(),
        lambda h: torch.log(torch.relu(h) + 1),
        lambda h: h / (1 + h.abs()),
        lambda h: torch.sigmoid(h).log(),
        lambda h: h**2 + 2**h,
        lambda h: h / 3,
        lambda h: h - h.std(0, keepdim=True),
    ],
)
def test_what_is_finite_at_zero_stays_finite(function: Callable[[Tensor], Tensor]) -> None:
    model, x = Applied(function), torch.randn(3, 5)
    awn.adapt_(model)
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.01, width_lr=0.3))
    for _ in range(6):
        loss = awn.objective(model(x).square().mean(), model, n_samples=100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        awn.resize_(model, optimizer)
    assert awn.widths(model) != {"first": 8}
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


# Products, sizes, and what an example shows


def test_units_multiplied_with_each_other_stay() -> None:
    said = reasons(Applied(lambda h: h @ h.transpose(-1, -2) @ h), torch.randn(4, 5))["all"]
    assert "multiplied or summed with each other" in said
    assert "first: it is an input of the model" in reasons(Applied(lambda h: h @ h), torch.randn(8, 5))["all"]


def test_the_number_of_units_read_from_the_front_of_a_shape_is_theirs() -> None:
    def by_size(h: Tensor) -> Tensor:
        h = h.transpose(0, 1)
        return (h / h.size(0)).transpose(0, 1)

    assert "with more units, the outputs change" in reasons(Applied(by_size), torch.randn(3, 5))["all"]


def test_a_condition_about_the_number_of_units_stays_with_it() -> None:
    def by_condition(h: Tensor) -> Tensor:
        return torch.relu(h) if h.shape[-1] == 8 else torch.tanh(h)

    assert "with more units, the outputs change" in reasons(Applied(by_condition), torch.randn(3, 5))["all"]


def test_a_condition_about_numbers_is_followed_both_ways() -> None:
    for x in (torch.ones(3, 5), -torch.ones(3, 5)):
        harmless = Applied(lambda h: h if h.sum() > 0 else -h)
        awn.adapt_(harmless, example_input=x)
        assert awn.widths(harmless) == {"first": 8}
        mixing = Applied(lambda h: h if h.sum() > 0 else h.softmax(-1))
        assert "softmax in Applied mixes its units" in reasons(mixing, x)["all"]


def test_an_example_is_asked_for_where_none_can_be_made() -> None:
    class Twice(Applied):
        def forward(self, x: Tensor, rounds: dict[str, int]) -> Tensor:
            return self.second(self.function(self.first(x))) * rounds["number"]

    model = Twice(torch.relu)
    with pytest.raises(awn.AwnError, match=r"example_input=\(x, rounds,\)\) or example_input=\{'x': …, 'rounds': …\}"):
        awn.adapt_(model)
    awn.adapt_(model, example_input={"x": torch.randn(3, 5), "rounds": {"number": 2}})
    assert awn.widths(model) == {"first": 8}


def test_odd_calls_are_made_as_the_example_makes_them() -> None:
    model = OddCall()
    awn.adapt_(model, example_input={"x": torch.randn(3, 5), "other": 1})
    assert awn.widths(model) == {"first": 9}


def test_a_forward_may_name_what_is_yet_to_be_given_a_value() -> None:
    class Early(Applied):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if not hasattr(self, "never") else later(x)

    model = Early(torch.relu)
    awn.adapt_(model)
    assert awn.widths(model) == {"first": 8}
    later = torch.relu


def test_a_gate_for_all_units_is_none_of_them() -> None:
    said = reasons(Experts(), torch.randn(3, 5))
    assert said["scale"] == "it makes a single unit"


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(torch.relu(self.first(x)))
        return y + 0.1 * torch.randn_like(y)


def test_an_example_does_not_keep_parts_with_noise_from_being_seen() -> None:
    model = nn.Sequential(Noisy(), Noisy())
    awn.adapt_(model, example_input=torch.randn(3, 5))
    assert awn.widths(model) == {"0.first": 8, "0.second": 5, "1.first": 8}


# Layers that are almost torch's own


class OwnNorm(nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(1, keepdim=True) if x.mean() > -100 else x


@with_or_without_example
def test_a_norm_with_a_forward_of_its_own_is_not_trusted(example: bool) -> None:
    model = nn.Sequential(nn.Linear(5, 8), OwnNorm(8), nn.Linear(8, 3))
    assert "mean in OwnNorm '1' goes over its units" in reasons(model, torch.randn(4, 5), example=example)["all"]


class Asks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, size: Tensor) -> Tensor:
        h = self.first(x)
        return self.second(torch.relu(h) if size > 3 else torch.softmax(h, -1))


def test_a_condition_about_an_input_is_none_about_shapes_whatever_its_name() -> None:
    assert "softmax in Asks mixes its units" in reasons(Asks(), torch.randn(3, 5), torch.tensor(9))["all"]


def test_arguments_may_be_named() -> None:
    model = Applied(lambda h: torch.transpose(torch.div(input=torch.transpose(input=h, dim0=0, dim1=1), other=2), 0, 1))
    awn.adapt_(model, example_input=torch.randn(3, 5))
    assert awn.widths(model) == {"first": 8}


def test_the_places_of_the_largest_entries_may_be_dropped() -> None:
    def largest(h: Tensor) -> Tensor:
        values, _ = h.max(1)
        return values

    model = Applied(largest)
    awn.adapt_(model, example_input=torch.randn(3, 4, 5))
    assert awn.widths(model) == {"first": 8}


def test_a_variance_of_everything_goes_over_the_units() -> None:
    assert (
        "var in Applied goes over its units"
        in reasons(Applied(lambda h: h / (h.var(False) + 1)), torch.randn(3, 5))["all"]
    )


class OwnForward(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight**2, self.bias)


def test_a_layer_with_a_forward_of_its_own_is_what_it_does() -> None:
    model = nn.Sequential(nn.Linear(5, 9), OwnForward(9, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    x = torch.randn(3, 5)
    before = model(x)
    awn.adapt_(model, preserve=True)
    assert awn.widths(model) == {"0": 9, "1": 8, "3": 8}
    torch.testing.assert_close(model(x), before)
    awn.advanced.set_units_(model, {"0": 12, "1": 11, "3": 10}, None)
    torch.testing.assert_close(model(x), before)


def test_layers_with_a_weight_norm_are_named() -> None:
    normed = nn.Sequential(parametrizations.weight_norm(nn.Linear(5, 8)), nn.ReLU())
    assert "0: a weight is computed by a parametrization" in reasons(normed, example=False)["all"]
    inside = nn.Sequential(parametrizations.weight_norm(nn.Linear(5, 8)), nn.ReLU(), nn.Linear(8, 2))
    assert "0: a weight is computed by a parametrization" in reasons(inside, example=False)["all"]


def test_a_model_with_a_spectral_norm_elsewhere_is_saved_and_loaded(tmp_path: Path) -> None:
    def build() -> nn.Module:
        first = parametrizations.spectral_norm(nn.Linear(3, 4))
        return nn.Sequential(first, nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)).eval()

    model, x = build(), torch.randn(5, 3)
    awn.adapt_(model, include="1")
    awn.advanced.set_units_(model, {"1": 7}, None)
    awn.save(model, tmp_path)
    loaded = awn.load(tmp_path, build())
    assert awn.widths(loaded) == {"1": 7}
    torch.testing.assert_close(loaded(x), model(x))
