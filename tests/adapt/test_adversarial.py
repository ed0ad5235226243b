"""Models written to deceive `adapt_`: what it makes of each must be right, or refused with a reason."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import awn
from awn.errors import AwnError
from cases import pairwise
from convert_models import Inputs, rows, run

UNITS = 8


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    with torch.no_grad():  # a module that keeps an activation can only be copied if that has no gradient
        yield


class Net(nn.Module):
    """Two hidden layers and all that the forwards below may want; the forward is a function of the module and x."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(5, UNITS), nn.Linear(UNITS, UNITS), nn.Linear(UNITS, 3)
        for name, part in parts.items():
            setattr(self, name, part)
        type(self).forward = forward


def net(forward: Callable[..., Any], **parts: Callable[[], Any]) -> Callable[[], nn.Module]:
    """A builder of a module class of its own with this forward."""

    def build() -> nn.Module:
        kind = type("Net", (Net,), {})
        return kind(forward, **{name: make() for name, make in parts.items()})

    return build


def a_net(x: Tensor, net: Any) -> Tensor:
    return torch.relu(net.a(x))


# (how it is built, the layers that may be adapted): no other may.
DECEPTIONS: dict[str, tuple[Callable[[], nn.Module], set[str]]] = {}


def deception(may: str = "", **parts: Callable[[], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a forward; `may` names the layers whose width may be learned."""

    def register(forward: Callable[..., Any]) -> Callable[..., Any]:
        assert forward.__name__ not in DECEPTIONS, "one of the two would never run"
        DECEPTIONS[forward.__name__] = net(forward, **parts), set(may.split())
        return forward

    return register


@deception("b")
def returns_a_hidden_activation_in_a_tuple(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    return self.c(torch.relu(self.b(h))), h


@deception("b")
def returns_a_hidden_activation_in_a_dict(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    return {"y": self.c(torch.relu(self.b(h))), "more": [{"h": h}]}


@dataclass
class Result:
    y: Tensor
    h: Tensor


@deception("b")
def returns_a_hidden_activation_in_a_dataclass(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    return Result(y=self.c(torch.relu(self.b(h))), h=h)


@deception("b")
def keeps_a_hidden_activation_on_itself(self: Any, x: Tensor) -> Any:
    self.last = torch.relu(self.a(x))
    return self.c(torch.relu(self.b(self.last)))


@deception("b", seen=list)
def keeps_a_hidden_activation_in_a_list(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    self.seen.append({"h": h})
    return self.c(torch.relu(self.b(h)))


@deception("b")
def trains_and_evaluates_by_other_paths(self: Any, x: Tensor) -> Any:
    h = self.a(x)
    h = torch.relu(h) if self.training else torch.softmax(h, -1)
    return self.c(torch.relu(self.b(h)))


@deception("b")
def normalises_in_training_alone(self: Any, x: Tensor) -> Any:
    h = self.a(x)
    h = F.layer_norm(h, (UNITS,)) if self.training else h
    return self.c(torch.relu(self.b(h)))


@deception("b")
def mixes_if_a_mask_is_given(self: Any, x: Tensor, mask: Tensor | None = None) -> Any:
    h = torch.relu(self.a(x))
    if mask is not None:
        h = torch.softmax(h + mask, -1)
    return self.c(torch.relu(self.b(h)))


@deception("b")
def returns_features_if_asked(self: Any, x: Tensor, features: bool = False) -> Any:
    h = torch.relu(self.a(x))
    y = self.c(torch.relu(self.b(h)))
    return (y, h) if features else y


@deception("b")
def goes_by_a_random_number(self: Any, x: Tensor) -> Any:
    h = self.a(x)
    h = torch.relu(h) if torch.rand(()) < 2 else torch.softmax(h, -1)
    return self.c(torch.relu(self.b(h)))


@deception("a b")
def goes_by_a_random_number_of_python(self: Any, x: Tensor) -> Any:
    h = self.a(x)
    h = torch.relu(h) if random.random() < 2 else torch.softmax(h, -1)
    return self.c(torch.relu(self.b(h)))


@deception("b")
def asks_whether_it_has_a_tensor(self: Any, x: Tensor) -> Any:
    h = self.a(x)
    h = torch.softmax(h, -1) if isinstance(x, Tensor) else torch.relu(h)
    return self.c(torch.relu(self.b(h)))


@deception("b")
def asks_in_a_comprehension(self: Any, x: Tensor) -> Any:
    kinds = [isinstance(each, Tensor) for each in (x,)]
    h = self.a(x)
    return self.c(torch.relu(self.b(torch.softmax(h, -1) if kinds[0] else torch.relu(h))))


@deception("b")
def has_a_helper_of_a_helper_ask(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(_activated(self.a(x)))))


def _activated(h: Tensor) -> Tensor:
    return torch.softmax(h, -1) if _has_numbers(h) else torch.relu(h)


def _has_numbers(h: Any) -> bool:
    return isinstance(h, Tensor)


@deception("b", activated=lambda: _activated)
def has_a_method_ask(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(self.activated(self.a(x)))))


@deception("b")
def goes_by_the_data(self: Any, x: Tensor) -> Any:
    h = self.a(x)
    h = torch.relu(h) if x.sum() > 0 else torch.softmax(h, -1)
    return self.c(torch.relu(self.b(h)))


@deception("a b")
def works_in_place(self: Any, x: Tensor) -> Any:
    h = self.a(x)
    h += 1
    h.mul_(2).relu_()
    return self.c(F.relu(self.b(h), inplace=True))


@deception("a b", store=lambda: nn.Buffer(torch.zeros(UNITS)))
def writes_into_a_buffer(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    self.store.copy_(h.detach().sum(0))
    return self.c(torch.relu(self.b(h)))


@deception("a b")
def chunks(self: Any, x: Tensor) -> Any:
    one, two = self.a(x).chunk(2, -1)
    return self.c(torch.relu(self.b(torch.cat([two, one], -1))))


@deception("b")
def splits(self: Any, x: Tensor) -> Any:
    parts = torch.split(self.a(x), 4, dim=1)
    return self.c(torch.relu(self.b(torch.cat((parts[0] * parts[1], parts[1]), 1))))


@deception("a")
def multiplies_by_einsum(self: Any, x: Tensor) -> Any:
    return self.c(torch.einsum("nd,nd->nd", torch.relu(self.a(x)), torch.relu(self.b(self.a(x)))))


@deception("a b")
def uses_a_weight_by_itself(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.relu(F.linear(x, self.a.weight, self.a.bias)))))


@deception("a")
def uses_a_weight_after_its_layer(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    y = self.c(torch.relu(self.b(h)))
    return y + F.linear(x.new_ones(1, UNITS), self.c.weight)


@deception("b", back=lambda: nn.Linear(5, 5))
def shares_a_weight_transposed(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    x = self.back(F.linear(h, self.a.weight.T))
    return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


@deception("b", bn=lambda: nn.BatchNorm1d(UNITS))
def sums_the_scales_of_a_norm(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.bn(self.a(x)))
    return self.c(torch.relu(self.b(h))) * self.bn.weight.sum()


@deception("b", bn=lambda: nn.BatchNorm1d(UNITS))
def sums_the_statistics_of_a_norm(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.bn(self.a(x)))
    return self.c(torch.relu(self.b(h))) * self.bn.running_var.sum()


@deception("a b")
def is_read_by_two(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    return self.c(torch.relu(self.b(h)) + h)


@deception("b")
def transposes_its_units(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))  # eight samples of eight units
    return self.c(torch.relu(self.b(h.T)))


@deception("b")
def transposes_its_units_by_name(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.transpose(torch.relu(self.a(x)), dim0=0, dim1=1))))


@deception("b")
def permutes_by_keyword(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.permute(torch.relu(self.a(x)), dims=(1, 0)))))


@deception("b")
def divides_by_the_number_of_units(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    return self.c(torch.relu(self.b(h / h.shape[-1] ** 0.5)))


@deception("b")
def divides_by_the_size_of_units(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    _, size = h.size()
    return self.c(torch.relu(self.b(h / size)))


@deception("b")
def divides_the_output_by_the_number_of_units(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    return self.c(torch.relu(self.b(h))) / h.numel()


@deception("b")
def divides_by_the_recorded_size(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    return self.c(torch.relu(self.b(h))) / self.a.out_features**0.5


@deception("a")
def divides_by_the_recorded_inputs(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.relu(self.a(x))))) / self.c.in_features


@deception("b")
def divides_by_the_shape_of_a_weight(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.relu(self.a(x))))) / self.a.weight.shape[0]


@deception("b")
def insists_on_a_size(self: Any, x: Tensor) -> Any:
    assert self.a.out_features == UNITS
    return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


@deception("b")
def adds_the_input(self: Any, x: Tensor) -> Any:
    h = self.a(x)
    return self.c(torch.relu(self.b(h + F.pad(x, (0, 3)))))


@deception("a b", scale=lambda: nn.Parameter(torch.rand(UNITS)))
def scales_by_a_parameter(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(self.a(x) * self.scale)))


@deception("b")
def scales_by_a_constant(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(self.a(x) * torch.arange(UNITS))))


@deception("a b")
def scales_by_a_constant_number(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(self.a(x) * torch.tensor(3.0))))


@deception("a b", scale=lambda: nn.Parameter(torch.rand(1)))
def scales_by_a_number(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.relu(self.a(x)) * self.scale)))


@deception("b")
def divides_by_a_norm_over_units(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    return self.c(torch.relu(self.b(h / (1 + h.norm(2, dim=-1, keepdim=True)))))


@deception("b")
def takes_the_deviation_over_units(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    return self.c(torch.relu(self.b(h / (1 + h.std(-1, False, True)))))


@deception("b")
def takes_the_mean_over_units(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    return self.c(torch.relu(self.b(h - h.mean(1, keepdim=True))))


@deception("b", norm=lambda: nn.LayerNorm(UNITS))
def normalises_a_layer(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(self.norm(self.a(x)))))


@deception("b", bn=lambda: nn.BatchNorm1d(UNITS))
def shares_a_norm_with_the_input(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.bn(self.a(x))) + self.bn(F.pad(x, (0, 3))).sum(1, keepdim=True)
    return self.c(torch.relu(self.b(h)))


@deception("b")
def reads_the_input_by_the_same_layer(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.a(x))
    return self.c(torch.relu(self.b(F.pad(x, (0, 3)))) + torch.relu(self.b(h)))


@deception("a b")
def runs_without_gradients(self: Any, x: Tensor) -> Any:
    with torch.no_grad():
        h = torch.relu(self.a(x))
    return self.c(torch.relu(self.b(h)))


def relu(x: Tensor) -> Tensor:
    """Not what its name says."""
    return x - x.mean(-1, keepdim=True)


torch.fx.wrap("relu")


@deception("b")
def calls_a_function_of_a_known_name(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(relu(self.a(x)))))


@deception("a b")
def calls_a_forward_by_itself(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.relu(self.a.forward(x)))))


@deception("a")
def sorts_its_units(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.relu(self.a(x)))).sort(-1).values)


@deception("a")
def flips_its_units(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.relu(self.a(x)))).flip(-1))


@deception("a b")
def takes_the_last_units(self: Any, x: Tensor) -> Any:
    h = torch.relu(self.b(torch.relu(self.a(x))))
    return self.c(h) + h[:, -3:]


@deception("a")
def accumulates_over_units(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.relu(self.a(x)))).cumsum(-1))


@deception("a", drop=lambda: nn.Dropout(0.5), act=lambda: nn.Softmax(dim=-1))
def divides_by_a_sum(self: Any, x: Tensor) -> Any:
    return self.c(self.drop(self.act(self.b(torch.relu(self.a(x))))))


@deception("a b", act=lambda: nn.GLU())
def gates_halves(self: Any, x: Tensor) -> Any:
    return self.c(torch.cat([self.act(self.b(torch.relu(self.a(x))))] * 2, -1))


@deception("b")
def reshapes_by_a_number(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.relu(self.a(x)).view(-1, UNITS))))


@deception("b")
def unfolds_its_units(self: Any, x: Tensor) -> Any:
    return self.c(torch.relu(self.b(torch.relu(self.a(x)).view(-1, 2, UNITS // 2).transpose(1, 2).flatten(1))))


@deception("b")
def compares_its_units(self: Any, x: Tensor) -> Any:
    h = self.a(x)
    return self.c(torch.relu(self.b(torch.where(h == h.amax(-1, keepdim=True), h, 0 * h))))


def shared_in_an_untraceable_part() -> nn.Module:
    class Part(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(self.layer(x), -1) if x.sum() > 0 else self.layer(x)

    def forward(self: Any, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(torch.relu(self.a(x)) + self.part(x))))

    model = net(forward)()
    model.part = Part(model.a)
    return model


def inside_of_an_untraceable_part_and_outside() -> nn.Module:
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.Sequential(nn.Linear(5, UNITS), nn.ReLU(), nn.Linear(UNITS, 5))

        def forward(self, x: Tensor) -> Tensor:
            return self.steps(x) if x.sum() > 0 else -self.steps(x)

    def forward(self: Any, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(torch.softmax(self.part.steps[0](self.part(x)), -1))))

    return net(forward, part=Part)()


def two_untraceable_parts_that_share() -> nn.Module:
    class Whole(nn.Module):
        def __init__(self, steps: nn.Module) -> None:
            super().__init__()
            self.steps = steps

        def forward(self, x: Tensor) -> Tensor:
            return self.steps(x) if x.sum() > 0 else -self.steps(x)

    class First(nn.Module):
        def __init__(self, first: nn.Module) -> None:
            super().__init__()
            self.first = first

        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(self.first(x), -1) if x.sum() > 0 else self.first(x)

    def forward(self: Any, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(self.first(self.whole(x)))))

    steps = nn.Sequential(nn.Linear(5, UNITS), nn.ReLU(), nn.Linear(UNITS, 5))
    model = net(forward)()
    model.whole, model.first = Whole(steps), First(steps[0])
    return model


def hooked(name: str, hook: Callable[..., Any], pre: bool = False) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(5, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.Tanh(), nn.Linear(UNITS, 3))
        module = model.get_submodule(name)
        (module.register_forward_pre_hook if pre else module.register_forward_hook)(hook)
        return model

    return build


def replaced_forward() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.Tanh(), nn.Linear(UNITS, 3))
    model[1].forward = lambda x: torch.softmax(x, -1)
    return model


def replaced_forward_of_a_part() -> nn.Module:
    inner = nn.Sequential(nn.Linear(5, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS))
    inner.forward = lambda x: inner[2](torch.softmax(inner[0](x), -1))
    return nn.Sequential(inner, nn.Tanh(), nn.Linear(UNITS, 3), nn.Tanh(), nn.Linear(3, 3))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.ReLU(), nn.Linear(UNITS, 5))
    model.append(nn.Linear(5, UNITS)).append(nn.Linear(UNITS, 3))
    model[5].weight = model[0].weight
    return model


def pruned() -> nn.Module:
    from torch.nn.utils import prune

    model = nn.Sequential(nn.Linear(5, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.Tanh(), nn.Linear(UNITS, 3))
    prune.random_unstructured(model[0], "weight", 0.5)
    return model


def weight_normed() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.Tanh(), nn.Linear(UNITS, 3))
    nn.utils.parametrizations.weight_norm(model[0])
    return model


def own_linear() -> nn.Module:
    class Standardised(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight - self.weight.mean(0), self.bias)

    return nn.Sequential(Standardised(5, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.Tanh(), nn.Linear(UNITS, 3))


def own_sequential() -> nn.Module:
    class Collects(nn.Sequential):
        def forward(self, x: Tensor) -> Any:
            seen = []
            for layer in self:
                x = layer(x)
                seen.append(x)
            return x, seen[1]

    return Collects(nn.Linear(5, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.Tanh(), nn.Linear(UNITS, 3))


def encoder_with_a_mixing_activation() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, UNITS, activation=lambda x: torch.softmax(x, -1), batch_first=True)
    return nn.Sequential(nn.Linear(5, UNITS), nn.ReLU(), nn.Linear(UNITS, 4), nn.Unflatten(0, (2, -1)), layer)


def encoder_with_another_feed_forward() -> nn.Module:
    class Other(nn.TransformerEncoderLayer):
        def _ff_block(self, x: Tensor) -> Tensor:
            return self.linear2(torch.softmax(self.linear1(x), -1))

    layer = Other(4, 2, UNITS, batch_first=True)
    return nn.Sequential(nn.Linear(5, UNITS), nn.ReLU(), nn.Linear(UNITS, 4), nn.Unflatten(0, (2, -1)), layer)


OTHERS: dict[str, tuple[Callable[[], nn.Module], set[str]]] = {
    "shared in an untraceable part": (shared_in_an_untraceable_part, {"b"}),
    "inside of an untraceable part and outside": (inside_of_an_untraceable_part_and_outside, {"b"}),
    "two untraceable parts that share": (two_untraceable_parts_that_share, {"b"}),
    "a hook that mixes": (hooked("0", lambda m, a, y: torch.softmax(y, -1)), {"2"}),
    "a hook on an activation": (hooked("1", lambda m, a, y: torch.softmax(y, -1)), {"2"}),
    "a hook before a layer": (hooked("2", lambda m, a: (torch.softmax(a[0], -1),), pre=True), {"2"}),
    "a hook that adds its units": (hooked("3", lambda m, a, y: y + torch.arange(UNITS)), {"0"}),
    "a replaced forward": (replaced_forward, {"2"}),
    "a replaced forward of a part": (replaced_forward_of_a_part, {"2"}),
    "a tied weight": (tied, {"2"}),
    "a pruned layer": (pruned, {"2"}),
    "weight norm": (weight_normed, {"2"}),
    "a linear layer of its own": (own_linear, {"2"}),
    "a sequence of its own": (own_sequential, {"2"}),
    "an encoder with a mixing activation": (encoder_with_a_mixing_activation, {"0", "4.self_attn"}),
    "an encoder with another feed-forward part": (encoder_with_another_feed_forward, {"0"}),
}
ALL = {**DECEPTIONS, **OTHERS}
BY_ARGUMENT = {"mixes_if_a_mask_is_given", "returns_features_if_asked"}


def state_of(model: nn.Module) -> dict[str, Any]:
    """All that looking at a model must not change."""
    attributes = {
        (path, name): value
        for path, module in model.named_modules()
        for name, value in module.__dict__.items()
        if isinstance(value, bool | int | float | str | type(None))
    }
    return {
        "tensors": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "parameters": {name: id(parameter) for name, parameter in model.named_parameters()},
        "classes": {name: type(module) for name, module in model.named_modules()},
        "attributes": attributes,
        "names": {name: sorted(module.__dict__) for name, module in model.named_modules()},
        "hooks": [
            len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._load_state_dict_pre_hooks)
            for module in model.modules()
        ],
        "random": (torch.get_rng_state().tolist(), random.getstate()),
    }


def assert_unchanged(before: dict[str, Any], model: nn.Module) -> None:
    now = state_of(model)
    for kind, value in before.items():
        if kind == "tensors":
            assert list(value) == list(now[kind])
            assert all(torch.equal(value[name], now[kind][name]) for name in value)
        else:
            assert value == now[kind], kind


def check_adapted(model: nn.Module, inputs: Inputs) -> None:
    """What was adapted behaves: other widths, zero units, finalize, in training and in evaluation."""
    model.eval()
    for by in (3, 30, -35, 1):
        before = run(model, inputs)
        awn.advanced.set_units_(model, {name: max(2, units + by) for name, units in awn.widths(model).items()}, None)
        now = run(model, inputs)
        if by > 0:
            torch.testing.assert_close(now, before, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(run(awn.finalize(model), inputs), now, rtol=1e-10, atol=1e-10)
    model.train()
    assert all(torch.isfinite(one).all() for one in run(model, inputs))


@pytest.mark.parametrize(("name", "example", "preserve"), pairwise(ALL, (False, True), (False, True)))
def test_deceptions_are_seen_through(name: str, example: bool, preserve: bool) -> None:
    build, allowed = ALL[name]
    torch.manual_seed(0)
    model, inputs = build(), rows(UNITS, 5)()
    model.eval()
    expected = run(model, inputs)
    model.train()
    model.__dict__.pop("last", None)
    if "seen" in model.__dict__:
        model.seen.clear()
    # An example says how the model is called: the way that it is not called does not count.
    by_example = {"a"} if name in BY_ARGUMENT else set()
    report = awn.adapt_(model, preserve=preserve, block=1, example_input=inputs if example else None)
    assert set(awn.widths(model)) <= allowed | by_example, f"\n{report}"
    assert all(one.reason for one in report.skipped)
    if preserve:
        model.eval()
        torch.testing.assert_close(run(model, inputs), expected, rtol=1e-10, atol=1e-10)
    check_adapted(model, inputs)


# An addition makes one width of two; how many units there are, where that is not the number of rows.
ONE_OF_TWO = {"is_read_by_two": {"a": 8}}
FEWER_UNITS = {
    "chunks": {"a": 4},
    "takes_the_last_units": {"b": 5},
    "gates_halves": {"b": 4},
    "an encoder with a mixing activation": {"4.self_attn": 2},
}


@pytest.mark.parametrize("name", [name for name, (_, allowed) in ALL.items() if len(allowed) == 2])
def test_what_is_harmless_is_adapted(name: str) -> None:
    build, allowed = ALL[name]
    model = build()
    awn.adapt_(model)
    expected = ONE_OF_TWO.get(name, dict.fromkeys(allowed, UNITS)) | FEWER_UNITS.get(name, {})
    assert awn.widths(model) == expected


# Convolutions and reshapes.


class Conv(nn.Module):
    def __init__(self, forward: Callable[..., Tensor], channels: int = 4, read: int = 16) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, channels, 3, padding=1), nn.Linear(read, 3)
        self.step = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, torch.relu(self.conv(x)))


def old_softmax(x: Tensor) -> Tensor:
    """Over dimension 1, if there are four."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return F.softmax(x)


# (forward, what the linear layer reads, the input's shape): the images are 2 × 2, the channels 4. What is right is
# adapted: the units, in blocks that do not lie together.
RIGHT_RESHAPES: dict[str, tuple[Callable[..., Tensor], int, tuple[int, ...], int]] = {
    "from dimension 0": (lambda self, x: self.fc(torch.flatten(x, 0)), 16 * 3, (3, 2, 2, 2), 4),
    "flatten without a start": (lambda self, x: self.fc(x.flatten()), 16 * 2, (2, 2, 2, 2), 4),
    "channels split in two": (lambda self, x: self.fc(x.view(x.size(0) * 2, -1)), 8, (3, 2, 2, 2), 2),
    "channels last, flattened": (lambda self, x: self.fc(x.permute(0, 2, 3, 1).flatten(1)), 16, (3, 2, 2, 2), 4),
    "padded channels": (lambda self, x: self.fc(F.pad(x, (0, 0, 0, 0, 0, 4)).mean((2, 3))), 8, (3, 2, 2, 2), 4),
}
WRONG_RESHAPES: dict[str, tuple[Callable[..., Tensor], int, tuple[int, ...]]] = {
    "a number in the forward": (lambda self, x: self.fc(x.view(-1, 16)), 16, (3, 2, 2, 2)),
    "another number": (lambda self, x: self.fc(x.reshape(3, 16)), 16, (3, 2, 2, 2)),
    "pixels flattened alone": (lambda self, x: self.fc(x.flatten(2)), 4, (3, 2, 2, 2)),
    "columns read as channels": (lambda self, x: self.fc(x), 4, (3, 2, 2, 4)),
    "a part of the flat units": (lambda self, x: self.fc(x.flatten(1)[:, :8]), 8, (3, 2, 2, 2)),
    "pooled when flat": (lambda self, x: self.fc(F.avg_pool1d(x.flatten(1)[:, None], 2)[:, 0]), 8, (3, 2, 2, 2)),
    "mean over channels": (lambda self, x: self.fc(x.mean(1).flatten(1)), 4, (3, 2, 2, 2)),
    "norm over channels": (lambda self, x: self.fc(x.norm(2, dim=1).flatten(1)), 4, (3, 2, 2, 2)),
    "shuffled pixels": (lambda self, x: self.fc(F.pixel_shuffle(x, 2).flatten(1)), 16, (3, 2, 2, 2)),
    "softmax over channels": (lambda self, x: self.fc(x.softmax(1).flatten(1)), 16, (3, 2, 2, 2)),
    "indices beside the pooled": (
        lambda self, x: self.fc(F.max_pool2d(x, 1, return_indices=True)[0].mean((1, 2))),
        2,
        (3, 2, 2, 2),
    ),
    "softmax without a dimension": (lambda self, x: self.fc(old_softmax(x).flatten(1)), 16, (3, 2, 2, 2)),
    "scaled by the channels": (lambda self, x: self.fc(x.flatten(1) / x.size(1)), 16, (3, 2, 2, 2)),
}


@pytest.mark.parametrize("name", WRONG_RESHAPES)
def test_reshapes_that_lose_the_units_are_refused(name: str) -> None:
    forward, read, shape = WRONG_RESHAPES[name]
    model = Conv(forward, read=read)
    inputs = (torch.randn(shape),)
    run(model, inputs)  # it is a model that runs
    before = state_of(model)
    with pytest.raises(AwnError, match="no hidden layer whose width can be learned") as error:
        awn.adapt_(model, example_input=inputs)
    assert "conv" in str(error.value)
    assert_unchanged(before, model)


@pytest.mark.parametrize("name", RIGHT_RESHAPES)
def test_reshapes_that_keep_the_units_apart_are_followed(name: str) -> None:
    forward, read, shape, units = RIGHT_RESHAPES[name]
    model, inputs = Conv(forward, read=read), (torch.randn(shape),)
    awn.adapt_(model, example_input=inputs, block=1)
    assert awn.widths(model) == {"conv": units}
    check_adapted(model, inputs)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_batch_of_one_deceives_nobody(batch: int) -> None:
    for forward in (lambda self, x: self.fc(x.flatten(1)), lambda self, x: self.fc(x.view(x.shape[0], -1))):
        model, inputs = Conv(forward), rows(batch, 2, 2, 2)()
        awn.adapt_(model, example_input=inputs)
        assert awn.widths(model) == {"conv": 4}
        check_adapted(model, rows(5, 2, 2, 2)())


def test_a_norm_over_tokens_is_not_taken_for_one_over_units() -> None:
    """[samples, tokens, units] with as many tokens as units: only an example can tell."""
    for inputs, norm_follows in ((torch.randn(4, 6, 5), False), (torch.randn(4, 5), True)):
        model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
        awn.adapt_(model, example_input=inputs, block=1)
        assert awn.widths(model) == {"0": 6}
        awn.advanced.set_units_(model, {"0": 9}, None)
        assert model[1].num_features == (9 if norm_follows else 6)
        check_adapted(model, (inputs,))


@pytest.mark.parametrize("make", [lambda: nn.LayerNorm(8), lambda: nn.Softmax(1), lambda: nn.LocalResponseNorm(3)])
def test_what_mixes_units_is_named(make: Callable[[], nn.Module]) -> None:
    layer = make()
    model = nn.Sequential(nn.Linear(5, 8), layer, nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    report = awn.adapt_(model, example_input=torch.randn(4, 6, 5) if isinstance(layer, nn.Softmax) else None)
    reasons = {one.name: one.reason for one in report.skipped}
    if isinstance(layer, nn.Softmax):  # over tokens: it does not mix units
        assert awn.widths(model) == {"0": 8, "2": 8}
    else:
        assert awn.widths(model) == {"2": 8}
        assert type(layer).__name__ in reasons["0"]


def test_a_forward_that_goes_by_python_s_random_numbers_is_recorded_with_several() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        h = self.a(x)
        h = torch.relu(h) if random.random() < 0.5 else torch.softmax(h, -1)
        return self.c(torch.relu(self.b(h)))

    model = net(forward)()
    state = random.getstate()
    report = awn.adapt_(model)
    assert random.getstate() == state
    assert awn.widths(model) == {"b": UNITS}
    assert "softmax" in {one.name: one.reason for one in report.skipped}["a"]


def test_groups_of_channels_are_units() -> None:
    """A group norm and a grouped convolution treat groups alike, so the number of groups is a width."""
    normed = nn.Sequential(nn.Conv2d(2, 12, 1), nn.GroupNorm(3, 12), nn.ReLU(), nn.Conv2d(12, 2, 1))
    grouped = nn.Sequential(nn.Conv2d(2, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(), nn.Conv2d(8, 2, 1))
    for model, widths in ((normed, {"0": 3}), (grouped, {"0": 2})):
        awn.adapt_(model, example_input=torch.randn(3, 2, 6, 6), block=1)
        assert awn.widths(model) == widths
        check_adapted(model, (torch.randn(3, 2, 6, 6),))
    assert normed[1].num_groups == awn.widths(normed)["0"]
    assert grouped[2].groups == awn.widths(grouped)["0"]


def test_a_sequence_that_is_only_iterated_is_refused_if_the_example_shows_it() -> None:
    class Collects(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))

        def forward(self, x: Tensor) -> list[Tensor]:
            seen = []
            for layer in self.steps:
                x = layer(x) if x.sum() > -1e9 else x
                seen.append(x)
            return seen

    with pytest.raises(AwnError, match="it is an output of Collects"):
        awn.adapt_(Collects(), example_input=torch.randn(4, 5))


def test_a_flag_that_a_caller_turns_is_followed() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(5, 8), nn.Linear(8, 5)

        def forward(self, x: Tensor, how: str = "relu") -> Tensor:
            h = self.up(x)
            return self.down(torch.relu(h) if how == "relu" else torch.softmax(h, -1))

    class Outer(nn.Module):
        def __init__(self, untraceable: bool) -> None:
            super().__init__()
            self.inner, self.untraceable = Inner(), untraceable

        def forward(self, x: Tensor) -> Tensor:
            if self.untraceable and x.sum() > 1e9:
                return x
            return self.inner(self.inner(x), how="softmax")

    for untraceable in (False, True):
        with pytest.raises(AwnError, match="softmax"):
            awn.adapt_(Outer(untraceable), example_input=torch.randn(4, 5))
    with pytest.raises(AwnError, match="softmax"):
        awn.adapt_(Outer(False))


def test_an_argument_named_like_another_is_told_apart() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv1d(2, 6, 1), nn.Linear(6 * 7, 3)

        def forward(self, x: Tensor, x_1: Tensor, flag: bool = True, other: bool = False) -> Tensor:
            h = torch.relu(self.conv(x_1)) if flag and not other else x
            return self.fc(h.reshape(h.shape[0], -1)) + x.mean()

    model, inputs = Two(), (torch.randn(3, 9), torch.randn(3, 2, 7))
    awn.adapt_(model, example_input=inputs)
    assert awn.widths(model) == {"conv": 6}
    check_adapted(model, inputs)


def test_a_dict_that_cannot_be_written_is_left_alone() -> None:
    class Frozen(dict[str, int]):
        def clear(self) -> None:
            raise TypeError("frozen")

    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    model.config = Frozen(size=3)
    awn.adapt_(model, example_input=torch.randn(2, 5))
    assert awn.widths(model) == {"0": 8}


def test_looking_leaves_lists_and_constants_alone() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        self.seen.append(x)
        self.counter += 1
        self.note = SimpleNamespace(x=x)
        return self.c(torch.relu(self.a(x) * torch.tensor(2.0)))

    model = net(forward, seen=list, counter=lambda: nn.Buffer(torch.zeros(())))()
    for example in (None, torch.randn(4, 5)):
        twin = net(forward, seen=list, counter=lambda: nn.Buffer(torch.zeros(())))()
        awn.adapt_(twin, example_input=example)
        assert awn.widths(twin) == {"a": UNITS}
        assert not twin.seen
        assert twin.counter == 0
        assert set(twin.__dict__) == set(model.__dict__)
