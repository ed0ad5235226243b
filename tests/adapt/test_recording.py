"""What recording finds beyond plain layers: heads, experts, blocks of channels; and what it must never touch."""

from __future__ import annotations

import copy
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import awn
from awn.adapt import add_operation
from awn.adapt.groups import layout
from awn.adapt.table import RULES
from awn.adapt.table.entrywise import entrywise
from awn.adapt.terms import Term, concatenation, cut, product, split, unify
from awn.errors import ArgumentError, AwnError
from cases import assert_same, snapshot
from convert_blocks import MODELS, Attention, tokens


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor, Tensor, dict[str, int], Callable[[], nn.Module]]:
    torch.manual_seed(0)
    build, x, other, widths = MODELS[request.param]
    return build(), x.double(), other.double(), widths, build


def test_every_law_holds_for_blocks_and_numbers(case: Any, tmp_path: Path) -> None:
    model, x, other, widths, build = case
    before = [model(one) for one in (x, other)]
    awn.adapt_(model, example_input=x, preserve=True, block=1)
    assert awn.widths(model) == widths
    for by in (0, 2, -1, 3):
        wanted = {name: max(1, units + by + place % 2) for place, (name, units) in enumerate(awn.widths(model).items())}
        awn.advanced.set_units_(model, wanted, None)
        if by == 2:  # nothing was dropped so far: new units read nothing
            torch.testing.assert_close([model(one) for one in (x, other)], before)
        now = [model(one) for one in (x, other)]
        bare = awn.finalize(model)
        torch.testing.assert_close([bare(one) for one in (x, other)], now)
        assert sum(p.numel() for p in bare.parameters()) == awn.advanced.count_parameters(model)
        torch.testing.assert_close(copy.deepcopy(model)(x), now[0])
        awn.save(model, tmp_path / str(by))
        loaded = awn.load(tmp_path / str(by), build())
        assert awn.widths(loaded) == wanted
        assert torch.equal(loaded(other), now[1])
        fresh = build()
        awn.adapt_(fresh, example_input=x)
        fresh.load_state_dict(model.state_dict())
        assert torch.equal(fresh(other), now[1])


def test_training_moves_blocks_and_truncation_and_budgets_follow(case: Any) -> None:
    model, x, _, _, _ = case
    awn.adapt_(model, example_input=x, new_units="rescaled")
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.01, width_lr=0.3))
    start = awn.widths(model)
    for _ in range(6):
        budget = awn.Budget(max_units=len(start))
        loss = awn.objective(model(x).square().mean(), model, n_samples=50, budget=budget)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        awn.resize_(model, optimizer)
    assert awn.widths(model) != start
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    smaller = awn.truncate(model, keep=0.5)
    assert smaller(x).shape == model(x).shape
    groups = awn.advanced.find_groups(model)
    cost = awn.Budget(max_params=10**6).cost(model, groups)
    units = [group.width.units for group in groups]
    total = sum(factor * torch.tensor([units[i] for i in used]).prod().item() for factor, used in cost)
    assert total == awn.advanced.count_parameters(model)


def test_numbers_follow_and_no_more_than_needed() -> None:
    model = nn.Sequential(Attention())
    report = awn.adapt_(model, example_input=tokens(), block=1)
    assert report.attributes == ("Attention.heads", "Attention.shared")
    awn.advanced.set_units_(model, {"0.qkv": 3}, None)
    assert (model[0].heads, model[0].shared, model[0].size) == (6, 3, 3)
    assert (model[0].qkv.out_features, model[0].out.in_features) == (36, 18)


class Configured(nn.Module):
    """Layers that share a configuration, of which each changes its own copy."""

    class Config:
        heads = 0

    def __init__(self) -> None:
        super().__init__()
        config = self.Config()
        config.heads = 4
        self.parts = nn.ModuleList(self.Part(config) for _ in range(2))
        self.config = config

    class Part(nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.config, self.up, self.down = config, nn.Linear(8, 12), nn.Linear(12, 8)

        def forward(self, x: Tensor) -> Tensor:
            h = self.up(x).unflatten(-1, (self.config.heads, 3)).softmax(-1)
            return x + self.down(h.flatten(-2))

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


def test_a_shared_configuration_is_copied_where_it_changes() -> None:
    model = Configured()
    awn.adapt_(model, example_input=tokens(), block=1)
    assert awn.widths(model) == {"parts.0.up": 4, "parts.1.up": 4}
    awn.advanced.set_units_(model, {"parts.0.up": 6}, None)
    assert [part.config.heads for part in model.parts] == [6, 4]
    assert model.config.heads == 4
    assert model(tokens()).shape == (3, 4, 8)


# Terms


def test_terms_are_split_cut_and_joined_but_never_by_size() -> None:
    heads, size = split(whole := Term(12), 4, "view")
    assert (whole.kind, heads.size, size.size) == ("product", 3, 4)
    first, second = cut(pair := Term(10), 4, "split")
    assert (pair.kind, first.size, second.size) == ("concatenation", 4, 6)
    other = Term(12)
    unify(whole, other, "add")
    assert other.root is whole.root
    assert Term(12).root is not whole.root
    one, two = split(Term(12), 3, "view")
    unify(product([heads, size]), product([one, two]), "add")  # 3 × 4 and 4 × 3: no common factors
    assert heads.why is not None or size.why is not None


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda u, n: u, [("u", 1)]),
        (lambda u, n: product([u, n]), [("u", 3)]),
        (lambda u, n: product([n, u]), [("u", 1)] * 3),
        (lambda u, n: concatenation([u, n, u]), [("u", 1), (None, 3), ("u", 1)]),
        (lambda u, n: product([concatenation([u, n]), Term(2)]), [("u", 2), (None, 6)]),
        (lambda u, n: product([u, u]), None),
    ],
)
def test_layouts_of_terms(make: Callable[[Term, Term], Term], expected: Any) -> None:
    units = Term(5)
    assert layout(make(units, Term(3)), {units: "u"}) == expected


def test_an_operation_of_ones_own_can_be_described() -> None:
    @torch.library.custom_op("awn_tests::shifted", mutates_args=())
    def shifted(x: Tensor) -> Tensor:
        return x + 1

    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3))
    hook = model[0].register_forward_hook(lambda module, args, result: shifted(result))
    with pytest.raises(AwnError, match="shifted in Linear '0' may mix its units"):
        awn.adapt_(model)
    add_operation("shifted", entrywise)
    try:
        awn.adapt_(model)
    finally:
        RULES.pop("shifted")
        hook.remove()
    assert awn.widths(model) == {"0": 8}


# What must never change


class Interrupting(TorchDispatchMode):
    """Sends Ctrl-C at the n-th operation."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        return func(*args, **(kwargs or {}))


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 2))


def flags() -> list[Any]:
    return [
        torch.backends.mha.get_fastpath_enabled(),
        torch._C._get_mkldnn_enabled(),
        torch.backends.cuda.flash_sdp_enabled(),
        torch.is_grad_enabled(),
        signal.getsignal(signal.SIGINT),
    ]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own answer to Ctrl-C, which processes that run tests in parallel ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_at_any_operation_leaves_everything_as_it_was() -> None:
    """Either nothing has changed, or all: 200 interrupts over the whole of `adapt_`."""
    torch.manual_seed(0)
    x = torch.randn(3, 3)
    with Interrupting(10**9) as mode:
        awn.adapt_(small(), example_input=x, preserve=True)
    operations, interrupted = 10**9 - mode.left, 0
    outcomes = random.Random(0)
    for _ in range(200):
        model = small()
        before, states, now = snapshot(model), (torch.get_rng_state(), random.getstate()), flags()
        classes = [type(module) for module in model.modules()]
        raised = False
        try:
            with Interrupting(outcomes.randint(1, operations)) as mode:
                awn.adapt_(model, example_input=x, preserve=True)
        except KeyboardInterrupt:
            raised = True
        assert raised == (mode.left <= 0)  # other weights may need fewer operations
        assert flags() == now
        if awn.advanced.find_groups(model):  # the interrupt came while the widths were connected
            assert awn.widths(model) == {"0": 4}
            continue
        interrupted += 1
        assert_same(before, snapshot(model))
        assert classes == [type(module) for module in model.modules()]
        assert torch.equal(states[0], torch.get_rng_state())
        assert states[1] == random.getstate()
    assert interrupted > 150


def test_batch_statistics_stay_when_a_model_is_refused() -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Softmax(-1), nn.Linear(8, 2))
    x = torch.randn(6, 5)
    before = snapshot(model)
    with pytest.raises(AwnError, match="softmax in Softmax '2' mixes its units"):
        awn.adapt_(model, example_input=x)
    assert_same(before, snapshot(model))


def test_a_forward_that_reaches_the_model_itself_is_undone() -> None:
    norm = nn.BatchNorm1d(5)

    class Reaching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.a, self.b = norm, nn.Linear(5, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            norm.train()
            return self.b(torch.relu(self.a(x))) + norm(x)[:, :2]

    model = Reaching()
    before = snapshot(model)
    awn.adapt_(model, example_input=torch.randn(6, 5))
    assert awn.widths(model) == {"a": 8}
    assert torch.equal(norm.running_mean, torch.zeros(5))  # type: ignore[arg-type]
    assert before


# Bad input


class Constant(nn.Module):
    """Its output does not depend on its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x))) * 0 + 1


def sparse() -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 2))
    model.register_buffer("graph", torch.eye(3).to_sparse())
    return model


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.parametrize(
    ("build", "example", "match"),
    [
        (mlp, torch.randn(3, 4), r"example_input does not run through Sequential: RuntimeError: .*4 and 5x8"),
        (mlp, torch.randn(3, 5).to_sparse(), "example_input holds a sparse tensor"),
        (mlp, torch.nested.nested_tensor([torch.randn(2, 5)], layout=torch.jagged), "example_input holds a nested"),
        (mlp, torch.randn(3, 5, device="meta"), "example_input is on the meta device"),
        (mlp, 3, "example_input must be a tensor"),
        (sparse, torch.randn(3, 5), "'graph' is a sparse tensor"),
        (Constant, torch.randn(3, 5), "not verifiable with this example"),
    ],
)
def test_bad_input_is_refused_with_nothing_changed(build: Callable[[], nn.Module], example: Any, match: str) -> None:
    model = build()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    names = [sorted(vars(module)) for module in model.modules()]
    with pytest.raises(ArgumentError, match=match):
        awn.adapt_(model, example_input=example)
    assert [sorted(vars(module)) for module in model.modules()] == names
    assert all(torch.equal(value.to_dense(), before[name].to_dense()) for name, value in model.state_dict().items())


def test_what_did_not_run_is_said() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.other = nn.Linear(5, 8), nn.Linear(8, 2), nn.Linear(8, 2)

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            h = torch.relu(self.a(x))
            if mask is not None:
                h = self.other(h * mask)
            return self.b(h)

    report = awn.adapt_(Branches())
    assert {one.name: one.reason for one in report.skipped}["other"].startswith("it did not run with this example")
    (line,) = report.not_taken
    assert line.startswith("test_recording.py:")
    assert "lines that did not run: test_recording.py" in str(report)


def test_repeated_rows_are_printed_once() -> None:
    blocks = nn.ModuleDict({"layers": nn.ModuleList(mlp() for _ in range(5))})

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = blocks

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([layer(x) for layer in self.blocks["layers"]]).sum(0)

    report = awn.adapt_(Stack())
    assert len(report.adapted) == 5
    assert "blocks.layers.*.0 ×5" in str(report)
    assert 0.8 < report.share < 1
