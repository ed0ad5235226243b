"""Processes that train together, and what they are asked to do; the tests are in parallel/test_distributed.py.

The processes stay from test to test, since each takes seconds to import torch. What they return is plain numbers.
"""

from __future__ import annotations

import contextlib
import io
import math
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import awn
from awn.training import Callback, Data, FitOptions, Progress, fit

# A rank that waits for one that is gone must not wait for long.
PATIENCE = timedelta(seconds=20)

Scenario = Callable[..., Any]


class Ranks:
    """Three processes that wait for work."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(3)]
        self.connections = [here for here, _ in pipes]
        self.processes = [context.Process(target=_serve, args=(there,), daemon=True) for _, there in pipes]
        for process in self.processes:
            process.start()

    def run(
        self,
        scenario: Scenario,
        ranks: int,
        *args: Any,
        joined: bool = True,
        patience: timedelta = PATIENCE,
        **options: Any,
    ) -> list[Any]:
        """What each of the ranks returns, or the error that it raises, with all in one process group if `joined`."""
        with tempfile.TemporaryDirectory() as folder:
            used = self.connections[:ranks]
            for rank, connection in enumerate(used):
                group = (f"file://{folder}/store", rank, ranks, patience) if joined else None
                connection.send((scenario, group, (rank, *args), options))
            return [connection.recv() if connection.poll(120) else "no answer" for connection in used]

    def stop(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.kill()
            process.join()


def _serve(connection: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        scenario, group, args, options = connection.recv()
        if group is not None:
            place, rank, ranks, patience = group
            dist.init_process_group("gloo", init_method=place, rank=rank, world_size=ranks, timeout=patience)
        try:
            answer = scenario(*args, **options)
        except Exception as error:  # the tests judge it
            answer = error
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
        connection.send(answer)


# Training, as one process or as several


def build(**options: Any) -> awn.AdaptiveMLP:
    """A small network whose capacity is often passed; every caller gets the same."""
    importance = awn.Exponential.for_units(12, scale="unit")
    made = {"hidden_layers": 2, "activation": "tanh", "block": 2, "new_units": "rescaled", "max_units": 80, **options}
    generator = torch.Generator().manual_seed(0)
    return awn.AdaptiveMLP(3, 2, importance=importance, generator=generator, **made).double()


def samples(number: int, seed: int = 0) -> Data:
    """Inputs and targets."""
    x = torch.randn(number, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return Data(x, torch.stack([x.sum(1).sin(), x.prod(1)], dim=1))


def flat(tensors: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Tensors as lists of numbers."""
    return {name: tensor.detach().flatten().tolist() for name, tensor in tensors.items()}


def loss_of(model: nn.Module, data: Data) -> Tensor:
    """The objective, with every term that has a gradient of its own."""
    prior = awn.Prior(weight_scale=0.5, width_mean=0.3, width_scale=0.05)
    nll = awn.advanced.ordered_loss(model, lambda: F.mse_loss(model(data.x), data.y))
    return awn.objective(nll, model, n_samples=20, prior=prior, budget=awn.Budget(max_units=30, strength=0.01))


def train(
    rank: int,
    ranks: int = 1,
    *,
    steps: int = 60,
    optimizer: str = "Adam",
    options: Mapping[str, Any] | None = None,
    accumulate: bool = False,
    hook: bool = False,
    model: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train with widths that move at nearly every step, and say all that happened."""
    torch.manual_seed(rank)  # the ranks' own random numbers differ: new units must be rank 0's
    bare = build(**(model or {}))
    calls = [0]
    whole: Any = bare
    if ranks > 1:
        whole = DistributedDataParallel(bare, **(options or {}))
        if hook:
            whole.register_comm_hook(calls, _counting_hook)
    groups = awn.param_groups(whole, lr=0.01, width_lr=0.02)
    one = torch.optim.SGD(groups, momentum=0.9) if optimizer == "SGD" else torch.optim.Adam(groups)
    seen, replaced = [], 0
    for step in range(steps):
        data = samples(12, seed=step)
        own = Data(*(part.tensor_split(ranks)[rank] for part in data[:2]))
        one.zero_grad()
        if accumulate:
            first, second = (Data(*(part.tensor_split(2)[half] for part in own[:2])) for half in (0, 1))
            with whole.no_sync() if ranks > 1 else contextlib.nullcontext():
                (loss_of(whole, first) / 2).backward()
            (loss_of(whole, second) / 2).backward()
        else:
            loss_of(whole, own).backward()
        gradients = flat({name: p.grad for name, p in bare.named_parameters() if p.grad is not None})
        before = list(bare.parameters())
        one.step()
        for group in awn.advanced.find_groups(whole):  # a push, so that widths go up and down at nearly every step
            group.width.move_(group.width.log_nu.item() - 0.2 * math.cos(step / 4))
        resized = awn.resize_(whole, one)
        replaced += any(old is not new for old, new in zip(before, bare.parameters(), strict=True))
        prefix = [group.width.prefix_units for group in awn.advanced.find_groups(whole)]
        seen.append({"gradients": gradients, "widths": awn.widths(whole), "prefix": prefix, "resized": sorted(resized)})
    names = {parameter: name for name, parameter in bare.named_parameters()}
    state = {f"{names[p]} {key}": value for p in names for key, value in one.state[p].items() if value is not None}
    return {
        "steps": seen,
        "replaced": replaced,
        "hook": calls[0],
        "parameters": flat(dict(bare.named_parameters())),
        "state": flat(state),
    }


def _counting_hook(calls, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are strings
    calls[0] += 1
    return allreduce_hook(None, bucket)


# Ranks that do not do the same


def drift(rank: int) -> dict[str, Any]:
    """Rank 1 moves a width by itself."""
    model = DistributedDataParallel(build())
    optimizer = torch.optim.Adam(model.parameters())
    if rank == 1:
        model.module.hidden[1].width.move_to_(20)
    before = list(model.parameters())
    try:
        awn.resize_(model, optimizer)
    except awn.AwnError as error:
        same = all(old is new for old, new in zip(before, model.parameters(), strict=True))
        return {"error": repr(error), "untouched": same and awn.widths(model) == {"hidden.0": 12, "hidden.1": 12}}
    return {"error": None}


def built_apart(rank: int) -> None:
    """Rank 1 starts with another width in the same capacity, which DDP itself does not see."""
    bare = build(block=64)
    if rank == 1:
        awn.advanced.set_units_(bare, {"hidden.0": 20}, None)
    model = DistributedDataParallel(bare)
    awn.resize_(model, torch.optim.Adam(model.parameters()))


def leaves(rank: int) -> None:
    """Rank 1 ends while the others go on."""
    model = DistributedDataParallel(build())
    optimizer = torch.optim.Adam(model.parameters())
    if rank == 1:
        return
    model.module.hidden[0].width.move_to_(30)
    awn.resize_(model, optimizer)


# Ways to pass the model inside a DDP, and the DDP itself


def resize_inside(rank: int) -> list[str]:
    """The model is resized without its DDP, step after step; the errors that follow."""
    model = DistributedDataParallel(build(block=64))
    optimizer = torch.optim.Adam(model.parameters())
    errors = []
    for units in (13, 14):
        loss_of(model, samples(4)).backward()
        model.module.hidden[0].width.move_to_(units)
        try:
            awn.resize_(model.module, optimizer)
        except awn.AwnError as error:
            errors.append(str(error))
    return errors


def set_units_inside(rank: int) -> list[str]:
    """The same with `set_units_`, and then on the DDP itself, with other widths on the ranks."""
    model = DistributedDataParallel(build(block=64))
    said = []
    for units in (13, 12):  # noticed at the second call
        loss_of(model, samples(4)).backward()
        try:
            awn.advanced.set_units_(model.module, {"hidden.0": units}, None)
        except awn.AwnError as error:
            said.append(str(error))
    for units, capacity in ((14 + rank, 64), (14, 64 + 8 * rank)):
        try:
            awn.advanced.set_units_(model, {"hidden.0": units}, None, capacities={"hidden.0": capacity})
        except awn.AwnError as error:
            said.append(str(error))
    return said


def joined(rank: int) -> str:
    """A change of width where ranks may run out of batches."""
    model = DistributedDataParallel(build())
    optimizer = torch.optim.Adam(model.parameters())
    with model.join():
        loss_of(model, samples(4)).backward()
        try:
            awn.resize_(model, optimizer)
        except awn.AwnError as error:
            return str(error)
    return "no error"


def compiled(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    """`fit` and `save_run`, given what torch.compile returned for a DDP."""
    whole: Any = torch.compile(DistributedDataParallel(build()), backend="eager")
    rows = []
    fit(
        whole,
        samples(40),
        loss=lambda output, y, weight: rows.append(len(y)) or F.mse_loss(output, y),
        options=FitOptions(epochs=1, batch_size=20, patience=None),
    )
    path = Path(folder) / f"{rank}.safetensors"
    awn.save_run(path, whole, torch.optim.Adam(whole.parameters()))
    return {"rows": rows, "written": path.exists()}


def skip_connection(rank: int) -> None:
    """A model whose own error speaks of a connection."""

    def loss(output: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        raise RuntimeError("the skip connection has 3 channels")

    fit(DistributedDataParallel(build()), samples(8), loss=loss, options=FitOptions(epochs=1, patience=None))


def lost_in_training(rank: int) -> None:
    """Rank 1 ends in the middle of an epoch, while rank 0 is in its backward pass."""
    model = DistributedDataParallel(build())
    steps = [0]

    def loss(output: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        steps[0] += 1
        if rank == 1 and steps[0] == 3:
            raise KeyError("the end of rank 1")
        return F.mse_loss(output, y)

    fit(model, samples(80), loss=loss, options=FitOptions(epochs=2, batch_size=8, patience=None, resize_every=100))


def load_inside(rank: int) -> str:
    """A state dict of another capacity is loaded behind DDP's back; the error of the next forward."""
    model = DistributedDataParallel(build())
    wide = build()
    awn.advanced.set_units_(wide, {"hidden.0": 40}, None)
    model.module.load_state_dict(wide.state_dict())
    with torch.no_grad():
        model.module(samples(4).x)  # by itself it is a model like any other
    try:
        loss_of(model, samples(4)).backward()
    except awn.AwnError as error:
        return str(error)
    return "no error"


def change_then_wrap(rank: int) -> dict[str, int]:
    """Changes before there is a DDP are nobody's business."""
    bare = build()
    optimizer = torch.optim.Adam(bare.parameters())
    bare.hidden[0].width.move_to_(40)
    awn.resize_(bare, optimizer)
    model = DistributedDataParallel(bare)
    loss_of(model, samples(4)).backward()
    optimizer.step()
    awn.resize_(model, optimizer)
    return awn.widths(model)


def load_through(rank: int, ranks: int) -> dict[str, list[float]]:
    """The DDP itself is given a state dict of another capacity; the gradients that follow."""
    whole: Any = DistributedDataParallel(build()) if ranks > 1 else build()
    optimizer = torch.optim.Adam(whole.parameters())
    wide = build()
    awn.advanced.set_units_(wide, {"hidden.0": 40}, None, generator=torch.Generator().manual_seed(3))
    awn.advanced.load_state_dict_(whole, wide.state_dict(), optimizer)
    data = samples(12)
    loss_of(whole, Data(*(part.tensor_split(ranks)[rank] for part in data[:2]))).backward()
    bare = whole.module if ranks > 1 else whole
    return flat({name: parameter.grad for name, parameter in bare.named_parameters()})


def everything_else(rank: int, folder: str) -> dict[str, Any]:
    """All that one does with a model, done with a DDP."""
    bare = build()
    model = DistributedDataParallel(bare)
    place = Path(folder) / str(rank)
    awn.save(model, place)
    x = samples(5).x
    with torch.no_grad():
        plain = awn.finalize(model)
        difference = (plain(x) - bare(x)).abs().max().item()
    return {
        "widths": awn.widths(model),
        "layers": [row.layer for row in awn.summary(model).layers],
        "parameters": awn.advanced.count_parameters(model) == awn.advanced.count_parameters(bare),
        "prior": awn.objective(
            torch.zeros(()), model, 10, prior=awn.Prior(weight_scale={"hidden.*": 1.0, "output": None})
        ).item(),
        "finalize": difference,
        "classes": [type(plain).__name__, type(awn.truncate(model, keep=0.5)).__name__],
        "saved": place.is_dir() and awn.widths(awn.load(place)),
    }


def delayed(rank: int) -> None:
    """A DDP with an option that holds on to Parameters."""
    bare = build()
    delayed_ones = [("output.bias", bare.output.bias)]
    model = DistributedDataParallel(
        bare, delay_all_reduce_named_params=delayed_ones, param_to_hook_all_reduce=bare.hidden[0].bias
    )
    bare.hidden[0].width.move_to_(30)
    awn.resize_(model, torch.optim.Adam(model.parameters()))


def dealt_out(rank: int) -> None:
    """An optimizer whose state is spread over the ranks."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(build())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam)
    awn.resize_(model, optimizer)


def broadcast_buffers(rank: int, batch_norm: bool) -> list[str]:
    """The buffers that DDP broadcasts in every forward, once widths are resized."""
    model = DistributedDataParallel(build(batch_norm=batch_norm))
    awn.resize_(model, torch.optim.Adam(model.parameters()))
    model.module.hidden[0].width.move_to_(40)
    awn.resize_(model, torch.optim.Adam(model.parameters()))
    loss_of(model, samples(4)).backward()
    return list(model.named_module_buffers)


def sharded(rank: int, ranks: int) -> list[str]:
    """What FSDP2 and awn say to each other."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (ranks,))
    said = []
    try:
        fully_shard(build(), mesh=mesh)
    except ValueError as error:  # torch's own
        said.append(str(error))
    model = build()
    learned = {group.width.log_nu for group in awn.advanced.find_groups(model)}
    fully_shard(model, mesh=mesh, ignored_params=learned)
    optimizer = torch.optim.Adam(model.parameters())
    layers = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 1))
    fully_shard(layers, mesh=mesh)
    axes = [
        awn.advanced.Axis(layers[0], "weight", 0, "producer"),
        awn.advanced.Axis(layers[2], "weight", 1, "consumer"),
    ]
    calls = (
        lambda: awn.resize_(model, optimizer),
        lambda: awn.advanced.set_units_(model, {"hidden.0": 30}, optimizer),
        lambda: awn.advanced.connect_(awn.advanced.Width(awn.Exponential.for_units(20)), axes),
        lambda: awn.objective(model(samples(4).x).sum(), model, 10),
        lambda: fit(model, samples(8), loss=lambda output, y, _: F.mse_loss(output, y), options=FitOptions(epochs=1)),
        lambda: awn.finalize(model),
        lambda: awn.truncate(model, keep=0.5),
        lambda: awn.save(model, "nowhere"),
        lambda: awn.save_run("nowhere", model, optimizer),
    )
    for call in calls:
        try:
            call()
        except awn.AwnError as error:
            said.append(str(error))
    return said


# Runs: checkpoints, fit, the command


def save_or_resume(rank: int, ranks: int, path: str, steps: int, resume: bool) -> dict[str, Any]:
    """Steps of a run that is saved after each of them; perhaps from where the file left off."""
    torch.manual_seed(rank)
    whole: Any = DistributedDataParallel(build()) if ranks > 1 else build()
    optimizer = torch.optim.Adam(awn.param_groups(whole, lr=0.02, width_lr=0.06))
    first = awn.resume_run_(path, whole, optimizer)["step"] if resume else 0
    for step in range(first, steps):
        data = samples(12, seed=step)
        optimizer.zero_grad()
        loss_of(whole, Data(*(part.tensor_split(ranks)[rank] for part in data[:2]))).backward()
        optimizer.step()
        awn.resize_(whole, optimizer)
        awn.save_run(path, whole, optimizer, extra={"step": step + 1})
    bare = whole.module if ranks > 1 else whole
    return {"first": first, "widths": awn.widths(whole), "parameters": flat(dict(bare.named_parameters()))}


class _Stop(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.called = 0

    def on_epoch_end(self, progress: Progress) -> None:
        self.called += 1
        progress.stop = progress.epoch >= self.epoch


def run_fit(
    rank: int,
    ranks: int,
    folder: str,
    epochs: int,
    resume: bool = False,
    stop: int = 99,
    choose: Any = None,
    narrow: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """`awn.training.fit` on a number of samples that no number of ranks divides."""
    bare = build(**options)
    whole: Any = DistributedDataParallel(bare) if ranks > 1 else bare
    callback = _Stop(stop)
    history = fit(
        whole,
        samples(101),
        samples(30, seed=1),
        loss=lambda output, y, weight: F.mse_loss(output, y),
        options=FitOptions(
            epochs=epochs, batch_size=14, width_lr=0.05, patience=None, clip=1.0, choose=choose, narrow=narrow
        ),
        callbacks=[callback],
        folder=folder or None,
        resume=resume,
    )
    state = {name: value for name, value in bare.state_dict().items() if isinstance(value, Tensor)}
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in history]
    chosen = history.choice.widths if history.choice else None
    found = {"rows": rows, "state": flat(state), "called": callback.called, "training": whole.training}
    return {**found, "chosen": chosen, "widths": awn.widths(whole)}


def tiny_batches(rank: int, ranks: int) -> None:
    """Fewer samples in a batch than there are ranks."""
    model = DistributedDataParallel(build())
    fit(model, samples(8), loss=lambda output, y, _: F.mse_loss(output, y), options=FitOptions(batch_size=2))


@contextlib.contextmanager
def launched(rank: int, ranks: int, port: int) -> Iterator[None]:
    """The environment of a process that torchrun has started."""
    variables = {
        "TORCHELASTIC_RUN_ID": "test",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
    }
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def command(rank: int, ranks: int, port: int, words: list[str]) -> tuple[Any, str, str]:
    """The command line, as torchrun starts it; its exit code and what it printed."""
    from awn.cli import app, output

    sys.argv = ["awn", *words]
    printed, complained = io.StringIO(), io.StringIO()
    output.out.file, output.err.file = printed, complained
    try:
        with (
            launched(rank, ranks, port),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(complained),
        ):
            app.main()
    except SystemExit as end:
        return end.code, printed.getvalue(), complained.getvalue()
    return None, printed.getvalue(), complained.getvalue()


def lightning_fit(
    rank: int,
    ranks: int,
    port: int,
    folder: str,
    *,
    accumulate: int = 1,
    manual: bool = False,
    resumed: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """60 batches of 12 samples under Lightning's Trainer, started as torchrun does, and all that came of them."""
    import lightning_cases

    callback = lightning_cases.callback()
    seen = lightning_cases.Pushed()
    model = lightning_cases.module(build(), manual=manual)
    torch.manual_seed(rank)
    with contextlib.ExitStack() as stack:
        if ranks > 1:
            stack.enter_context(launched(rank, ranks, port))
        made = {"accumulate_grad_batches": accumulate, "folder": folder, "ranks": ranks, **options}
        rows = samples(240)
        if resumed:
            lightning_cases.fit(model, rows, [seen, callback], epochs=1, **made)
            model = lightning_cases.module(build(), manual=manual)
            callback = lightning_cases.callback()
            lightning_cases.fit(model, rows, [seen, callback], epochs=3, resume=True, **made)
        else:
            lightning_cases.fit(model, rows, [seen, callback], epochs=3, **made)
    return {
        "widths": seen.widths,
        "replaced": seen.replaced,
        "samples": callback._samples,
        "parameters": flat(dict(model.named_parameters())),
        "logged": seen.logged,
    }
