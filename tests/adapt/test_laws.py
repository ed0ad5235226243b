"""The laws of the design, over the models that `adapt_` makes adaptive."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import awn
from awn.core.attention import AnyHeadsAttention
from awn.core.count import axes_by_tensor, blocks_by_dim
from awn.core.gate import plain_class
from awn.core.groups import disconnect_, find_groups
from awn.core.places import Count, active_parts, units_of
from cases import BLOCKS, OPTIMIZERS, assert_same, snapshot, tensors_of
from convert_models import MODELS, Inputs, encoder_stack, padding_mask, run

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning",  # PyTorch Geometric, as it is imported
    "ignore:.*nested tensors is in prototype stage:UserWarning",
)
# One reshape of a convolution's channels stands for all where the law is about something else.
SOME = [name for name in MODELS if not name.startswith("conv net") or name == "conv net, flatten"]

every_case = pytest.mark.parametrize("name", MODELS)
some_cases = pytest.mark.parametrize("name", SOME)
every_block = pytest.mark.parametrize("block", BLOCKS)


@pytest.fixture(autouse=True)
def double() -> None:
    torch.set_default_dtype(torch.float64)


def adapted(name: str, **options: Any) -> tuple[nn.Module, Inputs]:
    """A model of the table with learned widths, ready to train, and what to call it with."""
    return copy.deepcopy(_adapted(name, **options)), MODELS[name].inputs()


@functools.cache
def _adapted(name: str, **options: Any) -> nn.Module:
    """Made once: to see through a model takes far longer than to copy it."""
    case = MODELS[name]
    model = case.build().double()
    report = awn.adapt_(model, example_input=case.inputs() if case.example else None, **options)
    assert awn.widths(model) == case.widths, f"\n{report}"
    return model


def loss_of(model: nn.Module, inputs: Inputs) -> Tensor:
    outputs = run(model, inputs)
    targets = [torch.linspace(-1, 1, one.numel()).view_as(one) for one in outputs if one.is_floating_point()]
    return sum((one - goal).square().mean() for one, goal in zip(outputs, targets, strict=True))  # type: ignore[return-value]


def step(model: nn.Module, optimizer: Optimizer, inputs: Inputs) -> Tensor:
    loss = awn.objective(loss_of(model, inputs), model, n_samples=100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def moved(model: nn.Module, by: int) -> dict[str, int]:
    """Widths other than the present ones, and not all changed alike."""
    return {name: max(2, units + by + number % 2) for number, (name, units) in enumerate(awn.widths(model).items())}


def ask_for(model: nn.Module, units: dict[str, int]) -> None:
    for group in awn.advanced.find_groups(model):
        group.width.move_to_(units[group.name])


def assert_outputs(model: nn.Module, inputs: Inputs, expected: list[Tensor], tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(run(model, inputs), expected, rtol=tolerance, atol=tolerance)


@some_cases
def test_the_model_keeps_its_class_and_its_modules(name: str) -> None:
    before = MODELS[name].build()
    classes = {path: type(module).__name__ for path, module in before.named_modules()}
    model, _ = adapted(name)
    after = {path: plain_class(module).__name__ for path, module in model.named_modules()}
    # The one class that changes: torch's attention does not allow any number of heads.
    after = {path: kind.replace("AnyHeadsAttention", "MultiheadAttention") for path, kind in after.items()}
    added = {path for path in after if path.split(".")[-1] == "width"}
    assert {path: kind for path, kind in after.items() if path not in added} == classes


@every_case
def test_names_in_a_state_dict_are_those_of_the_plain_model(name: str) -> None:
    plain = set(MODELS[name].build().state_dict())
    model, _ = adapted(name)
    added = set(model.state_dict()) - plain
    assert plain <= set(model.state_dict())
    first_names = {f"{layer}.width.{entry}" for layer in awn.widths(model) for entry in ("log_nu", "_extra_state")}
    assert first_names <= added
    assert all(entry.split(".")[-2] == "width" for entry in added)  # a module of two names has its width twice


@every_case
def test_a_pickled_model_computes_the_same_and_can_be_resized(name: str) -> None:
    try:
        pickle.dumps(MODELS[name].build())
    except (pickle.PicklingError, AttributeError):  # it holds a lambda of its own
        pytest.skip("the plain model cannot be pickled either")
    model, inputs = adapted(name)
    model.eval()
    twin = pickle.loads(pickle.dumps(model))
    assert_outputs(twin, inputs, run(model, inputs))
    awn.advanced.set_units_(twin, moved(twin, 3))
    assert awn.widths(twin) != awn.widths(model)
    run(twin, inputs)


@every_case
def test_taking_the_gates_off_gives_back_the_very_classes_and_parameters(name: str) -> None:
    model, _ = adapted(name)
    classes = {path: plain_class(module) for path, module in model.named_modules()}
    torch_own = {AnyHeadsAttention: nn.MultiheadAttention}
    parameters = dict(model.named_parameters())
    for group in find_groups(model):
        disconnect_(group.width, fold=False)
    expected = {path: torch_own.get(kind, kind) for path, kind in classes.items() if path.split(".")[-1] != "width"}
    assert {path: type(module) for path, module in model.named_modules()} == expected
    assert all(parameter is parameters[path] for path, parameter in model.named_parameters())


@every_block
@every_case
def test_finalize_equals_and_zero_units_change_nothing(name: str, block: int) -> None:
    model, inputs = adapted(name, block=block)
    names = set(MODELS[name].build().state_dict())
    model.eval()
    for by in (0, 3, 40, -1, -40):
        before = run(model, inputs)
        awn.advanced.set_units_(model, moved(model, by), None)
        now = run(model, inputs)
        if by >= 0:
            torch.testing.assert_close(now, before, rtol=1e-10, atol=1e-10)
        bare = awn.finalize(model)
        assert_outputs(bare, inputs, now)
        assert not any(isinstance(module, awn.advanced.Width) for module in bare.modules())
        assert set(bare.state_dict()) == names


@pytest.mark.parametrize(("optimizer_name", "block"), [("SGD momentum", 1), ("Adam", 32)])
@some_cases
def test_a_run_that_grows_and_shrinks(name: str, optimizer_name: str, block: int) -> None:
    """Same width: nothing changes. Shrinking keeps the leading units and their state; a step reaches every tensor."""
    model, inputs = adapted(name, block=block, new_units="rescaled")
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    losses = [step(model, optimizer, inputs)]
    ask_for(model, awn.widths(model))
    awn.resize_(model, optimizer)
    before = snapshot(model, optimizer)
    assert awn.resize_(model, optimizer) == {}
    assert_same(before, snapshot(model, optimizer))
    for by in (5, -3, 40, -44):
        wanted = moved(model, by)
        ask_for(model, wanted)
        fewer = {group.width: min(wanted[group.name], group.width.units) for group in find_groups(model)}
        old = {
            key: [part.clone() for part in active(model, key[0], value, fewer.__getitem__)]
            for key, value in with_state(model, optimizer)
        }
        awn.resize_(model, optimizer)
        assert awn.widths(model) == wanted
        shapes = {key: tuple(tensor.shape) for key, tensor in awn.finalize(model).state_dict().items()}
        for key, value in with_state(model, optimizer):
            if value.dim():
                parts = active(model, key[0], value)
                assert sum(part.numel() for part in parts) == math.prod(shapes[key[0]])
                if by < 0:
                    assert all(torch.equal(one, two) for one, two in zip(parts, old[key], strict=True)), key
                inert = value.detach().clone()
                for part in active(model, key[0], inert):
                    part.zero_()
                assert not inert.any(), f"{key} is not zero in inert slots"
        values = {name: tensor.detach().clone() for name, tensor in tensors_of(model).items()}
        losses.append(step(model, optimizer, inputs))  # the earlier losses are all alive
        for governed in names_of_governed(model):
            tensor = tensors_of(model)[governed]
            assert tensor.grad is not None, governed
            if tensor.grad.abs().max() > 1e-9:  # a bias before a batch norm has none
                assert (tensor != values[governed]).any(), governed
    assert all(torch.isfinite(loss) for loss in losses)


def active(model: nn.Module, name: str, value: Tensor, units: Count = units_of) -> list[Tensor]:
    """Views of the active units of a tensor, or of one like it."""
    axes = {id(tensor): axes for tensor, axes in axes_by_tensor(find_groups(model)).items()}
    mine = axes.get(id(tensors_of(model)[name]), [])
    return [part.view for part in active_parts(value.detach(), blocks_by_dim(mine), units)] if value.dim() else []


def with_state(model: nn.Module, optimizer: Optimizer) -> list[tuple[tuple[str, str], Tensor]]:
    """Every tensor of the model and of the optimizer's state for it, without the widths' own."""
    tensors = {name: tensor for name, tensor in tensors_of(model).items() if not name.endswith(".log_nu")}
    kept = set(model.state_dict())
    found = [((name, "value"), tensor) for name, tensor in tensors.items() if name in kept]
    for name, tensor in tensors.items():
        for key, value in optimizer.state.get(tensor, {}).items():
            if isinstance(value, Tensor):
                found.append(((name, key), value))
    return found


def names_of_governed(model: nn.Module) -> list[str]:
    names = {parameter: name for name, parameter in model.named_parameters()}
    axes = itertools.chain.from_iterable(group.axes for group in awn.advanced.find_groups(model))
    found = [names[axis.tensor] for axis in axes if axis.tensor in names]
    assert found
    return found


@every_block
@some_cases
def test_save_and_load_at_other_widths(name: str, block: int, tmp_path: Path) -> None:
    model, inputs = adapted(name, block=block)
    awn.advanced.set_units_(model, moved(model, 7), None)
    awn.save(model, tmp_path)
    loaded = awn.load(tmp_path, MODELS[name].build().double())
    assert awn.widths(loaded) == awn.widths(model)
    assert_outputs(loaded.eval(), inputs, run(model.eval(), inputs), 0)
    narrower, _ = adapted(name, block=block)
    narrower.load_state_dict(model.state_dict())  # a plain load_state_dict follows the widths as well
    assert_outputs(narrower.eval(), inputs, run(model, inputs), 0)


@some_cases
def test_the_capacity_changes_no_result(name: str) -> None:
    results = []
    for block in BLOCKS:
        torch.manual_seed(0)
        model, inputs = adapted(name, block=block, new_units="rescaled")
        drops = any(isinstance(part, nn.Dropout) for part in model.modules()) or name == "mlp by hand"
        model.train(not drops)  # a mask of dropout is drawn for the capacity
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        losses = []
        for by in (2, -3, 4):
            losses += [step(model, optimizer, inputs).item() for _ in range(2)]
            awn.advanced.set_units_(model, moved(model, by), optimizer)
        results.append((losses, run(model.eval(), inputs)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-8)


@every_block
@some_cases
def test_gradients_of_nu_equal_a_finite_difference(name: str, block: int) -> None:
    model, inputs = adapted(name, block=block)
    model.eval()
    # T5 and Llama compute their norms in single precision.
    far, tolerance = (1e-2, 1e-2) if name.startswith(("t5", "llama")) else (1e-5, 1e-4)
    loss_of(model, inputs).backward()
    for group in awn.advanced.find_groups(model):
        log_nu, at = group.width.log_nu, group.width.log_nu.item()
        around = []
        for distance in (far, -far):
            group.width.move_(at + distance)
            around.append(loss_of(model, inputs).item())
        group.width.move_(at)
        assert log_nu.grad is not None
        torch.testing.assert_close(
            log_nu.grad.item(), (around[0] - around[1]) / (2 * far), rtol=tolerance, atol=tolerance / 100
        )


def with_statistics(model: nn.Module) -> None:
    """Give batch norms statistics, scales and shifts of their own, so that a unit put in the wrong place shows."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm | nn.PReLU):
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                if tensor.is_floating_point():
                    nn.init.uniform_(tensor, 0.5, 1.5)


@every_case
@pytest.mark.parametrize(
    ("dtype", "tolerance", "block"), [(torch.float64, 1e-10, 1), (torch.float32, 2e-5, 32)], ids=["double", "single"]
)
def test_preserve_changes_no_output(name: str, dtype: torch.dtype, tolerance: float, block: int) -> None:
    torch.set_default_dtype(dtype)
    case = MODELS[name]
    model, inputs = case.build().to(dtype).eval(), case.inputs()
    with_statistics(model)
    before = run(model, inputs)
    awn.adapt_(model, preserve=True, block=block, example_input=inputs if case.example else None)
    assert awn.widths(model) == case.widths
    assert_outputs(model, inputs, before, tolerance)
    assert_outputs(awn.finalize(model), inputs, before, tolerance)
    smaller = awn.truncate(model, keep=0.5)
    assert all(0 < units <= (case.widths[layer] + 1) // 2 for layer, units in awn.widths(smaller).items())
    assert all(torch.isfinite(one).all() for one in run(smaller, inputs))


def test_preserve_puts_the_strongest_units_first() -> None:
    model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 2))
    awn.adapt_(model, preserve=True)
    for maker, reader in ((0, 2), (2, 4)):  # as the network computes: with weights that are gated
        strength = model[maker].weight.norm(dim=1) * model[reader].weight.norm(dim=0)
        assert (strength.diff() <= 1e-12).all(), maker


def test_data_puts_the_units_of_most_energy_first() -> None:
    """The closed form, E[a²] ‖w‖²; a unit that is silent on the data comes last, though its weights are the largest."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, 2))
    with torch.no_grad():
        model[0].bias.fill_(3.0)
        model[0].weight[3] = -100.0
    x = torch.rand(50, 4)
    outputs, first = model(x), model[0].weight[3].clone()
    state = torch.get_rng_state()
    awn.adapt_(model, preserve=True, data=x)
    assert torch.equal(state, torch.get_rng_state())
    torch.testing.assert_close(model(x), outputs)
    for reader in (2, 4):
        units = model[:reader](x)[:, : model[reader].in_features]
        energy = units.square().mean(0) * model[reader].weight.square().sum(0)
        assert (energy.diff() <= 1e-12).all(), reader
    assert torch.equal(model[0].weight[29], first)


@some_cases
def test_order_by_data_changes_no_output(name: str) -> None:
    case = MODELS[name]
    model, inputs = case.build().double().eval(), case.inputs()
    before = run(model, inputs)
    names = list(inspect.signature(model.forward).parameters)
    batch = inputs if isinstance(inputs, dict) else dict(zip(names, inputs, strict=False))
    awn.adapt_(model, preserve=True, data=[batch], example_input=inputs if case.example else None)
    assert awn.widths(model) == case.widths
    for one, other in zip(run(model, inputs), before, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": torch.zeros(5, 4)}, "pass preserve=True with it"),
        ({"data": torch.zeros(5, 3), "preserve": True}, "cannot be run on, "),
        ({"data": torch.zeros(1, 4), "preserve": True}, "at least two rows"),
        ({"data": torch.full((5, 4), torch.inf), "preserve": True}, "not finite"),
    ],
)
def test_data_that_cannot_order_units_is_refused(options: dict[str, Any], message: str) -> None:
    model = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 2))
    before = snapshot(model)
    with pytest.raises(awn.AwnError, match=message):
        awn.adapt_(model, **options)
    assert_same(before, snapshot(model))
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_fresh_model_starts_with_activations_of_the_same_size() -> None:
    torch.manual_seed(1)
    x = torch.randn(200, 30)
    model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 50))
    before = model(x).std()
    awn.adapt_(model)
    assert 0.8 < (model(x).std() / before).item() < 1.25


# The fast path of torch's encoder, which reads the weights by itself.


@pytest.mark.parametrize("mask", [None, "padded"])
@every_block
def test_the_fast_path_equals_the_slow_one(mask: str | None, block: int) -> None:
    model = encoder_stack().eval()
    awn.adapt_(model, block=block)
    x, padding = torch.randn(3, 4, 8), padding_mask() if mask else None
    for by in (0, 9, -15):
        awn.advanced.set_units_(model, moved(model, by), None)
        slow = model(x, src_key_padding_mask=padding)
        with torch.no_grad():
            fast = model(x, src_key_padding_mask=padding)
            bare = awn.finalize(model)(x, src_key_padding_mask=padding)
        assert slow.requires_grad
        kept = slice(None) if padding is None else ~padding  # the fast path leaves zeros where the padding is
        torch.testing.assert_close(fast[kept], slow[kept], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(bare, fast, rtol=1e-10, atol=1e-10)


# Real data.


class DigitsNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.fc1, self.fc2 = nn.Linear(48, 20), nn.Linear(20, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = nn.functional.max_pool2d(torch.relu(self.bn2(self.conv2(x))), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


@pytest.mark.parametrize("kind", ["mlp", "conv"])
def test_widths_are_learned_on_digits(kind: str) -> None:
    from sklearn.datasets import load_digits

    torch.set_default_dtype(torch.float32)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    y = torch.tensor(digits.target)
    mlp = nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 10))
    model = mlp if kind == "mlp" else DigitsNet()
    awn.adapt_(model)
    start = awn.widths(model)
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.01, width_lr=0.05))
    seen: dict[str, set[int]] = {name: set() for name in start}
    grew = shrank = False
    for number in range(300):
        rows = torch.randint(0, 1500, (64,))
        loss = awn.objective(nn.functional.cross_entropy(model(x[rows]), y[rows]), model, n_samples=1500)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == 150:  # halfway down by hand, as a budget would
            ask_for(model, {name: max(2, units // 2) for name, units in awn.widths(model).items()})
        for name, change in awn.resize_(model, optimizer).items():
            seen[name].add(change.after)
            grew, shrank = grew or change.after > change.before, shrank or change.after < change.before
    assert grew
    assert shrank
    assert all(len(widths) > 3 for widths in seen.values()), seen
    model.eval()
    bare = awn.finalize(model)
    accuracy = (bare(x[1500:]).argmax(1) == y[1500:]).float().mean().item()
    assert accuracy > 0.85
    torch.testing.assert_close(bare(x[1500:]), model(x[1500:]), rtol=1e-4, atol=1e-4)


@some_cases
def test_a_deep_copy_is_a_model_of_its_own(name: str) -> None:
    model, inputs = adapted(name)
    model.eval()
    twin = copy.deepcopy(model)
    expected = run(model, inputs)
    awn.advanced.set_units_(model, moved(model, -2), None)
    assert awn.widths(twin) == MODELS[name].widths
    assert_outputs(twin, inputs, expected, 0)
