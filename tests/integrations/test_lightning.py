"""The Lightning callback: real runs on scikit-learn's digits, and the exact gradient that it adds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, StochasticWeightAveraging
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import ModelParallelStrategy
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

import awn
from awn.core.groups import find_groups
from awn.core.ordered import draw_prefix_, has_prefix, use_prefix_
from awn.errors import ArgumentError
from awn.integrations.lightning import AdaptiveWidth
from awn.loss.prior_gradient import count_samples
from awn.training import Shrink

pytestmark = [
    # Most runs here have a module that could validate, and nothing to validate on.
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    # A run that goes on finds its own checkpoints.
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


class InEpochOrder(Sampler[int]):
    """Rows in an order that follows from the epoch alone, so that a resumed run sees the same batches."""

    def __init__(self, rows: int) -> None:
        self.rows, self.epoch = rows, 0

    def set_epoch(self, epoch: int) -> None:  # Lightning calls it before every epoch
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.rows, generator=torch.Generator().manual_seed(self.epoch)).tolist())

    def __len__(self) -> int:
        return self.rows


def digits() -> tuple[TensorDataset, TensorDataset]:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.from_numpy(pixels / 16).float(), torch.from_numpy(labels)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    train, test = order[:1400], order[1400:]
    return TensorDataset(x[train], y[train]), TensorDataset(x[test], y[test])


def loader(data: TensorDataset, batch_size: int = 100) -> DataLoader[Any]:
    return DataLoader(data, batch_size, sampler=InEpochOrder(len(data)))


class Classifier(pl.LightningModule):
    def __init__(self, units: int = 60, lr: float = 0.02, ordered: float = 0.0, **adam: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(64, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU())
        self.network.append(nn.Linear(units, 10))
        awn.adapt_(self.network, ordered=ordered)
        self.lr, self.adam = lr, adam

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor]) -> None:
        self.log("accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    test_step = validation_step

    def predict_step(self, batch: list[Tensor]) -> Tensor:
        return self(batch[0]).argmax(1)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr, **self.adam)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95),
        }


def trainer(callback: AdaptiveWidth | None = None, **options: Any) -> pl.Trainer:
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    callbacks = [callback or AdaptiveWidth(awn.Prior(weight_scale=1.0)), *options.pop("callbacks", [])]
    if not any(isinstance(each, ModelCheckpoint) for each in callbacks):
        quiet["enable_checkpointing"] = False
    return pl.Trainer(**{**quiet, "callbacks": callbacks, **options})


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(one: dict[str, Tensor], two: dict[str, Tensor]) -> None:
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name]), name


def test_a_run_learns_widths_and_the_task(tmp_path: Path) -> None:
    train, test = digits()
    model = Classifier()
    best = ModelCheckpoint(tmp_path, monitor="accuracy", mode="max", save_last=True)
    run = trainer(max_epochs=10, callbacks=[best])
    run.fit(model, loader(train), loader(test))
    assert set(awn.widths(model)) == {"network.0", "network.2"}
    assert all(units != 60 for units in awn.widths(model).values())
    for layer, units in awn.widths(model).items():
        assert run.callback_metrics[f"width/{layer}"] == units
    assert run.callback_metrics["prior/weights"] > 0
    assert run.validate(model, loader(test), verbose=False)[0]["accuracy"] > 0.93
    assert len(run.predict(model, loader(test))) == 4
    # The best checkpoint has widths of its own, which testing it brings the model to.
    saved = torch.load(best.best_model_path, weights_only=True)["state_dict"]
    awn.advanced.set_units_(model, {"network.0": 7}, optimizer=None)
    score = run.test(model, loader(test), ckpt_path="best", verbose=False)[0]["accuracy"]
    assert score == pytest.approx(best.best_model_score.item())
    assert awn.widths(model)["network.0"] == saved["network.0.width._extra_state"][0]
    assert_same(weights(model), saved)
    assert_same(weights(Classifier.load_from_checkpoint(best.best_model_path)), saved)


def test_a_resumed_run_equals_the_whole_one(tmp_path: Path) -> None:
    train, _ = digits()
    every_epoch = ModelCheckpoint(tmp_path, save_top_k=-1, filename="{epoch}")
    whole = Classifier()
    trainer(max_epochs=6, callbacks=[every_epoch]).fit(whole, loader(train))
    at_the_end = awn.widths(whole)
    resumed = Classifier()
    halfway = torch.load(tmp_path / "epoch=2.ckpt", weights_only=True)["state_dict"]
    for layer in at_the_end:
        units = halfway[f"{layer}.width._extra_state"][0].item()
        assert units not in (60, at_the_end[layer])  # it moved before, and after
    torch.manual_seed(99)
    run = trainer(max_epochs=6, callbacks=[ModelCheckpoint(tmp_path)])
    run.fit(resumed, loader(train), ckpt_path=tmp_path / "epoch=2.ckpt")
    assert_same(weights(resumed), weights(whole))


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import torch
torch.set_num_threads(1)
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from test_lightning import Classifier, digits, loader, trainer

class Kill(Callback):
    def on_train_batch_end(self, trainer, *_):
        if trainer.current_epoch == 1 and trainer.global_step % 14 == 5:
            os.kill(os.getpid(), signal.SIGKILL)

folder = Path({folder!r})
callbacks = [ModelCheckpoint(folder, filename="last", enable_version_counter=False), Kill()]
trainer(max_epochs=3, callbacks=callbacks).fit(Classifier(), loader(digits()[0]))
"""


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    code = KILLED.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=os.environ)
    assert child.returncode == -signal.SIGKILL, child.stderr[-2000:]
    train, _ = digits()
    whole, resumed = Classifier(), Classifier()
    trainer(max_epochs=3).fit(whole, loader(train))
    run = trainer(max_epochs=3, callbacks=[ModelCheckpoint(tmp_path)])
    run.fit(resumed, loader(train), ckpt_path=tmp_path / "last.ckpt")
    assert_same(weights(resumed), weights(whole))


# The gradient of a step

PRIOR = awn.Prior(weight_scale=0.5, width_mean=0.1, width_scale=0.1)
BUDGET = awn.Budget(max_units=50)


def steps_by_hand(
    batches: list[list[Tensor]],
    *,
    accumulate: int = 1,
    clip: float | None = None,
    kind: type[torch.optim.Optimizer] = torch.optim.Adam,
) -> nn.Module:
    """The plain loop that the callback must agree with."""
    model = Classifier()
    optimizer = kind(model.parameters(), lr=model.lr)  # type: ignore[call-arg]
    generator = torch.Generator().manual_seed(0)
    for start in range(0, len(batches), accumulate):
        nll = torch.stack([model.training_step(batch) for batch in batches[start : start + accumulate]]).mean()
        optimizer.zero_grad()
        awn.objective(nll, model, n_samples=400, prior=PRIOR, budget=BUDGET).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        awn.resize_(model, optimizer, generator=generator)
    return model


class Mixed(MixedPrecision):
    """The scaling of mixed precision, without its rounding, so that results can be compared."""

    def __init__(self) -> None:
        super().__init__("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=256.0))

    def autocast_context_manager(self) -> torch.autocast:
        return torch.autocast("cpu", enabled=False)


@pytest.mark.parametrize(
    ("options", "adam", "by_hand"),
    [
        ({}, {}, {}),
        ({"accumulate_grad_batches": 2}, {}, {"accumulate": 2}),
        ({"gradient_clip_val": 0.1}, {}, {"clip": 0.1}),
        ({"plugins": "mixed", "gradient_clip_val": 0.1}, {}, {"clip": 0.1}),
        ({"plugins": "mixed"}, {"fused": True}, {}),
    ],
    ids=["plain", "accumulated", "clipped", "scaled and clipped", "scaled, unscaled by the fused step"],
)
def test_the_prior_counts_once_a_step(options: dict[str, Any], adam: dict[str, Any], by_hand: dict[str, Any]) -> None:
    train, _ = digits()
    batches = [list(train[100 * i : 100 * i + 100]) for i in range(4)]
    rows = TensorDataset(*train[:400])
    model = Classifier(**adam)
    if options.get("plugins") == "mixed":
        options = {**options, "plugins": [Mixed()]}
    callback = AdaptiveWidth(PRIOR, BUDGET)
    trainer(callback=callback, max_epochs=1, **options).fit(model, DataLoader(rows, batch_size=100))
    expected = steps_by_hand(batches, **by_hand)
    assert awn.widths(model) == awn.widths(expected)
    for name, tensor in weights(expected).items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


class Ordered(Classifier):
    def training_step(self, batch: list[Tensor]) -> Tensor:
        return awn.advanced.ordered_loss(self, lambda: super(Ordered, self).training_step(batch))


@pytest.mark.parametrize("kind", [Classifier, Ordered], ids=["prefix alone", "whole and prefix"])
@pytest.mark.parametrize("every", [1, 3])
def test_steps_of_an_ordered_model_use_the_drawn_prefix(kind: type[Classifier], every: int) -> None:
    train, _ = digits()
    rows = TensorDataset(*train[:1000])
    model, expected = kind(ordered=0.6), Classifier(ordered=0.6)
    callback = AdaptiveWidth(PRIOR, BUDGET, resize_every=every)
    trainer(callback=callback, max_epochs=1).fit(model, DataLoader(rows, batch_size=100))
    optimizer = torch.optim.Adam(expected.parameters(), lr=expected.lr)
    generator, seen = torch.Generator().manual_seed(0), 0
    for step in range(10):
        batch = list(train[100 * step : 100 * step + 100])
        cut = has_prefix(find_groups(expected))
        seen += cut
        use_prefix_(expected, True)
        nll = expected.training_step(batch)
        use_prefix_(expected, False)
        if kind is Ordered and cut:
            nll = (nll + expected.training_step(batch)) / 2
        optimizer.zero_grad()
        awn.objective(nll, expected, n_samples=1000, prior=PRIOR, budget=BUDGET).backward()
        optimizer.step()
        if (step + 1) % every == 0:
            awn.resize_(expected, optimizer, generator=generator)
        else:
            draw_prefix_(find_groups(expected))
    assert 2 < seen < 9
    assert awn.widths(model) == awn.widths(expected)
    for name, tensor in weights(expected).items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


class Manual(Classifier):
    """Two optimizers that step by themselves: one for the weights, one for the widths."""

    automatic_optimization = False

    def training_step(self, batch: list[Tensor]) -> None:  # type: ignore[override]
        optimizers: Any = self.optimizers()
        loss = F.cross_entropy(self(batch[0]), batch[1])
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()

    def configure_optimizers(self) -> Any:
        learned = {group.width.log_nu for group in awn.advanced.find_groups(self)}
        others = [parameter for parameter in self.parameters() if parameter not in learned]
        return torch.optim.SGD(others, lr=self.lr), torch.optim.SGD(list(learned), lr=self.lr)


def test_several_optimizers_of_manual_optimization() -> None:
    """Each parameter has one optimizer, so the result is that of one for all."""
    train, _ = digits()
    rows = DataLoader(TensorDataset(*train[:400]), batch_size=100)
    model = Manual()
    trainer(callback=AdaptiveWidth(PRIOR, BUDGET), max_epochs=1).fit(model, rows)
    expected = steps_by_hand([list(train[100 * i : 100 * i + 100]) for i in range(4)], kind=torch.optim.SGD)
    assert awn.widths(model) == awn.widths(expected)
    for name, tensor in weights(expected).items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


class ItsOwnNetwork(pl.LightningModule):
    """A LightningModule that is the adapted model itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 40), nn.Linear(40, 10)
        awn.adapt_(self, groups=[("first", "second")])

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return F.cross_entropy(self.second(self.first(batch[0]).relu()), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(awn.param_groups(self, lr=0.05))


def test_the_module_may_be_the_adapted_model_and_an_annealed_prior_shrinks_it() -> None:
    train, _ = digits()
    model = ItsOwnNetwork()
    tightening = awn.Prior(width_mean=1.0, width_scale=awn.Anneal(1.0, 0.001, begin=2, finish=6))
    callback = AdaptiveWidth(tightening, clock="steps")
    trainer(callback=callback, max_epochs=2).fit(model, loader(train))
    assert awn.widths(model)["first"] < 20


def test_the_run_of_units_drawn_follows_the_seed() -> None:
    train, _ = digits()
    results = []
    for seed in (0, 0, 1):
        model = Classifier(units=31, lr=0.05)
        before = awn.widths(model)
        torch.manual_seed(len(results))  # the global generator has no say
        prior = awn.Prior(width_mean=1e-3, width_scale=1e-3)  # makes layers grow
        trainer(callback=AdaptiveWidth(prior, seed=seed), max_epochs=2).fit(model, loader(train))
        assert any(awn.widths(model)[layer] > units for layer, units in before.items())
        results.append(weights(model))
    assert_same(results[0], results[1])
    assert any(not torch.equal(tensor, results[2][name]) for name, tensor in results[0].items())


def test_widths_are_looked_at_every_n_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def looking(*args: Any, **options: Any) -> Any:
        looked.append(run.global_step)
        return awn.resize_(*args, **options)

    monkeypatch.setattr("awn.integrations.lightning.resize_", looking)
    run = trainer(callback=AdaptiveWidth(resize_every=3), max_steps=8)
    run.fit(Classifier(), loader(digits()[0]))
    assert looked == [3, 6]
    with pytest.raises(ArgumentError, match="resize_every"):
        AdaptiveWidth(resize_every=0)


# What is refused, or warned of


class Twice(Classifier):
    """Adds the prior, as one does without the callback."""

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return awn.objective(super().training_step(batch), self, 300)


def test_a_prior_that_would_count_twice_is_warned_of_once() -> None:
    data = loader(digits()[0])
    run = trainer(max_steps=3)
    with pytest.warns(UserWarning, match=r"so it counts twice\. Return the data loss alone") as caught:
        run.fit(Twice(), data)
    assert len([one for one in caught if "counts twice" in str(one.message)]) == 1
    no_prior = AdaptiveWidth(awn.Prior(weight_scale=None))
    trainer(no_prior, max_steps=1).fit(Twice(), data)  # an error, were it warned of


def test_a_module_without_learned_widths_is_refused() -> None:
    model = Classifier()
    model.network = nn.Sequential(nn.Linear(64, 10))
    with pytest.raises(ArgumentError, match="no layer with a learned width"):
        trainer(max_epochs=1).fit(model, loader(digits()[0]))


def test_strategies_that_spread_a_model_are_refused() -> None:
    """DDP is not among them; test_distributed.py trains with it."""
    run = trainer(strategy=ModelParallelStrategy(), devices=2)
    with pytest.raises(ArgumentError, match=r'ModelParallelStrategy.*strategy="ddp".*devices=1'):
        AdaptiveWidth().setup(run, Classifier(), "fit")


def test_lightnings_own_averages_are_refused() -> None:
    run = trainer(max_epochs=1, callbacks=[StochasticWeightAveraging(0.01)])
    with pytest.raises(ArgumentError, match="follow_widths_"):
        run.fit(Classifier(), loader(digits()[0]))


def test_an_optimizer_from_before_the_checkpoint_is_refused(tmp_path: Path) -> None:
    train, _ = digits()
    save = ModelCheckpoint(tmp_path, filename="last")
    trainer(max_epochs=1, callbacks=[save]).fit(Classifier(units=100), loader(train))

    class Early(Classifier):
        def __init__(self) -> None:
            super().__init__(units=20)
            self.early = torch.optim.Adam(self.parameters(), lr=0.02)

        def configure_optimizers(self) -> Any:
            return self.early

    run = trainer(max_epochs=2, callbacks=[ModelCheckpoint(tmp_path)])
    with pytest.raises(awn.AwnError, match="does not hold"):
        run.fit(Early(), loader(train), ckpt_path=save.best_model_path)


def test_data_of_unknown_size_needs_the_number() -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            train, _ = digits()
            yield from train

    with pytest.raises(ArgumentError, match="n_samples"):
        count_samples(DataLoader(Endless()))
    with pytest.raises(ArgumentError, match="n_samples"):
        trainer(max_epochs=1).fit(Classifier(), DataLoader(Endless(), batch_size=100))
    callback = AdaptiveWidth(n_samples=1400)
    trainer(callback=callback, max_epochs=1).fit(Classifier(), DataLoader(Endless(), batch_size=100))


def test_a_wrong_clock_is_refused() -> None:
    with pytest.raises(ArgumentError, match="epochs, steps"):
        AdaptiveWidth(clock="days")  # type: ignore[arg-type]


# Shrink


def shrinking(**options: Any) -> AdaptiveWidth:
    inputs = digits()[0].tensors[0]
    shrink = Shrink(0.02, start=3, patience=2, fraction=0.4, repair=inputs)
    return AdaptiveWidth(
        awn.Prior(weight_scale=1.0), shrink=shrink, **{"monitor": "accuracy", "mode": "max", **options}
    )


def test_a_run_shrinks_while_the_accuracy_holds(tmp_path: Path) -> None:
    train, test = digits()
    model, callback = Classifier(), shrinking()
    run = trainer(callback, max_epochs=30)
    run.fit(model, loader(train), loader(test))
    assert callback.shrink is not None
    score = run.validate(model, loader(test), verbose=False)[0]["accuracy"]
    assert score == pytest.approx(callback.shrink.kept_score)
    assert score >= callback.shrink.best_score - 0.02 - 1e-9
    assert sum(awn.widths(model).values()) < 60


def test_a_resumed_run_shrinks_as_the_whole_one(tmp_path: Path) -> None:
    train, test = digits()
    whole, resumed = Classifier(), Classifier()
    every_epoch = ModelCheckpoint(tmp_path, save_top_k=-1, filename="{epoch}")
    trainer(shrinking(), max_epochs=9, callbacks=[every_epoch]).fit(whole, loader(train), loader(test))
    run = trainer(shrinking(), max_epochs=9, callbacks=[ModelCheckpoint(tmp_path)])
    run.fit(resumed, loader(train), loader(test), ckpt_path=tmp_path / "epoch=4.ckpt")
    assert_same(weights(resumed), weights(whole))


def test_a_metric_that_is_not_logged_and_a_wrong_mode_are_refused() -> None:
    train, test = digits()
    with pytest.raises(ArgumentError, match="logs only 'accuracy'"):
        trainer(shrinking(monitor="loss"), max_epochs=1).fit(Classifier(), loader(train), loader(test))
    with pytest.raises(ArgumentError, match="mode must be"):
        shrinking(mode="best")
