"""Hugging Face: folders that from_pretrained reads, and widths that the Trainer learns."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    RobertaConfig,
    RobertaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

import awn
from awn.core.ordered import use_prefix_
from awn.core.state import take_widths_
from awn.errors import ArgumentError, CheckpointError
from awn.integrations.huggingface import AdaptiveWidthCallback, from_pretrained, save_pretrained
from awn.training import Shrink

TOKENS = torch.tensor([[5, 9, 2, 7, 1, 3], [8, 8, 4, 2, 6, 0]])


def gpt2(**options: Any) -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=32, n_layer=2, n_head=2, **options))


def bert() -> BertForMaskedLM:
    config = BertConfig(
        vocab_size=256, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    return BertForMaskedLM(config)


def vit() -> ViTForImageClassification:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return ViTForImageClassification(ViTConfig(image_size=16, patch_size=8, num_labels=3, **sizes))


def t5(kind: str) -> T5ForConditionalGeneration:
    config = T5Config(
        vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, feed_forward_proj=kind, pad_token_id=0
    )
    config.decoder_start_token_id = 0
    return T5ForConditionalGeneration(config)


def llama() -> LlamaForCausalLM:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, max_position_embeddings=64, **sizes))


# How a model is made, what it is called with, and the field of its config that holds the width.
MODELS: dict[str, tuple[Callable[[], PreTrainedModel], dict[str, Tensor], str]] = {
    "GPT-2": (gpt2, {"input_ids": TOKENS}, "n_inner"),
    "BERT": (bert, {"input_ids": TOKENS}, "intermediate_size"),
    "ViT": (vit, {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 16 * 16).view(2, 3, 16, 16)}, "intermediate_size"),
    "T5": (lambda: t5("relu"), {"input_ids": TOKENS, "decoder_input_ids": TOKENS[:, :4]}, "d_ff"),
    "T5 gated": (lambda: t5("gated-gelu"), {"input_ids": TOKENS, "decoder_input_ids": TOKENS[:, :4]}, "d_ff"),
    "Llama": (llama, {"input_ids": TOKENS}, "intermediate_size"),
}


# The first layers of feed-forward parts, in all of these models.
FEED_FORWARD = ["*.c_fc", "*.intermediate.dense", "*.fc1", "*.wi", "*.wi_0", "*.gate_proj"]


def with_other_widths(model: PreTrainedModel, heads: bool = False) -> PreTrainedModel:
    """The model made adaptive, its layers at 41, 48, 55, … units, and its heads, if asked for, at 3 and more."""
    here = [name for name, _ in model.named_modules()]
    patterns = [pattern for pattern in FEED_FORWARD if any(fnmatch(name, pattern) for name in here)]
    awn.adapt_(model, new_units="rescaled", include=None if heads else patterns)
    if heads:
        few = {name: units for name, units in awn.widths(model).items() if units == 2}
        assert few
        awn.advanced.set_units_(model, {name: 3 + i for i, name in enumerate(few)}, optimizer=None)
        return model.eval()
    awn.advanced.set_units_(model, {name: 41 + 7 * i for i, name in enumerate(awn.widths(model))}, optimizer=None)
    return model.eval()


def logits(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return model(**inputs).logits


@pytest.mark.parametrize("finalized", [False, True], ids=["adaptive", "finalized"])
@pytest.mark.parametrize("name", MODELS)
def test_a_padded_folder_is_read_by_the_stock_class(name: str, finalized: bool, tmp_path: Path) -> None:
    make, inputs, field = MODELS[name]
    model = with_other_widths(make())
    widths = list(awn.widths(model).values())
    saved = awn.finalize(model) if finalized else model
    save_pretrained(saved, tmp_path, widths="padded")  # type: ignore[arg-type]
    stock = type(make()).from_pretrained(tmp_path).eval()
    assert getattr(stock.config, field) == max(widths) == 41 + 7 * (len(widths) - 1)
    torch.testing.assert_close(logits(stock, inputs), logits(model, inputs))
    assert getattr(model.config, field) != max(widths)  # the model itself was left alone


@pytest.mark.parametrize("heads", [False, True], ids=["feed-forward", "heads"])
@pytest.mark.parametrize("finalized", [False, True], ids=["adaptive", "finalized"])
@pytest.mark.parametrize("name", MODELS)
def test_an_exact_folder_gives_a_model_of_exact_shapes(name: str, finalized: bool, heads: bool, tmp_path: Path) -> None:
    make, inputs, _ = MODELS[name]
    model = with_other_widths(make(), heads)
    plain = awn.finalize(model)
    save_pretrained(plain if finalized else model, tmp_path, widths="exact")  # type: ignore[arg-type]
    loaded = from_pretrained(tmp_path).eval()
    assert type(loaded) is type(make())
    shapes = {key: tensor.shape for key, tensor in loaded.state_dict().items()}
    assert shapes == {key: tensor.shape for key, tensor in plain.state_dict().items()}
    assert torch.equal(logits(loaded, inputs), logits(plain, inputs))
    # What was loaded may be saved anew, adapted again and padded, but for heads.
    awn.adapt_(loaded, preserve=True)
    if heads:
        with pytest.raises(ArgumentError, match="Save the exact widths"):
            save_pretrained(loaded, tmp_path / "again")
        return
    save_pretrained(loaded, tmp_path / "again")
    torch.testing.assert_close(
        logits(type(make()).from_pretrained(tmp_path / "again").eval(), inputs),
        logits(plain, inputs),
        rtol=1e-4,
        atol=1e-5,
    )


def test_the_auto_classes_read_a_padded_folder(tmp_path: Path) -> None:
    model = with_other_widths(gpt2())
    save_pretrained(model, tmp_path)
    stock = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits(stock, {"input_ids": TOKENS}), logits(model, {"input_ids": TOKENS}))
    assert AutoModel.from_pretrained(tmp_path).config.n_inner == 48


def test_options_of_from_pretrained_go_through(tmp_path: Path) -> None:
    save_pretrained(with_other_widths(gpt2()), tmp_path, widths="exact")
    assert from_pretrained(tmp_path, dtype=torch.float64).dtype == torch.float64
    assert from_pretrained(tmp_path, GPT2LMHeadModel).transformer.h[0].mlp.c_fc.nf == 41


def test_an_ordinary_folder_loads_too(tmp_path: Path) -> None:
    model = gpt2().eval()
    model.save_pretrained(tmp_path)
    assert torch.equal(
        logits(from_pretrained(tmp_path).eval(), {"input_ids": TOKENS}), logits(model, {"input_ids": TOKENS})
    )


def test_what_cannot_be_saved_is_refused_with_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="save_pretrained takes a model of transformers"):
        save_pretrained(nn.Linear(2, 2), tmp_path / "model")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="padded, exact"):
        save_pretrained(gpt2(), tmp_path / "model", widths="short")  # type: ignore[arg-type]
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    head = RobertaForSequenceClassification(RobertaConfig(vocab_size=64, **sizes))
    awn.adapt_(head, groups=[("classifier.dense", "classifier.out_proj")])
    awn.advanced.set_units_(head, {"classifier.dense": 20}, optimizer=None)
    with pytest.raises(ArgumentError, match=r"classifier\.dense.*Nothing was written"):
        save_pretrained(head, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    save_pretrained(head, tmp_path / "model", widths="exact")
    assert from_pretrained(tmp_path / "model").classifier.dense.out_features == 20


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no folder"):
        from_pretrained(tmp_path / "nowhere")
    save_pretrained(with_other_widths(bert()), tmp_path, widths="exact")
    with pytest.raises(CheckpointError, match="model_class that was saved"):
        from_pretrained(tmp_path, BertModel)


# The Trainer


def text() -> str:
    """Captions of Multi30k where they are, or a few sentences."""
    folder = Path(os.environ.get("AWN_DATA", "")) / "multi30k"
    if "AWN_DATA" in os.environ and (folder / "val.en.gz").is_file():
        with gzip.open(folder / "val.en.gz", "rt", encoding="utf-8") as file:
            return file.read(20_000)
    return "A man in a blue shirt stands on a ladder and cleans a window. Two dogs run over a green field. " * 200


class Bytes(Dataset[dict[str, Tensor]]):
    """Rows of 32 bytes of a text, each its own target."""

    def __init__(self, rows: int) -> None:
        self.rows = torch.tensor(list(text().encode()[: rows * 32]), dtype=torch.long).view(rows, 32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


PRIOR = awn.Prior(weight_scale=0.3, width_mean=0.1, width_scale=0.05)


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    chosen: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "learning_rate": 0.02,
        "max_steps": 8,
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "save_strategy": "no",
        "lr_scheduler_type": "linear",
    }
    return TrainingArguments(output_dir=str(folder), **{**chosen, **options})


def train(model: PreTrainedModel, folder: Path, rows: int = 64, resume: Any = None, **options: Any) -> Trainer:
    callback = AdaptiveWidthCallback(options.pop("prior", PRIOR), options.pop("budget", None), **options.pop("own", {}))
    trainer = Trainer(model, arguments(folder, **options), train_dataset=Bytes(rows), callbacks=[callback])
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def fresh(make: Callable[[], PreTrainedModel], **options: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    model = make()
    first = "*.c_fc" if isinstance(model, GPT2LMHeadModel) else "*.intermediate.dense"
    awn.adapt_(model, include=first, **options)
    return model


def assert_same(one: nn.Module, two: nn.Module) -> None:
    state = two.state_dict()
    assert state.keys() == one.state_dict().keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, state[name]), name


@pytest.mark.parametrize(
    ("make", "ordered"), [(gpt2, 0.0), (bert, 0.0), (gpt2, 0.6)], ids=["GPT-2", "BERT", "GPT-2, ordered"]
)
def test_a_resumed_run_equals_the_whole_one(
    make: Callable[[], PreTrainedModel], ordered: float, tmp_path: Path
) -> None:
    options = {"save_strategy": "steps", "save_steps": 4, "max_steps": 10}
    whole = fresh(make, ordered=ordered)
    before = awn.widths(whole)
    run = train(whole, tmp_path, **options)
    assert all(units != before[layer] for layer, units in awn.widths(whole).items())
    losses = [row["loss"] for row in run.state.log_history if "loss" in row]
    assert losses[-1] < losses[0]
    checkpoint = tmp_path / "checkpoint-4"
    halfway = fresh(make, ordered=ordered)
    resumed = train(halfway, tmp_path, resume=str(checkpoint), **options)
    logged = [row for row in resumed.state.log_history if "loss" in row]
    assert {f"width/{layer}" for layer in before} <= logged[-1].keys()
    assert awn.widths(halfway) != {layer: logged[3][f"width/{layer}"] for layer in before}  # they moved afterwards
    assert_same(halfway, whole)


def no_dropout() -> GPT2LMHeadModel:
    return gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def steps_by_hand(batches: list[dict[str, Tensor]], accumulate: int, clip: float, ordered: float) -> nn.Module:
    """The plain loop that the callback must agree with."""
    model = fresh(no_dropout, ordered=ordered).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for start in range(0, len(batches), accumulate):
        use_prefix_(model, True)
        # Each loss is a sum over the batch's tokens, divided by the number of those of all batches of the step.
        loss = torch.stack([model(**batch).loss for batch in batches[start : start + accumulate]]).sum()
        optimizer.zero_grad()
        awn.objective(loss, model, n_samples=64, prior=PRIOR, budget=awn.Budget(max_units=100)).backward()
        use_prefix_(model, False)
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        awn.resize_(model, optimizer)
    return model


@pytest.mark.parametrize(
    ("accumulate", "clip", "ordered"),
    [(1, 1.0, 0.0), (2, 1.0, 0.0), (1, 0.2, 0.0), (1, 1.0, 0.7), (2, 1.0, 0.7)],
    ids=["", "accumulated", "clipped", "ordered", "ordered and accumulated"],
)
def test_the_prior_counts_once_a_step(accumulate: int, clip: float, ordered: float, tmp_path: Path) -> None:
    model = fresh(no_dropout, ordered=ordered)
    batches = []
    watching = model.register_forward_pre_hook(lambda _, args, inputs: batches.append(dict(inputs)), with_kwargs=True)
    train(
        model,
        tmp_path,
        max_steps=4,
        gradient_accumulation_steps=accumulate,
        max_grad_norm=clip,
        lr_scheduler_type="constant",
        optim="sgd",  # Adam would blow up the rounding of gradients that are zero, such as the keys' biases have
        learning_rate=0.5,
        budget=awn.Budget(max_units=100),
    )
    watching.remove()
    assert len(batches) == 4 * accumulate
    expected = steps_by_hand(batches, accumulate, clip, ordered)
    assert awn.widths(model) == awn.widths(expected) != awn.widths(fresh(no_dropout))
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


def test_the_best_checkpoint_is_restored_with_its_widths(tmp_path: Path) -> None:
    model = fresh(gpt2)
    trainer = Trainer(
        model,
        arguments(
            tmp_path,
            max_steps=9,
            save_strategy="steps",
            save_steps=3,
            eval_strategy="steps",
            eval_steps=3,
            learning_rate=0.02,
            lr_scheduler_type="constant",
            load_best_model_at_end=True,
            greater_is_better=True,  # the highest loss is that of the first checkpoint, and so it is not the last one
        ),
        train_dataset=Bytes(64),
        eval_dataset=Bytes(16),
        callbacks=[AdaptiveWidthCallback(PRIOR)],
    )
    trainer.train()
    rows = [row for row in trainer.state.log_history if "eval_loss" in row]
    best = max(rows, key=lambda row: row["eval_loss"])
    assert best["step"] < 9
    assert awn.widths(model) == {layer: best[f"width/{layer}"] for layer in awn.widths(model)}
    assert awn.widths(model) != {layer: rows[-1][f"width/{layer}"] for layer in awn.widths(model)}
    assert trainer.evaluate()["eval_loss"] == pytest.approx(best["eval_loss"])


def test_an_optimizer_given_to_the_trainer_is_used(tmp_path: Path) -> None:
    model = fresh(gpt2)
    before = awn.widths(model)
    optimizer = torch.optim.SGD(awn.param_groups(model, lr=0.05, width_lr=0.5), momentum=0.9)
    callback = AdaptiveWidthCallback(PRIOR)
    given = {"optimizers": (optimizer, None), "callbacks": [callback]}
    Trainer(model, arguments(tmp_path, max_steps=4), train_dataset=Bytes(64), **given).train()
    assert awn.widths(model) != before
    held = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    assert held == set(model.parameters())


def test_an_annealed_prior_goes_by_steps_or_epochs(tmp_path: Path) -> None:
    """Nothing before it begins, then it shrinks: 8 steps of 8 rows are one epoch of 64."""
    for clock, begin in (("epochs", 0.5), ("steps", 4)):
        model = fresh(gpt2)
        tightening = awn.Prior(width_mean=1.0, width_scale=awn.Anneal(1e-3, 1e-4, begin=begin, finish=2 * begin))
        run = train(model, tmp_path, prior=tightening, own={"clock": clock}, logging_steps=1)
        active = [row["prior/width"] > 0 for row in run.state.log_history if "loss" in row]
        assert active == [False] * 4 + [True] * 4


def test_widths_are_looked_at_every_n_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr("awn.integrations.huggingface.callback.resize_", lambda *args: looked.append(args))
    train(fresh(gpt2), tmp_path, own={"resize_every": 3})
    assert len(looked) == 2  # of 8 steps
    with pytest.raises(ArgumentError, match="resize_every"):
        AdaptiveWidthCallback(resize_every=0)


def test_a_logger_after_the_callback_sees_the_widths(tmp_path: Path) -> None:
    seen: list[dict[str, float]] = []

    class Logger(TrainerCallback):
        def on_log(self, *_: Any, logs: dict[str, float], **kwargs: Any) -> None:
            seen.append(dict(logs))

    model = fresh(gpt2)
    trainer = Trainer(model, arguments(tmp_path, max_steps=2), train_dataset=Bytes(64), callbacks=[Logger()])
    trainer.callback_handler.callbacks.insert(0, AdaptiveWidthCallback(PRIOR))
    trainer.train()
    assert seen[1]["loss"] > 0
    assert {layer: seen[1][f"width/{layer}"] for layer in awn.widths(model)} == awn.widths(model)


# What is refused


def test_a_model_without_learned_widths_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no layer with a learned width"):
        train(gpt2(), tmp_path)


def test_several_devices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingArguments, "n_gpu", 2)
    args = arguments(tmp_path)
    monkeypatch.setattr(TrainingArguments, "parallel_mode", "not_distributed")
    with pytest.raises(ArgumentError, match="one device"):
        AdaptiveWidthCallback().on_train_begin(args, None, None, model=fresh(gpt2))  # type: ignore[arg-type]


def test_data_of_unknown_size_needs_the_number(tmp_path: Path) -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Any:
            rows = Bytes(16)
            yield from (rows[i] for i in range(16))

    def run(callback: AdaptiveWidthCallback) -> None:
        args = arguments(tmp_path, max_steps=1)
        Trainer(fresh(gpt2), args, train_dataset=Endless(), callbacks=[callback]).train()

    with pytest.raises(ArgumentError, match="n_samples"):
        run(AdaptiveWidthCallback())
    run(AdaptiveWidthCallback(n_samples=16 * 32))


class DecayingTrainer(Trainer):
    """An optimizer of one's own, built when the Trainer asks for it: after it has loaded a checkpoint's weights."""

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            groups = awn.param_groups(self.model, lr=self.args.learning_rate, weight_decay=0.1)
            self.optimizer = torch.optim.AdamW(groups)
        return self.optimizer


def test_an_optimizer_of_ones_own_resumes_if_it_is_built_late(tmp_path: Path) -> None:
    early, late = fresh(gpt2), fresh(gpt2)
    options = {"save_strategy": "steps", "save_steps": 4, "max_steps": 8}

    def run(model: PreTrainedModel, kind: type[Trainer], resume: str | None = None, **given: Any) -> None:
        args, callbacks = arguments(tmp_path, **options), [AdaptiveWidthCallback(PRIOR)]
        kind(model, args, train_dataset=Bytes(64), callbacks=callbacks, **given).train(resume_from_checkpoint=resume)

    whole = fresh(gpt2)
    run(whole, DecayingTrainer)
    run(late, DecayingTrainer, str(tmp_path / "checkpoint-4"))
    assert_same(late, whole)
    awn.advanced.set_units_(early, {"transformer.h.0.mlp.c_fc": 20}, optimizer=None)
    optimizer = torch.optim.AdamW(awn.param_groups(early, lr=0.02, weight_decay=0.1))
    with pytest.raises(awn.AwnError, match="does not hold"):
        run(early, Trainer, str(tmp_path / "checkpoint-4"), optimizers=(optimizer, None))


# Accelerate: its optimizer passes on the groups and the state of the one inside, so resize_ takes it as it is


def accelerated(
    folder: Path, steps: int, resume: bool = False, accumulate: int = 1
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The loop of docs/frameworks.md, on batches that follow from the step."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    model = fresh(no_dropout)
    if resume:  # at other widths than those of the checkpoint
        awn.advanced.set_units_(model, dict.fromkeys(awn.widths(model), 20), optimizer=None)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(awn.param_groups(model, lr=0.02)))

    def take_widths(models: list[nn.Module], input_dir: str) -> None:
        take_widths_(model, load_file(Path(input_dir) / "model.safetensors"), optimizer)

    accelerator.register_load_state_pre_hook(take_widths)
    rows = Bytes(64).rows
    first = 0
    if resume:
        accelerator.load_state(str(folder))
        first = 4
    for step in range(first * accumulate, steps * accumulate):
        with accelerator.accumulate(model):
            tokens = rows[step % 8 * 8 : step % 8 * 8 + 8]
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(awn.objective(loss, model, n_samples=64, prior=PRIOR))
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            awn.resize_(accelerator.unwrap_model(model), optimizer)
        if step == 3 and not resume:
            accelerator.save_state(str(folder))
    return model, optimizer


def by_plain_torch(steps: int, accumulate: int) -> nn.Module:
    model = fresh(no_dropout)
    optimizer = torch.optim.AdamW(awn.param_groups(model, lr=0.02))
    rows = Bytes(64).rows
    for start in range(0, steps * accumulate, accumulate):
        for step in range(start, start + accumulate):
            tokens = rows[step % 8 * 8 : step % 8 * 8 + 8]
            loss = awn.objective(model(input_ids=tokens, labels=tokens).loss, model, n_samples=64, prior=PRIOR)
            (loss / accumulate).backward()
        optimizer.step()
        optimizer.zero_grad()
        awn.resize_(model, optimizer)
    return model


@pytest.mark.parametrize("accumulate", [1, 2])
def test_accelerate_trains_as_plain_torch_does(accumulate: int, tmp_path: Path) -> None:
    model, optimizer = accelerated(tmp_path, steps=8, accumulate=accumulate)
    assert type(optimizer).__name__ == "AcceleratedOptimizer"
    assert awn.widths(model) != awn.widths(fresh(no_dropout))
    assert_same(model, by_plain_torch(8, accumulate))


def test_accelerates_checkpoints_resume_at_their_widths(tmp_path: Path) -> None:
    whole, _ = accelerated(tmp_path, steps=8)
    resumed, _ = accelerated(tmp_path, steps=8, resume=True)
    assert_same(resumed, whole)


def test_what_an_adaptive_models_own_save_pretrained_wrote_is_refused(tmp_path: Path) -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=16, n_layer=1, n_head=2))
    awn.adapt_(model)
    model.save_pretrained(tmp_path)
    with pytest.raises(awn.AwnError, match="own save_pretrained"):
        from_pretrained(tmp_path)


# Shrink


def shrinking(folder: Path, model: PreTrainedModel, **options: Any) -> tuple[Trainer, Shrink]:
    rows = Bytes(64)
    shrink = Shrink(
        0.3, start=2, patience=1, fraction=0.4, repair=[rows[number : number + 8] for number in range(0, 64, 8)]
    )
    callback = AdaptiveWidthCallback(PRIOR, shrink=shrink, **options)
    steps = {"max_steps": 40, "eval_strategy": "steps", "eval_steps": 2, "lr_scheduler_type": "constant"}
    given = arguments(folder, **steps)
    return Trainer(model, given, train_dataset=rows, eval_dataset=Bytes(16), callbacks=[callback]), shrink


def test_the_trainer_shrinks_a_model_while_its_loss_holds(tmp_path: Path) -> None:
    model = fresh(no_dropout)
    trainer, shrink = shrinking(tmp_path, model)
    before = sum(awn.widths(model).values())
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
    assert loss == pytest.approx(-shrink.kept_score, rel=1e-5)
    assert loss <= -shrink.best_score + 0.3 + 1e-6
    assert sum(awn.widths(model).values()) < before / 2


def test_a_metric_that_is_not_evaluated_and_a_wrong_mode_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError, match="monitor='accuracy', but the evaluation has only 'budget', 'epoch', 'eval_loss'"
    ):
        shrinking(tmp_path, fresh(no_dropout), monitor="accuracy")[0].train()
    with pytest.raises(ArgumentError, match="mode must be"):
        shrinking(tmp_path, fresh(no_dropout), mode="best")
