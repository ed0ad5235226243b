"""The laws of the design, each over a table of models, optimizers and block sizes, of which every two meet."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

import awn
from cases import (
    BLOCKS,
    MODELS,
    OPTIMIZERS,
    STATE_KEYS,
    active_parts,
    active_shapes,
    adaptive_net,
    assert_inert_is_zero,
    assert_same,
    batch,
    build,
    move_widths_,
    pairwise,
    snapshot,
    tensors_of,
    train_step,
)

every_model = pytest.mark.parametrize("case", MODELS)
every_optimizer = pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
every_block = pytest.mark.parametrize("block", BLOCKS)
models_optimizers_blocks = pytest.mark.parametrize(
    ("case", "optimizer_name", "block"), pairwise(MODELS, OPTIMIZERS, BLOCKS)
)
models_scales_blocks = pytest.mark.parametrize(
    ("case", "scale", "block"), pairwise(MODELS, ("anchored", "mass", "unit"), BLOCKS)
)


def trained(case: str, optimizer_name: str, block: int, *, units: int = 40, steps: int = 3, **options: Any) -> Any:
    """A model that has taken a few steps with its optimizer, at the width `units`."""
    model = build(case, units=units, block=block, **options)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    for _ in range(steps):
        train_step(model, optimizer)
    move_widths_(model, units)
    awn.resize_(model, optimizer)
    return model, optimizer


# 1. Resizing to the same width changes nothing.


@models_optimizers_blocks
def test_resizing_to_the_same_width_changes_nothing(case: str, optimizer_name: str, block: int) -> None:
    model, optimizer = trained(case, optimizer_name, block)
    before = snapshot(model, optimizer)
    assert awn.resize_(model, optimizer) == {}
    assert_same(before, snapshot(model, optimizer))


# 2. Shrinking keeps the leading units and their optimizer state bit for bit.


@models_optimizers_blocks
def test_shrinking_keeps_leading_units_and_their_state(case: str, optimizer_name: str, block: int) -> None:
    model, optimizer = trained(case, optimizer_name, block, units=100)
    for units in (97, 60, 9):  # within the capacity, to its edge, and far below it
        asked = move_widths_(model, units)
        layers = [asked.get(f"hidden.{number}", units) for number in range(len(model.hidden))]
        kept = active_parts(model, optimizer, shapes=active_shapes(model, layers))
        before = awn.widths(model)
        assert awn.resize_(model, optimizer) == {name: awn.advanced.Resize(before[name], asked[name]) for name in asked}
        assert awn.widths(model) == asked
        assert_same(kept, active_parts(model, optimizer))
        assert_inert_is_zero(model, optimizer)
    kinds = {kind for name, kind in kept if name == "hidden.0.weight"}
    assert kinds == {"value", *STATE_KEYS[optimizer_name]}


@models_optimizers_blocks
def test_growing_keeps_all_units_and_starts_new_ones_with_no_state(case: str, optimizer_name: str, block: int) -> None:
    model, optimizer = trained(case, optimizer_name, block)
    for units in (48, 90):  # within the capacity, and beyond it
        asked = move_widths_(model, units)
        shapes = active_shapes(model)
        kept = active_parts(model, optimizer)
        awn.resize_(model, optimizer)
        assert awn.widths(model) == asked
        assert_same(kept, active_parts(model, optimizer, shapes=shapes))
        assert_inert_is_zero(model, optimizer)
        for (name, kind), value in active_parts(model, optimizer).items():
            if isinstance(value, Tensor) and value.dim() and tuple(value.shape) != shapes[name]:
                new = value.clone()
                new[tuple(slice(size) for size in shapes[name])] = 0
                if kind != "value":
                    assert not new.any(), f"{kind} of the new units of {name}"
                elif value.dim() == 2:
                    assert new.any(), f"the new units of {name} were not drawn"


# 3. Growing with new_units="zero" leaves the output unchanged.


@models_scales_blocks
def test_growing_with_zero_units_leaves_the_output_unchanged(case: str, scale: Any, block: int) -> None:
    family = awn.Exponential.for_units(40, scale=scale)
    model, optimizer = trained(case, "Adam", block, importance=family, new_units="zero")
    model.eval()
    x, _ = batch(model)
    for units in (45, 200):
        before = model(x)
        assert awn.advanced.set_units_(model, dict.fromkeys(awn.widths(model), units), optimizer) != {}
        torch.testing.assert_close(model(x), before, rtol=1e-12, atol=1e-13)
        incoming = tensors_of(model)["hidden.0.weight"][units - 1]
        assert incoming.any(), "the new units must be able to learn"


@every_block
@every_model
def test_a_resize_with_zero_units_changes_the_output_no_more_than_nu_itself(case: str, block: int) -> None:
    model, optimizer = trained(case, "Adam", block, new_units="zero")
    model.eval()
    x, _ = batch(model)
    move_widths_(model, 80)
    with_new_nu = model(x)
    awn.resize_(model, optimizer)
    torch.testing.assert_close(model(x), with_new_nu, rtol=1e-12, atol=1e-13)


# 4. The step after a resize reaches every parameter, with the previous loss still alive.


@models_optimizers_blocks
def test_the_step_after_a_resize_reaches_every_parameter(case: str, optimizer_name: str, block: int) -> None:
    model, optimizer = trained(case, optimizer_name, block)
    loss = train_step(model, optimizer)
    for units in (36, 44, 90, 12):  # within the capacity of block 32, then beyond it both ways
        move_widths_(model, units)
        assert awn.resize_(model, optimizer)
        before = active_parts(model)
        following = train_step(model, optimizer)
        for key, now in active_parts(model).items():
            name = key[0]
            # A batch norm takes the mean away, so that a bias before it has no gradient.
            if name.startswith("norms.") and "running" in name:
                continue
            if case == "batch norm" and name.startswith("hidden.") and name.endswith("bias"):
                continue
            assert (now != before[key]).all(), f"{name} was not reached at width {units}"
        assert torch.isfinite(loss)
        assert torch.isfinite(following)
        loss = following
        assert_inert_is_zero(model, optimizer)


@every_block
@every_model
def test_units_that_start_unread_are_reached_by_the_second_step(case: str, block: int) -> None:
    """With outgoing weights of zero, what makes a new unit has no gradient until the first step has moved those."""
    model, optimizer = trained(case, "Adam", block, new_units="zero")
    move_widths_(model, 90)
    awn.resize_(model, optimizer)
    before = active_parts(model)
    for _ in range(2):
        train_step(model, optimizer)
    for (name, kind), now in active_parts(model).items():
        if not (case == "batch norm" and name.startswith("hidden.") and name.endswith("bias")):
            assert (now != before[name, kind]).all(), name


# 5. finalize(m)(x) equals m(x).


@models_scales_blocks
def test_finalize_equals_the_model(case: str, scale: Any, block: int) -> None:
    family = awn.Exponential.for_units(40, scale=scale)
    model, optimizer = trained(case, "Adam", block, importance=family)
    model.eval()
    x, _ = batch(model)
    for units in (40, 29, 77):
        move_widths_(model, units)
        awn.resize_(model, optimizer)
        plain = awn.finalize(model).eval()
        torch.testing.assert_close(plain(x), model(x), rtol=1e-12, atol=1e-13)
        expected = {tuple(shape) for name, shape in active_shapes(model).items() if name.startswith("hidden.")}
        assert expected - {()} <= {tuple(p.shape) for p in plain.parameters()}


# 6. Save → load in a fresh process equals, at any width, with and without an optimizer.

IN_A_FRESH_PROCESS = """
import json, sys
from pathlib import Path
import torch, awn
sys.path.insert(0, sys.argv[2])
from cases import OPTIMIZERS, train_step, build
from safetensors.torch import load_file
torch.set_num_threads(1)
for folder in sorted(Path(sys.argv[1]).iterdir()):
    facts = json.loads((folder / "facts.json").read_text())
    expected = load_file(folder / "expected.safetensors")
    model = awn.load(folder).eval()
    if not torch.equal(model(expected["x"]), expected["y"]):
        sys.exit(f"{folder.name}: another output after load")
    if awn.widths(model) != facts["widths"]:
        sys.exit(f"{folder.name}: other widths after load")
    model = build(facts["case"], units=7, block=facts["block"], dtype=torch.float32)
    optimizer = OPTIMIZERS[facts["optimizer"]](model.parameters())
    awn.resume_run_(folder / "run.safetensors", model, optimizer)
    loss = train_step(model, optimizer, (expected["x"], expected["target"]))
    awn.resize_(model, optimizer)
    if not torch.equal(loss.detach(), expected["loss"]):
        sys.exit(f"{folder.name}: another loss after resume_run_")
    if not torch.equal(model.eval()(expected["x"]), expected["later"]):
        sys.exit(f"{folder.name}: another output after the step that follows resume_run_")
    print(folder.name)
"""


def test_loading_in_a_fresh_process_equals_at_any_width(tmp_path: Path) -> None:
    for number, (case, block, units) in enumerate(pairwise(MODELS, BLOCKS, (3, 40, 131))):
        optimizer_name = list(OPTIMIZERS)[number % len(OPTIMIZERS)]
        folder = tmp_path / f"{number:03d} {case} {optimizer_name} {block} {units}"
        model, optimizer = trained(case, optimizer_name, block, dtype=torch.float32)
        move_widths_(model, units)
        awn.resize_(model, optimizer)
        awn.save(model, folder)
        awn.save_run(folder / "run.safetensors", model, optimizer)
        facts = {"case": case, "optimizer": optimizer_name, "block": block, "widths": awn.widths(model)}
        (folder / "facts.json").write_text(json.dumps(facts))
        state = torch.get_rng_state()
        x, target = batch(model)
        expected = {"x": x, "target": target, "y": model.eval()(x)}
        torch.set_rng_state(state)  # as it was when the run was saved
        expected["loss"] = train_step(model.train(), optimizer, (x, target))
        awn.resize_(model, optimizer)
        expected["later"] = model.eval()(x)
        values = {name: tensor.detach().contiguous() for name, tensor in expected.items()}
        save_file(values, folder / "expected.safetensors")
    child = run_python(IN_A_FRESH_PROCESS, tmp_path, Path(__file__).parent)
    assert child.returncode == 0, child.stderr
    assert child.stdout.split("\n")[:-1] == sorted(folder.name for folder in tmp_path.iterdir())


def run_python(script: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    decay = "ignore:the optimizer's weight decay pulls"  # as in pyproject.toml: the optimizers of cases.py decay it all
    command = [sys.executable, "-W", "error", "-W", decay, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


# 7. A run that is saved, killed and resumed equals the uninterrupted one bit for bit.


class Run:
    """An ordinary run: shuffled batches, dropout, a scheduler, a resize after every step."""

    def __init__(self, case: str, optimizer_name: str, block: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = build(case, block=block, dtype=torch.float32)
        self.optimizer = OPTIMIZERS[optimizer_name](awn.param_groups(self.model, lr=0.02, width_lr=0.1))
        self.scheduler = StepLR(self.optimizer, step_size=2, gamma=0.5)
        x = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))
        self.loader = DataLoader(TensorDataset(x, x[:, :2].sin()), batch_size=8, shuffle=True)

    def epoch(self) -> None:
        for data in self.loader:
            train_step(self.model, self.optimizer, data)
            awn.resize_(self.model, self.optimizer)
        move_widths_(self.model, int(torch.randint(20, 60, ())))
        awn.resize_(self.model, self.optimizer)
        self.scheduler.step()

    def save(self, path: Path, epoch: int) -> None:
        awn.save_run(path, self.model, self.optimizer, extra={"epoch": epoch}, scheduler=self.scheduler)

    def resume(self, path: Path) -> int:
        return awn.resume_run_(path, self.model, self.optimizer, scheduler=self.scheduler)["epoch"]

    def all(self) -> dict[str, Any]:
        return {
            "model": dict(self.model.state_dict()),
            "widths": awn.widths(self.model),
            "capacities": [group.width.capacity for group in awn.advanced.find_groups(self.model)],
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "random": torch.get_rng_state(),
        }


@pytest.mark.parametrize(
    ("case", "optimizer_name", "block"), pairwise(("batch norm", "dropout", "shared width"), OPTIMIZERS, BLOCKS)
)
def test_a_resumed_run_equals_the_uninterrupted_one(case: str, optimizer_name: str, block: int, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    whole = Run(case, optimizer_name, block, seed=0)
    widths_seen = set()
    for epoch in range(3):
        if epoch == 1:
            whole.save(path, epoch)
        whole.epoch()
        widths_seen.add(tuple(awn.widths(whole.model).values()))
    assert len(widths_seen) > 1
    resumed = Run(case, optimizer_name, block, seed=99)
    resumed.epoch()  # it may have been anywhere before
    for _ in range(resumed.resume(path), 3):
        resumed.epoch()
    assert_same(whole.all(), resumed.all())


TO_BE_KILLED = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from test_laws import Run, train_step
for optimizer_name in ("Adam", "SGD nesterov"):
    run = Run("dropout", optimizer_name, 32, seed=0)
    for epoch in range(2):
        run.epoch()
        run.save(Path(sys.argv[2]) / f"{optimizer_name}.safetensors", epoch + 1)
    train_step(run.model, run.optimizer, next(iter(run.loader)))  # part of an epoch that nobody will remember
print("in the middle of an epoch", flush=True)
sys.stdin.read()
"""


def test_a_killed_run_is_resumed_as_if_nothing_had_happened(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TO_BE_KILLED, str(Path(__file__).parent), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "in the middle of an epoch\n"
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    for optimizer_name in ("Adam", "SGD nesterov"):
        whole = Run("dropout", optimizer_name, 32, seed=0)
        for _ in range(4):
            whole.epoch()
        expected = whole.all()
        resumed = Run("dropout", optimizer_name, 32, seed=99)  # in another process than the one that was killed
        for _ in range(resumed.resume(tmp_path / f"{optimizer_name}.safetensors"), 4):
            resumed.epoch()
        assert_same(expected, resumed.all())


# 9. The capacity (`block`) changes no result beyond rounding.


@every_optimizer
@pytest.mark.parametrize("case", [case for case in MODELS if case != "dropout"])  # it draws a mask of the capacity
def test_the_block_changes_no_result(case: str, optimizer_name: str) -> None:
    results = []
    for block in BLOCKS:
        torch.manual_seed(0)
        # A bias before a batch norm has no gradient but rounding, which Adam would blow up to full steps.
        model = build(case, block=block, bias=case != "batch norm")
        optimizer = OPTIMIZERS[optimizer_name](model.parameters())
        data = [batch(model) for _ in range(12)]
        seen = []
        for number, one in enumerate(data):
            train_step(model, optimizer, one)
            if number % 2:
                move_widths_(model, (55, 36, 20, 70, 66, 12)[number // 2])
            awn.resize_(model, optimizer)
            seen.append(tuple(awn.widths(model).values()))
        results.append((seen, active_parts(model, optimizer)))
    assert results[0][0] == results[1][0]
    assert len(set(results[0][0])) >= 6
    assert results[0][1].keys() == results[1][1].keys()
    for key, value in results[0][1].items():
        torch.testing.assert_close(value, results[1][1][key], rtol=1e-6, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}")


# 10. Gradients of ν equal a finite difference of the loss.

FAMILIES = {
    "exponential": awn.Exponential.for_units(40),
    "exponential, mass": awn.Exponential.for_units(40, scale="mass"),
    "exponential, unit": awn.Exponential.for_units(40, scale="unit"),
    "power law": awn.PowerLaw.for_units(40, saturation=3.0),
    "power law, mass": awn.PowerLaw.for_units(40, saturation=3.0, scale="mass"),
    "power law, unit": awn.PowerLaw.for_units(40, saturation=3.0, scale="unit"),
    "sigmoid": awn.Sigmoid.for_units(40, steepness=2.0),
    "sigmoid, mass": awn.Sigmoid.for_units(40, steepness=2.0, scale="mass"),
    "sigmoid, unit": awn.Sigmoid.for_units(40, steepness=2.0, scale="unit"),
}


@pytest.mark.parametrize(
    ("case", "name", "block"),
    pairwise([case for case in MODELS if case != "dropout"], FAMILIES, BLOCKS),  # it has another loss at each look
)
def test_gradients_of_nu_equal_a_finite_difference_of_the_loss(case: str, name: str, block: int) -> None:
    family = FAMILIES[name]
    model = build(case, block=block, importance=family)
    x, y = batch(model)
    prior = awn.Prior(weight_scale=3.0, width_mean=family.start * 1.5, width_scale=family.start)

    def loss() -> Tensor:
        return awn.objective(F.mse_loss(model(x), y), model, n_samples=10, prior=prior)

    loss().backward()
    for group in awn.advanced.find_groups(model):
        log_nu = group.width.log_nu
        assert log_nu.grad is not None
        at = log_nu.item()
        around = []
        for step in (1e-5, -1e-5):
            group.width.move_(at + step)
            around.append(loss().item())
        group.width.move_(at)
        torch.testing.assert_close(log_nu.grad.item(), (around[0] - around[1]) / 2e-5, rtol=1e-5, atol=1e-8)
        assert log_nu.grad.item() != 0


@every_block
def test_training_moves_the_widths_by_gradients_alone(block: int) -> None:
    model = build("2 layers", block=block)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(20):
        train_step(model, optimizer)
        awn.resize_(model, optimizer)
        for group in awn.advanced.find_groups(model):
            assert group.width.units == math.ceil(math.log(10) / group.width.nu.item())  # S(x) = 0.1 there
    assert 40 not in awn.widths(model).values()


def test_the_laws_hold_for_a_network_written_by_hand() -> None:
    """A weight with two axes, columns in pairs, a batch norm over channels: nothing here knows AdaptiveMLP."""
    net = adaptive_net(12, 20).double()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = [train_step(net, optimizer)]
    for channels, units in ((7, 33), (15, 5), (15, 40)):
        for group, number in zip(awn.advanced.find_groups(net), (channels, units), strict=True):
            group.width.move_to_(number)
        old = net.middle._parameters["weight"]
        average = optimizer.state[old]["exp_avg"]
        awn.resize_(net, optimizer)

        new = net.middle._parameters["weight"]
        assert new.shape == (units, 2 * channels)
        assert (net.conv.out_channels, net.norm.num_features) == (channels, channels)
        assert (net.middle.in_features, net.middle.out_features, net.head.in_features) == (2 * channels, units, units)
        rows, columns = min(len(old), units), min(old.shape[1], 2 * channels)
        assert torch.equal(new[:rows, :columns], old[:rows, :columns])
        new_average = optimizer.state[new]["exp_avg"]
        assert torch.equal(new_average[:rows, :columns], average[:rows, :columns])
        assert not new_average[rows:].any()
        assert not new_average[:, columns:].any()

        before = {name: tensor.detach().clone() for name, tensor in net.named_parameters()}
        losses.append(train_step(net, optimizer))  # the earlier losses are all alive
        for name, tensor in net.named_parameters():
            if name != "conv.bias":  # a batch norm takes its mean away
                assert (tensor != before[name]).all(), name

        x, _ = batch(net)
        output = net.eval()(x)
        torch.testing.assert_close(awn.finalize(net)(x), output, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(net(x), output, rtol=0, atol=0)
        net.train()
