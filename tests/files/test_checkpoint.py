"""save, load, save_run, resume_run_: what comes back is what was there, and a bad folder says what is wrong with it."""

from __future__ import annotations

import copy
import errno
import json
import os
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau

import awn
from awn.files.model_folder import describe, rebuild
from awn.files.model_schema import read_description
from cases import (
    IN,
    OUT,
    Net,
    active_parts,
    adaptive_net,
    assert_inert_is_zero,
    assert_same,
    batch,
    build,
    loss_of,
    move_widths_,
    snapshot,
    tensors_of,
    train_step,
)

# What a network may be built with, each at another width than its start.
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "4 layers": {"hidden_layers": 4},
    "batch norm": {"hidden_layers": 2, "batch_norm": True},
    "dropout": {"hidden_layers": 2, "dropout": 0.3},
    "shared width": {"hidden_layers": 3, "shared_width": True, "batch_norm": True},
    "no bias": {"hidden_layers": 2, "bias": False},
    "block 1": {"hidden_layers": 2, "block": 1},
    "block 7": {"hidden_layers": 2, "block": 7},
    "quantile": {"quantile": 0.85},
    "bounds": {"min_units": 5, "max_units": 77},
    "new units": {"new_units": "normal"},
    "mass scale": {"importance": awn.Exponential.for_units(30, scale="mass")},
    "unit scale": {"importance": awn.Exponential.for_units(30, scale="unit")},
    "power law": {"importance": awn.PowerLaw.for_units(30, saturation=4.0)},
    "sigmoid": {"importance": awn.Sigmoid.for_units(30, steepness=3.0)},
    "amplitude": {"amplitude": 0.4},
    "families": {"hidden_layers": 2, "importance": [awn.Exponential.for_units(9), awn.PowerLaw.for_units(14)]},
    **{name: {"activation": name} for name in ("relu6", "leaky_relu", "gelu", "tanh", "softplus")},
}


def network(**options: Any) -> awn.AdaptiveMLP:
    """A network of any options that has taken a step and stands at a width of its own."""
    model = awn.AdaptiveMLP(IN, OUT, **{"importance": awn.Exponential.for_units(30), **options})
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    train_step(model, optimizer)
    move_widths_(model, 23)
    awn.resize_(model, optimizer)
    return model


def settings_of(model: nn.Module) -> list[dict[str, Any]]:
    """Every setting of every width; where a family once started is none, ν has moved since."""
    names = ("units", "capacity", "quantile", "min_units", "max_units", "block", "new_units", "gain", "amplitude")
    return [
        {
            "family": group.width.family.starting_at(group.width.family.lower + 1),
            **{name: getattr(group.width, name) for name in names},
        }
        for group in awn.advanced.find_groups(model)
    ]


def assert_same_model(one: nn.Module, other: nn.Module) -> None:
    assert_same(dict(one.state_dict()), dict(other.state_dict()))
    assert settings_of(one) == settings_of(other)
    x = torch.randn(8, IN, dtype=next(one.parameters()).dtype)
    assert torch.equal(one.eval()(x), other.eval()(x))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_saved_model_comes_back_with_all_its_options(options: dict[str, Any], tmp_path: Path) -> None:
    model = network(**options)
    awn.save(model, tmp_path / "deep" / "folder")
    loaded = awn.load(tmp_path / "deep" / "folder")
    assert isinstance(loaded, awn.AdaptiveMLP)
    assert loaded.options == model.options
    assert_same_model(model, loaded)
    assert sorted(path.name for path in (tmp_path / "deep" / "folder").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_loaded_model_trains_and_resizes_like_the_saved_one(options: dict[str, Any], tmp_path: Path) -> None:
    model = network(**options)
    awn.save(model, tmp_path)
    ends = []
    for one in (model, awn.load(tmp_path)):
        torch.manual_seed(1)
        optimizer = torch.optim.Adam(one.parameters(), lr=0.02)
        for units in (31, 70, 16):
            train_step(one, optimizer)
            move_widths_(one, units)
            awn.resize_(one, optimizer)
        assert_inert_is_zero(one, optimizer)
        ends.append(active_parts(one, optimizer))
    assert_same(*ends)


def test_a_folder_may_be_written_again(tmp_path: Path) -> None:
    for options in ({"hidden_layers": 4}, {}, {"batch_norm": True}):
        model = network(**options)
        awn.save(model, str(tmp_path))
        assert_same_model(model, awn.load(str(tmp_path)))


def test_double_precision_stays_double(tmp_path: Path) -> None:
    model = network(dtype=torch.float64)
    awn.save(model, tmp_path)
    assert_same_model(model, awn.load(tmp_path))
    model = network().double()
    awn.save(model, tmp_path)
    assert_same_model(model, awn.load(tmp_path))


def test_the_default_precision_of_the_loading_process_does_not_matter(tmp_path: Path) -> None:
    model = network()
    awn.save(model, tmp_path)
    torch.set_default_dtype(torch.float64)
    assert_same_model(model, awn.load(tmp_path))


def test_a_truncated_model_keeps_its_quantile(tmp_path: Path) -> None:
    small = awn.truncate(network(hidden_layers=2, min_units=8), units=5)
    awn.save(small, tmp_path)
    loaded = awn.load(tmp_path)
    assert_same_model(small, loaded)
    assert awn.widths(loaded) == {"hidden.0": 5, "hidden.1": 5}
    assert awn.resize_(loaded, None) == {}


def test_loading_does_not_build_a_wider_network_than_was_saved(tmp_path: Path) -> None:
    """Two layers of 2.3 million units, where this family starts without a bound, would need 21 terabytes."""
    model = awn.AdaptiveMLP(IN, OUT, 2, importance=awn.Exponential(rate=1e-6), max_units=40)
    awn.save(model, tmp_path)
    assert_same_model(model, awn.load(tmp_path))


@dataclass(frozen=True)
class Gaussian(awn.advanced.Importance):
    """A family of one's own."""

    learned = "deviation"
    deviation: float = 100.0
    factor: float = 1.0

    def survival(self, x: Tensor, value: Tensor) -> Tensor:
        return torch.erfc(self.factor * x / (value * 2**0.5))

    def inverse_survival(self, p: Tensor, value: Tensor) -> Tensor:
        return value * 2**0.5 * torch.erfinv(1 - p) / self.factor


def test_a_family_of_ones_own_is_named_when_loading(tmp_path: Path) -> None:
    model = network(importance=Gaussian.for_units(30, factor=2.0))
    awn.save(model, tmp_path)
    with pytest.raises(awn.AwnError, match=r"'hidden\.0' uses the importance family 'Gaussian'.*families=\[Gaussian\]"):
        awn.load(tmp_path)
    assert_same_model(model, awn.load(tmp_path, families=[Gaussian]))


def test_an_activation_module_is_code_and_must_be_passed(tmp_path: Path) -> None:
    model = network(hidden_layers=2, activation=nn.PReLU())
    awn.save(model, tmp_path)
    with pytest.raises(awn.AwnError, match=r"activation module, PReLU.*awn\.load\(folder, model\)"):
        awn.load(tmp_path)
    other = awn.AdaptiveMLP(IN, OUT, 2, activation=nn.PReLU(), importance=awn.Exponential.for_units(200))
    assert awn.load(tmp_path, other) is other
    assert_same_model(model, other)


def test_a_model_is_brought_to_the_settings_that_were_saved(tmp_path: Path) -> None:
    model = network(hidden_layers=2, quantile=0.8, block=8, min_units=3, max_units=99, new_units="zero")
    awn.save(model, tmp_path)
    other = network(hidden_layers=2)
    assert awn.load(tmp_path, other) is other
    assert_same_model(model, other)


def test_another_family_is_taken_over(tmp_path: Path) -> None:
    """ν means something else in another family: it is never silently kept."""
    model = network(importance=awn.PowerLaw.for_units(30))
    awn.save(model, tmp_path)
    other = network()
    assert awn.load(tmp_path, other) is other
    assert isinstance(other.hidden[0].width.family, awn.PowerLaw)
    assert_same_model(model, other)


def test_an_activation_of_another_name_is_never_silently_kept(tmp_path: Path) -> None:
    model = network(activation="tanh")
    awn.save(model, tmp_path)
    other = network(activation="relu")
    before = snapshot(other)
    with pytest.raises(awn.AwnError, match="activation"):
        awn.load(tmp_path, other)
    assert_same(before, snapshot(other))


# Networks written by hand


def hand_written(**options: Any) -> Net:
    net = adaptive_net(9, 14, **options)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    train_step(net, optimizer)
    move_widths_(net, 11)
    awn.resize_(net, optimizer)
    return net


@pytest.mark.parametrize("block", [1, 32])
def test_a_network_written_by_hand_loads_into_a_connected_one_of_other_widths(block: int, tmp_path: Path) -> None:
    net = hand_written(block=block)
    awn.save(net, tmp_path)
    other = adaptive_net(20, 3, block=block)
    assert awn.load(tmp_path, other) is other
    assert_same_model(net, other)


@pytest.mark.parametrize("block", [1, 32])
@pytest.mark.parametrize("sizes", [(11, 10), (40, 3), (1, 90)], ids=str)
def test_a_network_written_by_hand_loads_into_a_plain_one_of_any_size(
    block: int, sizes: tuple[int, int], tmp_path: Path
) -> None:
    net = hand_written(block=block)
    awn.save(net, tmp_path)
    other = awn.load(tmp_path, Net(*sizes))
    assert type(other) is Net
    assert_same_model(net, other)
    optimizer = torch.optim.Adam(other.parameters(), lr=0.02)
    train_step(other.train(), optimizer)
    move_widths_(other, 40)
    awn.resize_(other, optimizer)
    assert awn.widths(other) == {"conv": 40, "middle": 39}
    x, _ = batch(other)
    expected = other.eval()(x)
    torch.testing.assert_close(awn.finalize(other)(x), expected, rtol=1e-4, atol=1e-5)


def test_a_network_written_by_hand_must_be_passed(tmp_path: Path) -> None:
    awn.save(hand_written(), tmp_path)
    with pytest.raises(
        awn.AwnError, match=r"the folder holds a Net\. Pass a model of this class: awn\.load\(folder, model\)"
    ):
        awn.load(tmp_path)


class MoreOutputs(Net):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(20, OUT + 1)


class OtherNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 5, 2)
        self.last = nn.Linear(10, 2)


@pytest.mark.parametrize(
    ("other", "named"),
    [(MoreOutputs, r"head\.weight"), (OtherNames, r"norm\.weight"), (lambda: network(hidden_layers=2), r"hidden\.0")],
)
def test_a_model_of_another_architecture_is_refused_and_left_as_it_was(
    other: Callable[[], nn.Module], named: str, tmp_path: Path
) -> None:
    awn.save(hand_written(), tmp_path)
    model = other()
    before = snapshot(model)
    with pytest.raises(awn.AwnError, match=named):
        awn.load(tmp_path, model)
    assert_same(before, snapshot(model))


def test_a_model_without_widths_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(awn.AwnError, match="Net has no layer with a learned width"):
        awn.save(Net(), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


# Bad folders


def edit_config(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(config)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def cut(folder: Path, share: float) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: int(len(content) * share)])


def of_another_version(folder: Path) -> None:
    config = {**json.loads((folder / "config.json").read_text(encoding="utf-8")), "format": 99}
    save_file({"a": torch.zeros(1)}, folder / "model.safetensors", metadata={"awn": json.dumps(config)})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


BAD_FOLDERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda f: [path.unlink() for path in f.iterdir()] and f.rmdir(), "there is no folder"),
    "empty": (lambda f: [path.unlink() for path in f.iterdir()], r"there is no file .*model\.safetensors"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"there is no file .*model\.safetensors"),
    "no config": (lambda f: (f / "config.json").unlink(), r"config\.json.*cannot be read"),
    "weights cut short": (lambda f: cut(f, 0.9), r"model\.safetensors cannot be read: it is damaged"),
    "weights cut in the header": (lambda f: cut(f, 0.1), r"model\.safetensors cannot be read: it is damaged"),
    "empty weights": (lambda f: cut(f, 0), r"model\.safetensors cannot be read: it is damaged"),
    "config that is no JSON": (lambda f: (f / "config.json").write_text("{"), r"config\.json.*cannot be read"),
    "config that is no text": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), r"config\.json.*cannot be read"),
    "config with other units": (
        lambda f: edit_config(f, lambda c: c["groups"][0].update(units=3)),
        r"config\.json differs from the description inside model\.safetensors",
    ),
    "config with another family": (
        lambda f: edit_config(f, lambda c: c["groups"][0]["family"].update(type="PowerLaw")),
        r"config\.json differs",
    ),
    "config of another model": (
        lambda f: awn.save(network(hidden_layers=2), f / "b") or (f / "b" / "config.json").replace(f / "config.json"),
        r"config\.json differs",
    ),
    "weights of another model": (
        lambda f: (
            awn.save(network(hidden_layers=2), f / "b")
            or (f / "b" / "model.safetensors").replace(f / "model.safetensors")
        ),
        r"config\.json differs",
    ),
    "weights of others": (
        lambda f: save_file({"a": torch.zeros(1)}, f / "model.safetensors"),
        "was not written by awn",
    ),
    "another version": (of_another_version, "this version of awn reads formats 1 to 3"),
    "a pickle": (lambda f: torch.save(nn.Linear(2, 2).state_dict(), f / "model.safetensors"), "cannot be read"),
}


@pytest.mark.parametrize(("spoil", "message"), BAD_FOLDERS.values(), ids=BAD_FOLDERS)
@pytest.mark.parametrize("into", ["a new model", "a model"])
def test_a_bad_folder_says_what_is_wrong_and_changes_nothing(
    spoil: Callable[[Path], Any], message: str, into: str, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    awn.save(network(), folder)
    spoil(folder)
    model = network()
    before = snapshot(model)
    with pytest.raises(awn.AwnError, match=message) as caught:
        awn.load(folder, model if into == "a model" else None)
    assert str(folder) in str(caught.value)
    assert_same(before, snapshot(model))


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with pytest.raises(awn.AwnError, match="there is no folder"):
        awn.load(tmp_path / "file")


# A save that is stopped


class Killed(BaseException):
    """The process ends here: no code of ours runs any more."""


def stop_at(monkeypatch: pytest.MonkeyPatch, stage: str, number: int, how: str) -> None:
    """Stop at the n-th write or move; killed, nothing is cleaned up and half a file is left."""
    error = Killed("killed") if how == "killed" else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    real_fsync, real_replace, real_unlink = os.fsync, Path.replace, Path.unlink
    seen = {"write": 0, "move": 0}

    def now(what: str) -> bool:
        seen[what] += 1
        return stage == what and seen[what] == number

    def fsync(descriptor: int) -> None:
        if now("write"):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            raise error
        real_fsync(descriptor)

    def replace(self: Path, target: Any) -> Path:
        if now("move"):
            raise error
        return real_replace(self, target)

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if how != "killed":
            real_unlink(self, missing_ok)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Path, "unlink", unlink)


STOPPED = {"killed": "killed", "full disk": "No space left"}
stages = pytest.mark.parametrize(("stage", "number"), [("write", 1), ("write", 2), ("move", 1), ("move", 2)])


@pytest.mark.parametrize("how", ["killed", "full disk"])
@stages
def test_a_save_that_is_stopped_leaves_a_whole_model(
    stage: str, number: int, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = network(), network(hidden_layers=3)
    awn.save(old, tmp_path)
    with monkeypatch.context() as patch:
        stop_at(patch, stage, number, how)
        with pytest.raises(Killed if how == "killed" else OSError, match=STOPPED[how]):
            awn.save(new, tmp_path)
    # Once the weights have been moved, the new model stands; before that the old one does.
    assert_same_model(new if (stage, number) == ("move", 2) else old, awn.load(tmp_path))
    again = network(hidden_layers=2)
    awn.save(again, tmp_path)
    assert_same_model(again, awn.load(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@stages
def test_two_saves_in_a_row_that_are_killed_leave_a_whole_model(
    stage: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is killed between its moves: its description is complete, but still has its temporary name."""
    old, new, newest = network(), network(hidden_layers=3), network(hidden_layers=2)
    awn.save(old, tmp_path)
    for model, (where, at) in ((new, ("move", 2)), (newest, (stage, number + (stage == "move")))):
        with monkeypatch.context() as patch:
            stop_at(patch, where, at, "killed")
            with pytest.raises(Killed):
                awn.save(model, tmp_path)
    # The second save makes the move that the first did not get to, and only then its own two.
    assert_same_model(newest if (stage, number) == ("move", 2) else new, awn.load(tmp_path))


@pytest.mark.parametrize("how", ["killed", "full disk"])
@pytest.mark.parametrize(("stage", "number"), [("write", 1), ("move", 1)])
def test_a_run_whose_saving_is_stopped_leaves_the_earlier_one(
    stage: str, number: int, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = run()
    path = tmp_path / "run.safetensors"
    awn.save_run(path, model, optimizer, extra="earlier")
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        stop_at(patch, stage, number, how)
        with pytest.raises(Killed if how == "killed" else OSError, match=STOPPED[how]):
            awn.save_run(path, model, optimizer, extra="later")
    assert path.read_bytes() == before
    assert awn.resume_run_(path, model, optimizer) == "earlier"


# No pickle


def test_neither_saving_nor_loading_touches_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("pickle was used")

    model, optimizer = run()
    scheduler = OneCycleLR(optimizer, 0.1, total_steps=9)
    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    for name in ("save", "load"):
        monkeypatch.setattr(torch, name, forbidden)
    awn.save(model, tmp_path)
    awn.save_run(tmp_path / "run", model, optimizer, scheduler=scheduler)
    assert_same_model(model, awn.load(tmp_path))
    awn.resume_run_(tmp_path / "run", model, optimizer, scheduler=scheduler)


@pytest.mark.parametrize("name", ["model.safetensors", "run"])
def test_the_files_hold_json_and_numbers_and_not_a_byte_more(name: str, tmp_path: Path) -> None:
    model, optimizer = run()
    awn.save(model, tmp_path)
    awn.save_run(tmp_path / "run", model, optimizer)
    content = (tmp_path / name).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    json.loads(header.pop("__metadata__")["awn"])
    parts = sorted(entry["data_offsets"] for entry in header.values())
    assert [start for start, _ in parts] == [0, *(end for _, end in parts[:-1])]
    assert parts[-1][1] == len(content) - 8 - length


# Runs


def run(**options: Any) -> tuple[Any, torch.optim.Optimizer]:
    model = build("batch norm", dtype=torch.float32, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for units in (31, 55):
        train_step(model, optimizer)
        move_widths_(model, units)
        awn.resize_(model, optimizer)
    return model, optimizer


def test_a_run_comes_back_with_all_its_parts(tmp_path: Path) -> None:
    """Several optimizers, a scheduler each, a scaler, and whatever else the user keeps."""

    def parts() -> tuple[Any, list[Any], dict[str, Any]]:
        model = build("2 layers", dtype=torch.float32)
        named = tensors_of(model)
        weights = torch.optim.AdamW([p for p in named.values() if p.dim() == 2], lr=0.02)
        others = torch.optim.SGD([p for p in named.values() if p.dim() < 2], lr=0.02, momentum=0.9)
        return (
            model,
            [weights, others],
            {
                "scheduler": OneCycleLR(weights, 0.1, total_steps=40),
                "plateau": ReduceLROnPlateau(others, patience=1),
                "scaler": torch.amp.GradScaler("cpu", init_scale=2.0**7, growth_interval=2),
            },
        )

    def steps(model: Any, optimizers: list[Any], things: dict[str, Any]) -> list[float]:
        losses = []
        for units in (50, 22, 71):
            loss = loss_of(model)
            things["scaler"].scale(loss).backward()
            for optimizer in optimizers:
                things["scaler"].step(optimizer)
                optimizer.zero_grad()
            things["scaler"].update()
            things["scheduler"].step()
            things["plateau"].step(1.0)
            move_widths_(model, units)
            awn.resize_(model, optimizers)
            losses.append(loss.item())
        return losses

    model, optimizers, things = parts()
    steps(model, optimizers, things)
    extra = {"epoch": 3, "best": (0.5, None), "history": [{"loss": 1.5}, {}], "average": torch.arange(3), 7: ["x"]}
    awn.save_run(tmp_path / "run", model, optimizers, extra=extra, **things)
    expected = steps(model, optimizers, things)

    torch.manual_seed(99)
    other, other_optimizers, other_things = parts()
    back = awn.resume_run_(tmp_path / "run", other, iter(other_optimizers), **other_things)
    assert_same(extra, back)
    assert steps(other, other_optimizers, other_things) == expected
    assert_same(dict(model.state_dict()), dict(other.state_dict()))
    for one, two in zip([*optimizers, *things.values()], [*other_optimizers, *other_things.values()], strict=True):
        assert_same(one.state_dict(), two.state_dict())


def test_random_numbers_go_on_where_they_stood(tmp_path: Path) -> None:
    model, optimizer = run()
    awn.save_run(tmp_path / "run", model, optimizer)

    def draw() -> list[Any]:
        return [
            random.random(),
            random.gauss(0, 1),
            *numpy.random.rand(2),
            numpy.random.randn(),
            torch.rand(3).tolist(),
        ]

    expected = draw()
    random.seed(5)
    numpy.random.seed(5)
    torch.manual_seed(5)
    awn.resume_run_(tmp_path / "run", model, optimizer)
    assert draw() == expected


def test_a_run_without_an_optimizer_is_a_run_too(tmp_path: Path) -> None:
    model, _ = run()
    awn.save_run(tmp_path / "run", model, None)
    other = build("batch norm", dtype=torch.float32, units=5)
    assert awn.resume_run_(tmp_path / "run", other, None) is None
    assert_same_model(model, other)


def one_group_less(model: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam([{"params": [p]} for p in model.parameters()])


def one_parameter_less(model: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(list(model.parameters())[:-1])


WRONG_OPTIMIZERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "none": (lambda model: None, "holds 1 optimizers, but 0 were passed"),
    "two": (lambda model: [one_group_less(model), one_group_less(model)], "holds 1 optimizers, but 2 were passed"),
    "other groups": (one_group_less, r"with \[12\] parameters in its groups, but the one passed has \[1, 1"),
    "fewer parameters": (one_parameter_less, r"with \[12\] parameters in its groups, but the one passed has \[11\]"),
    "LBFGS": (lambda model: torch.optim.LBFGS(model.parameters()), "LBFGS"),
}


@pytest.mark.parametrize(("make", "message"), WRONG_OPTIMIZERS.values(), ids=WRONG_OPTIMIZERS)
def test_a_wrong_optimizer_is_refused_before_anything_changes(
    make: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    model, optimizer = run()
    assert len(optimizer.param_groups[0]["params"]) == 12
    awn.save_run(tmp_path / "run", model, optimizer)
    other, _ = run(units=9)
    wrong = make(other)
    optimizers = [] if wrong is None else wrong if isinstance(wrong, list) else [wrong]
    before = snapshot(other, *optimizers)
    with pytest.raises(awn.AwnError, match=message):
        awn.resume_run_(tmp_path / "run", other, wrong)
    assert_same(before, snapshot(other, *optimizers))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], r"holds the parts \['plateau', 'scheduler'\], but \[\] were passed"),
        (["scheduler"], r"but \['scheduler'\] were passed"),
        (["scheduler", "plateau", "scaler"], r"but \['plateau', 'scaler', 'scheduler'\] were passed"),
    ],
)
def test_other_parts_than_were_saved_are_refused_before_anything_changes(
    names: list[str], message: str, tmp_path: Path
) -> None:
    model, optimizer = run()
    parts = {
        "scheduler": OneCycleLR(optimizer, 0.1, total_steps=9),
        "plateau": ReduceLROnPlateau(optimizer),
        "scaler": torch.amp.GradScaler("cpu"),
    }
    saved = {name: parts[name] for name in ("scheduler", "plateau")}
    awn.save_run(tmp_path / "run", model, optimizer, **saved)
    train_step(model, optimizer)
    before = snapshot(model, optimizer)
    with pytest.raises(awn.AwnError, match=message):
        awn.resume_run_(tmp_path / "run", model, optimizer, **{name: parts[name] for name in names})
    assert_same(before, snapshot(model, optimizer))


@pytest.mark.parametrize("case", ["1 layer", "2 layers", "4 layers", "shared width"])
@pytest.mark.parametrize("trained", [True, False])
def test_a_run_of_another_model_is_refused_before_anything_changes(case: str, trained: bool, tmp_path: Path) -> None:
    """By its optimizer, which holds other parameters; and without one by its own tensors."""
    model, optimizer = run()
    awn.save_run(tmp_path / "run", model, optimizer if trained else None)
    other = build(case, dtype=torch.float32)
    optimizers = [torch.optim.Adam(other.parameters())] if trained else []
    before = snapshot(other, *optimizers)
    with pytest.raises(awn.AwnError, match=r"\[12\] parameters" if trained else r"another model.*(hidden|norms)\."):
        awn.resume_run_(tmp_path / "run", other, optimizers or None)
    assert_same(before, snapshot(other, *optimizers))


@pytest.mark.parametrize("extra", [object(), {"a": [print]}, {1, 2}, b"bytes"], ids=lambda extra: type(extra).__name__)
def test_extra_that_cannot_be_packed_is_refused_and_the_earlier_run_stays(extra: Any, tmp_path: Path) -> None:
    model, optimizer = run()
    awn.save_run(tmp_path / "run", model, optimizer, extra="earlier")
    with pytest.raises(awn.AwnError, match=r"'run\.extra.*' is a .*Save numbers, strings, tensors"):
        awn.save_run(tmp_path / "run", model, optimizer, extra=extra)
    assert awn.resume_run_(tmp_path / "run", model, optimizer) == "earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_is_no_run_is_reported(tmp_path: Path) -> None:
    model, optimizer = run()
    awn.save(model, tmp_path)
    before = snapshot(model, optimizer)
    for name, message in (("model.safetensors", "not a run"), ("config.json", "cannot be read"), ("none", "no file")):
        with pytest.raises(awn.AwnError, match=message):
            awn.resume_run_(tmp_path / name, model, optimizer)
    assert_same(before, snapshot(model, optimizer))


def test_a_run_cut_short_is_reported(tmp_path: Path) -> None:
    model, optimizer = run()
    path = tmp_path / "run"
    awn.save_run(path, model, optimizer)
    content = path.read_bytes()
    before = snapshot(model, optimizer)
    for length in (0, 7, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(awn.AwnError, match="it is damaged"):
            awn.resume_run_(path, model, optimizer)
    assert_same(before, snapshot(model, optimizer))


def test_a_description_of_format_2_is_read() -> None:
    """Axes had a number of entries per unit, and groups had no attributes."""
    model = awn.AdaptiveMLP(2, 3, hidden_layers=2)
    now = describe(model)
    before = copy.deepcopy(now)
    before["format"] = 2
    for group in before["groups"]:
        assert group.pop("attributes") == []
        for axis in group["axes"]:
            (block,) = axis.pop("layout")
            axis["repeat"] = block["entries"]
    tensors = dict(model.state_dict())
    _, read = read_description(Path("folder"), before, tensors)
    assert read == json.loads(json.dumps(now))
    assert torch.equal(rebuild(tensors, read)(torch.ones(1, 2)), model(torch.ones(1, 2)))
