"""A callback that makes Hugging Face's Trainer learn widths."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.training_args import ParallelMode

from awn.basics.checks import check_units
from awn.core.groups import require_groups
from awn.core.ordered import draw_prefix_, use_prefix_
from awn.core.resize import resize_
from awn.core.summary import widths
from awn.errors import ArgumentError
from awn.loss.budget import Budget
from awn.loss.prior import Prior
from awn.loss.prior_gradient import Clock, add_prior_gradient_, check_clock, count_samples
from awn.training.shrink import Mode, Shrink, as_score, check_mode

_DEFAULT_PRIOR = Prior()


class AdaptiveWidthCallback(TrainerCallback):
    """Adds the gradient of the prior, resizes the layers after every optimizer step, and logs their widths.

    >>> import awn
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2))
    >>> _ = awn.adapt_(model, include="*.c_fc")        # without include, attention heads as well
    >>> awn.widths(model)
    {'transformer.h.0.mlp.c_fc': 64, 'transformer.h.1.mlp.c_fc': 64}
    >>> callback = AdaptiveWidthCallback(awn.Prior(weight_scale=1.0))    # then: Trainer(model, callbacks=[callback], …)

    The Trainer logs the model's own loss. The gradient of the prior and the budget is set before the first batch of a
    step, and the gradients of the batches are added to it, so they may be accumulated, scaled and clipped as usual.
    `n_samples` is the number of samples over which the loss is a mean: by default the rows of the training set; for a
    language model, pass the number of tokens. `clock` is the unit of time of an annealed prior. `resize_every` is the
    number of steps between two resizes; each resize waits for an accelerator.

    A model made with `ordered=…` trains a prefix of its units alone in that share of the steps. A Trainer whose
    `compute_loss` uses `awn.advanced.ordered_loss` trains the whole network as well in these steps, which is better.

    `shrink`, an `awn.training.Shrink(…, repair=batches)`, removes units after each evaluation, as long as the metric
    `monitor` holds; `mode` says whether it is better when lower or higher. It stops the Trainer when no smaller network
    is good enough, and leaves the smallest that was. Its state is not part of the Trainer's checkpoints, which hold no
    tensors of callbacks: a resumed run measures the score of the network it finds, and cuts on from there.
    """

    def __init__(
        self,
        prior: Prior = _DEFAULT_PRIOR,
        budget: Budget | None = None,
        *,
        n_samples: int | None = None,
        clock: Clock = "epochs",
        resize_every: int = 1,
        shrink: Shrink | None = None,
        monitor: str = "eval_loss",
        mode: Mode = "min",
    ) -> None:
        check_mode(mode)
        check_clock(clock)
        check_units("resize_every", resize_every)
        self.prior = prior
        self.budget = budget
        self.n_samples = n_samples
        self.clock = clock
        self.resize_every = resize_every
        self.shrink = shrink
        self.monitor = monitor
        self.mode: Mode = mode
        self._samples = 0
        self._terms: dict[str, Tensor] | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Check that the model is adaptive and on one device, and determine the number of samples."""
        if args.parallel_mode != ParallelMode.NOT_PARALLEL or args.deepspeed or args.fsdp:
            raise ArgumentError(
                "AdaptiveWidthCallback trains on one device: with several, every process would draw its own new units. "
                "Start one process, and let it see one device (CUDA_VISIBLE_DEVICES=0)."
            )
        require_groups(kwargs["model"])
        use_prefix_(kwargs["model"], False)  # an earlier training may have stopped in the middle of a step
        self._samples = self.n_samples or count_samples(kwargs["train_dataloader"])

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Add the gradient of the prior and the budget, while gradients are still zero; use the prefix of the step."""
        optimizer = kwargs["optimizer"]
        use_prefix_(kwargs["model"], True)
        self._terms = add_prior_gradient_(
            kwargs["model"],
            optimizer,
            n_samples=self._samples,
            prior=self.prior,
            budget=self.budget,
            time=state.epoch if self.clock == "epochs" else state.global_step,
            scaler=optimizer.scaler,  # of mixed precision: the Trainer unscales before it clips
        )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Resize, and use the whole network again."""
        use_prefix_(kwargs["model"], False)
        if state.global_step % self.resize_every == 0:
            resize_(kwargs["model"], kwargs["optimizer"])
        else:
            draw_prefix_(require_groups(kwargs["model"]))

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Let `shrink` cut the model, and stop the Trainer when it is done."""
        if self.shrink is None or kwargs.get("optimizer") is None:
            return
        if self.monitor not in (metrics or {}):
            known = ", ".join(map(repr, sorted(metrics or {})))
            raise ArgumentError(
                f"Shrink needs the metric monitor={self.monitor!r}, but the evaluation has only {known}.",
                argument="monitor",
            )
        score = as_score((metrics or {})[self.monitor], self.mode)
        if self.shrink.step_(kwargs["model"], kwargs["optimizer"], score):
            control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the smallest network that was good enough."""
        if self.shrink is not None:
            self.shrink.restore_(kwargs["model"], kwargs["optimizer"])

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the widths and the terms of the prior to the logs."""
        more = _as_logs(kwargs["model"], self._terms)
        state.log_history[-1].update(more)
        if logs is not None:
            logs.update(more)


def _as_logs(model: nn.Module, terms: dict[str, Tensor] | None) -> dict[str, float]:
    logs = {f"width/{layer}": float(units) for layer, units in widths(model).items()}
    if terms is not None:
        named = {"prior/weights": terms["weights"], "prior/width": terms["width"], "budget": terms["budget"]}
        logs.update({name: term.item() for name, term in named.items()})
    return logs
