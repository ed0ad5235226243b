"""Lightning: a callback that makes a Trainer learn widths."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from awn.basics.checks import check_units
from awn.basics.extra import needs_extra
from awn.core.groups import require_groups
from awn.core.ordered import draw_prefix_, use_prefix_
from awn.core.resize import resize_
from awn.core.summary import widths
from awn.errors import ArgumentError
from awn.loss.budget import Budget
from awn.loss.prior import Prior, holds_weight_prior
from awn.loss.prior_gradient import Clock, Scaler, add_prior_gradient_, check_clock, count_samples
from awn.training.shrink import Mode, Shrink, as_score, check_mode

with needs_extra("awn.lightning needs Lightning", "lightning", "lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import StochasticWeightAveraging, WeightAveraging
    from lightning.pytorch.plugins import MixedPrecision
    from lightning.pytorch.strategies import DDPStrategy, ParallelStrategy

_DEFAULT_PRIOR = Prior()


class AdaptiveWidth(Callback):
    """Adds the gradient of the prior, resizes the layers after every optimizer step, and logs their widths.

    Adapt the model in the LightningModule's `__init__`, so that `configure_optimizers` sees its learned widths:

    >>> import awn, lightning.pytorch as pl
    >>> from torch.nn.parallel import DistributedDataParallel
    >>> class Classifier(pl.LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.network = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    ...         awn.adapt_(self.network)
    ...     def training_step(self, batch):
    ...         return nn.functional.cross_entropy(self.network(batch[0]), batch[1])
    ...     def configure_optimizers(self):
    ...         return torch.optim.Adam(awn.param_groups(self, lr=0.01))
    >>> callback = AdaptiveWidth(prior=awn.Prior(weight_scale=1.0))   # then: pl.Trainer(callbacks=[callback])

    `training_step` returns the mean data loss over the batch, without `awn.objective`: the prior would otherwise count
    twice. The gradient of the prior and the budget is added right before the optimizer's step, so gradients may be
    accumulated, scaled and clipped as usual. `n_samples` is the size of the training set, by default that of the data
    loader. `clock` is the unit of time of an annealed prior. `seed` initialises the generator of new units, whose state
    is part of checkpoints. `resize_every` is the number of steps between two resizes; each resize waits for an
    accelerator.

    With `Trainer(strategy="ddp")` all ranks have the same widths and units. The gradient of the prior is added to the
    mean gradient of the ranks, so it counts once. `n_samples` is the size of the whole training set.

    A model made with `ordered=…` trains a prefix of its units alone in that share of the steps. If `training_step`
    returns `awn.advanced.ordered_loss(self, closure)`, these steps train the whole network as well, which is better.

    `shrink`, an `awn.training.Shrink(…, repair=inputs)`, removes units after each validation, as long as the logged
    metric `monitor` holds; `mode` says whether it is better when lower or higher. It stops the Trainer when no smaller
    network is good enough, and leaves the smallest that was. One process only.
    """

    def __init__(
        self,
        prior: Prior = _DEFAULT_PRIOR,
        budget: Budget | None = None,
        *,
        n_samples: int | None = None,
        clock: Clock = "epochs",
        resize_every: int = 1,
        seed: int = 0,
        shrink: Shrink | None = None,
        monitor: str = "val_loss",
        mode: Mode = "min",
    ) -> None:
        super().__init__()
        check_mode(mode)
        check_clock(clock)
        check_units("resize_every", resize_every)
        self.prior = prior
        self.budget = budget
        self.n_samples = n_samples
        self.clock = clock
        self.resize_every = resize_every
        self.seed = seed
        self.shrink = shrink
        self.monitor = monitor
        self.mode: Mode = mode
        self._samples = 0
        self._steps = 0
        self._looked = False
        self._terms: dict[str, torch.Tensor] | None = None
        self._generator: torch.Generator | None = None
        self._resumed_from: torch.Tensor | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Raise for strategies and copies of the model that cannot follow a change of width."""
        if stage != "fit":
            return
        if isinstance(trainer.strategy, ParallelStrategy) and not isinstance(trainer.strategy, DDPStrategy):
            raise ArgumentError(
                f"AdaptiveWidth does not work with {type(trainer.strategy).__name__}: a model that is sharded over "
                'processes cannot change its widths. Use Trainer(strategy="ddp"), or one device: Trainer(devices=1).'
            )
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, StochasticWeightAveraging | WeightAveraging):
                raise ArgumentError(
                    f"{type(callback).__name__} keeps a copy of the model that does not follow its widths. Use "
                    "torch.optim.swa_utils.AveragedModel, with awn.advanced.follow_widths_ before each update."
                )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check that the model is adaptive, once it is built and on its device."""
        require_groups(pl_module)
        parallel = trainer.model
        if (
            isinstance(parallel, DistributedDataParallel)
            and parallel.static_graph
            and not pl_module.automatic_optimization
        ):
            raise ArgumentError(
                "with manual optimization Lightning prepares only the first step of a static graph, but a change of "
                "width makes a new graph. Remove static_graph=True from the strategy."
            )
        self._generator = torch.Generator(pl_module.device).manual_seed(self.seed)
        if self._resumed_from is not None:
            self._generator.set_state(self._resumed_from)
            self._resumed_from = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Determine the number of samples, and of the steps of a resumed run."""
        self._samples = self.n_samples or count_samples(trainer.train_dataloader)
        self._steps = trainer.global_step
        self._looked = False
        if self.shrink is not None:
            if trainer.world_size > 1:
                raise ArgumentError("Shrink works in one process only: the others would not follow its cuts.")
            self.shrink.resume_(pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let `shrink` cut the model, and stop the Trainer when it is done."""
        if self.shrink is None or trainer.sanity_checking or not trainer.optimizers:
            return
        if self.monitor not in trainer.callback_metrics:
            known = ", ".join(map(repr, sorted(trainer.callback_metrics)))
            raise ArgumentError(
                f"Shrink needs the metric monitor={self.monitor!r}, but validation_step logs only {known}.",
                argument="monitor",
            )
        score = as_score(trainer.callback_metrics[self.monitor].item(), self.mode)
        if self.shrink.step_(pl_module, trainer.optimizers, score):
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the smallest network that was good enough."""
        if self.shrink is not None:
            self.shrink.restore_(pl_module, trainer.optimizers)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Use the prefix that is drawn for this step, if the model is trained in order."""
        use_prefix_(pl_module, True)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Use the whole network again."""
        use_prefix_(pl_module, False)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        """Warn if the first loss already includes the prior."""
        if not self._looked and self.prior.weight_scale is not None and holds_weight_prior(loss):
            warnings.warn(
                "the loss of training_step includes the prior of awn.objective, and AdaptiveWidth adds it again, so it "
                "counts twice. Return the data loss alone, such as F.cross_entropy(…).",
                stacklevel=2,
            )
        self._looked = True

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Add the gradient of the prior and the budget; Lightning clips afterwards."""
        self._terms = add_prior_gradient_(
            pl_module,
            optimizer,
            n_samples=self._samples,
            prior=self.prior,
            budget=self.budget,
            time=trainer.current_epoch if self.clock == "epochs" else trainer.global_step,
            scaler=_scaler(trainer, optimizer),
        )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Resize and log, if the batch ended in a step."""
        use_prefix_(pl_module, False)
        if trainer.global_step == self._steps:
            return
        # Several optimizers may step at once, and so skip a multiple.
        due = trainer.global_step // self.resize_every > self._steps // self.resize_every
        self._steps = trainer.global_step
        if due:
            assert trainer.model is not None  # the module itself, or the DistributedDataParallel that it is trained in
            resize_(trainer.model, trainer.optimizers, generator=self._generator)
        else:
            draw_prefix_(require_groups(pl_module))
        pl_module.log_dict({f"width/{layer}": float(units) for layer, units in widths(pl_module).items()})
        if self._terms is not None:
            terms = self._terms
            pl_module.log_dict(
                {"prior/weights": terms["weights"], "prior/width": terms["width"], "budget": terms["budget"]}
            )

    def state_dict(self) -> dict[str, Any]:
        """The random state of new units, and the state of `shrink`."""
        state: dict[str, Any] = {} if self._generator is None else {"generator": self._generator.get_state()}
        return state if self.shrink is None else {**state, "shrink": self.shrink.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the random state of new units, and the state of `shrink`."""
        self._resumed_from = state_dict.get("generator")
        if self.shrink is not None and "shrink" in state_dict:
            self.shrink.load_state_dict(state_dict["shrink"])


def _scaler(trainer: Trainer, optimizer: Optimizer) -> Scaler | None:
    """The gradient scaler, if gradients are still scaled: fused optimizers unscale them in their step."""
    if isinstance(trainer.precision_plugin, MixedPrecision) and getattr(optimizer, "_step_supports_amp_scaling", False):
        return trainer.precision_plugin.scaler
    return None
