"""Learned widths together with what torch offers: averages, checkpointed gradients, autocast, copies, compile."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from transformers import GPT2Config, GPT2LMHeadModel

import awn
from awn.core.count import active_shape, axes_by_tensor
from awn.core.groups import find_groups
from awn.core.ordered import use_prefix_
from awn.errors import ArgumentError, GateError
from cases import IN, batch, build


def adapted(units: int = 40, ordered: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(IN, units), nn.BatchNorm1d(units), nn.Tanh(), nn.Linear(units, units), nn.Tanh(), nn.Linear(units, 2)
    )
    awn.adapt_(model, new_units="rescaled", ordered=ordered)
    return model


def resizing(model: nn.Module, optimizer: torch.optim.Optimizer, sizes: list[int]) -> Iterator[Tensor]:
    """Training steps, after each of which the first layer goes to the next size, and the second from last to first."""
    layers = [group.width for group in find_groups(model)]
    for first, second in zip(sizes, reversed(sizes), strict=True):
        x, y = batch(model)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        layers[0].move_to_(first)
        layers[1].move_to_(second)
        awn.resize_(model, optimizer)
        yield loss.detach()


SIZES = [40, 41, 60, 150, 130, 30, 29, 200, 5, 64]  # within a capacity, beyond it, and back


# Averages


def active_parts(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter, those that a width governs without the slots of inert units."""
    table = axes_by_tensor(find_groups(model))
    return {
        name: parameter.detach()[tuple(slice(size) for size in active_shape(parameter, table.get(parameter, [])))]
        for name, parameter in model.named_parameters()
    }


@pytest.mark.parametrize("use_buffers", [False, True])
def test_an_average_follows_the_widths(use_buffers: bool) -> None:
    """A unit's average starts at its own first value, and is that of the plain formula from then on."""
    model, decay = adapted(), 0.7
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=use_buffers)
    average.update_parameters(model)
    expected = {name: part.clone() for name, part in active_parts(model).items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in resizing(model, optimizer, SIZES):
        random_numbers = torch.get_rng_state()
        awn.advanced.follow_widths_(average, model)
        assert torch.equal(torch.get_rng_state(), random_numbers)
        average.update_parameters(model)
        for name, part in active_parts(model).items():
            started = part.clone()
            kept = tuple(slice(min(sizes)) for sizes in zip(part.shape, expected[name].shape, strict=True))
            started[kept] = expected[name][kept]
            expected[name] = decay * started + (1 - decay) * part
    assert awn.widths(average.module) == awn.widths(model)
    found = active_parts(average.module)
    for name, part in expected.items():
        torch.testing.assert_close(found[name], part, msg=name)
    x, _ = batch(model)
    average.eval()
    torch.testing.assert_close(awn.finalize(average.module)(x), average(x))


def test_an_average_loads_its_state_at_other_widths() -> None:
    model = adapted()
    average, fresh = AveragedModel(model), AveragedModel(adapted(units=70))
    average.update_parameters(model)
    fresh.load_state_dict(average.state_dict())
    assert awn.widths(fresh.module) == awn.widths(model)
    x, _ = batch(model)
    assert torch.equal(fresh.eval()(x), average.eval()(x))


def test_an_average_of_the_same_widths_is_left_alone() -> None:
    model = adapted()
    average = AveragedModel(model)
    before = list(average.parameters())
    assert awn.advanced.follow_widths_(average, model) == {}
    assert all(now is then for now, then in zip(average.parameters(), before, strict=True))


def test_an_average_of_another_model_is_refused() -> None:
    with pytest.raises(ArgumentError, match="from the same model"):
        awn.advanced.follow_widths_(AveragedModel(build("1 layer")), adapted())


# Gradients recomputed


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_gradients_are_the_same(reentrant: bool) -> None:
    model = adapted()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    model[1].momentum = 0.0  # a batch norm would note the batch twice
    for _ in resizing(model, optimizer, SIZES[:5]):
        x, y = batch(model)
        plain = gradients(model, F.mse_loss(model(x), y))
        if reentrant:
            again = model[-1](checkpoint(model[:-1], x.requires_grad_(), use_reentrant=True))
        else:
            again = checkpoint_sequential(model, 2, x, use_reentrant=False)
        recomputed = gradients(model, F.mse_loss(again, y))
        assert recomputed.keys() == plain.keys()
        for name, gradient in plain.items():
            assert torch.equal(recomputed[name], gradient), name


def test_hugging_faces_gradient_checkpointing() -> None:
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2, use_cache=False, **quiet)).train()
    awn.adapt_(model)
    optimizer = torch.optim.Adam(awn.param_groups(model, lr=0.02, width_lr=0.1))
    tokens = torch.randint(64, (2, 8))
    for _ in range(3):
        model.gradient_checkpointing_disable()
        plain = gradients(model, model(input_ids=tokens, labels=tokens).loss)
        model.gradient_checkpointing_enable()
        recomputed = gradients(model, model(input_ids=tokens, labels=tokens).loss)
        for name, gradient in plain.items():
            assert torch.equal(recomputed[name], gradient), name
        optimizer.step()
        assert awn.resize_(model, optimizer)


# Half precision. On the CPU float16: not every CPU has bfloat16.


def test_autocast_learns_widths_in_half_precision() -> None:
    model = build("2 layers", dtype=torch.float32)
    before = awn.widths(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    x, y = batch(model, samples=64)
    losses = []
    for _ in range(30):
        exact = F.mse_loss(model(x), y)
        with torch.autocast("cpu", dtype=torch.float16):
            output = model(x)
            assert output.dtype == torch.float16
            loss = F.mse_loss(output.float(), y)
        torch.testing.assert_close(loss, exact, rtol=0.02, atol=0.01)
        total = awn.objective(loss, model, n_samples=64, prior=awn.Prior(weight_scale=10.0))
        optimizer.zero_grad()
        scaler.scale(total).backward()
        scaler.step(optimizer)
        scaler.update()
        awn.resize_(model, optimizer)
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert awn.widths(model) != before
    assert all(group.width.importance().dtype == torch.float32 for group in find_groups(model))


# Copies and pickles


def test_a_deep_copy_trains_by_itself() -> None:
    model = adapted()
    original = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    twin = copy.deepcopy(model)
    assert not set(twin.parameters()) & set(model.parameters())
    optimizer = torch.optim.Adam(twin.parameters(), lr=0.02)
    for _ in resizing(twin, optimizer, SIZES):
        pass
    assert awn.widths(twin) == {"0": 64, "3": 40}
    assert awn.widths(model) == {"0": 40, "3": 40}
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, original[name]), name
    x, _ = batch(model)
    third = copy.deepcopy(twin.eval())
    assert torch.equal(third(x), twin(x))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_a_model_and_its_optimizer_are_copied_together(copied: Any) -> None:
    model = adapted()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in resizing(model, optimizer, SIZES[:4]):
        pass
    twin, twin_optimizer = copied((model, optimizer))
    results = []
    for one, its_optimizer in ((model, optimizer), (twin, twin_optimizer)):
        torch.manual_seed(1)
        results.append(torch.stack(list(resizing(one, its_optimizer, SIZES[4:]))))
    assert torch.equal(*results)


def test_checkpointing_sees_the_prefix_of_its_step_or_is_refused() -> None:
    """It repeats forwards in the backward pass: in a step of the prefix alone, or after both of an ordered loss."""
    gradients = []
    for repeat in (False, True):
        model = adapted(ordered=1.0)
        x, y = batch(model)
        use_prefix_(model, True)
        F.mse_loss(checkpoint(model, x, use_reentrant=False) if repeat else model(x), y).backward()
        use_prefix_(model, False)
        gradients.append([p.grad for p in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
    loss = awn.advanced.ordered_loss(model, lambda: F.mse_loss(checkpoint(model, x, use_reentrant=False), y))
    with pytest.raises(GateError, match="gradient checkpointing repeats a forward of ordered_loss"):
        loss.backward()


# torch.compile. The backend is aot_eager, which traces forward and backward but does not wait for a C++ compiler.


def test_a_compiled_model_is_compiled_once_for_thirty_widths() -> None:
    torch.compiler.reset()
    counters.clear()
    compiled, eager = adapted(units=96), adapted(units=96)
    forward = torch.compile(compiled, backend="aot_eager")
    widths = [96 - (7 * step) % 17 for step in range(31)]
    pairs: list[tuple[Any, nn.Module, torch.optim.Optimizer]] = [
        (call, model, torch.optim.Adam(model.parameters(), lr=0.01))
        for call, model in ((forward, compiled), (eager, eager))
    ]
    changes = 0
    for step, units in enumerate(widths):
        losses = []
        for call, model, optimizer in pairs:
            torch.manual_seed(step)
            changed = awn.advanced.set_units_(model, {"0": units, "3": widths[-1 - step]}, optimizer)
            x, y = batch(model)
            loss = F.mse_loss(call(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        changes += bool(changed)
        torch.testing.assert_close(*losses)
    assert changes >= 30
    assert counters["stats"]["unique_graphs"] <= 2  # the first, and at most one more
    for (name, parameter), expected in zip(compiled.named_parameters(), eager.parameters(), strict=True):
        if name != "0.bias":  # the norm after it takes it out again: its gradient is rounding, which Adam makes large
            torch.testing.assert_close(parameter, expected, msg=name)
    torch.compiler.reset()


def test_a_compiled_model_is_compiled_once_for_the_whole_and_once_for_all_prefixes() -> None:
    torch.compiler.reset()
    counters.clear()
    compiled, eager = adapted(ordered=0.7), adapted(ordered=0.7)
    forward = torch.compile(compiled, backend="aot_eager")
    pairs: list[tuple[Any, nn.Module, torch.optim.Optimizer]] = [
        (call, model, torch.optim.SGD(model.parameters(), lr=0.01))
        for call, model in ((forward, compiled), (eager, eager))
    ]
    prefixes = set()
    for step in range(20):
        losses = []
        for call, model, optimizer in pairs:
            torch.manual_seed(step)
            x, y = batch(model)
            loss = awn.advanced.ordered_loss(call, lambda call=call, x=x, y=y: F.mse_loss(call(x), y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            awn.resize_(call, optimizer)
            losses.append(loss.detach())
        prefixes.add(find_groups(compiled)[0].width.prefix_units)
        torch.testing.assert_close(*losses)
    assert len(prefixes) > 8
    assert counters["stats"]["unique_graphs"] <= 2  # whole and prefix
    torch.compiler.reset()


def test_a_compiled_model_may_grow_beyond_its_capacity() -> None:
    torch.compiler.reset()
    counters.clear()
    model = adapted()
    forward = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in resizing(model, optimizer, [40, 150, 20]):
        x, _ = batch(model)
        torch.testing.assert_close(forward(x), model(x))
    find_groups(model)[0].width.move_to_(33)
    assert awn.resize_(forward, optimizer)  # the compiled model will do as well
    assert counters["stats"]["unique_graphs"] > 1  # other shapes: the count above would show them
    torch.compiler.reset()


def test_what_compile_returned_is_the_model_to_all_functions(tmp_path: Path) -> None:
    model = build("2 layers", dtype=torch.float32)
    compiled = torch.compile(model, backend="eager")
    assert awn.widths(compiled) == awn.widths(model)
    awn.save(compiled, tmp_path)
    assert awn.widths(awn.load(tmp_path)) == awn.widths(model)
    assert isinstance(awn.finalize(compiled), nn.Sequential)
    asked = dict.fromkeys(awn.widths(model), 20)
    awn.advanced.set_units_(compiled, asked, optimizer=None)
    assert awn.widths(model) == asked
    with pytest.raises(awn.AwnError, match="compile"):
        awn.adapt_(torch.compile(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)), backend="eager"))
