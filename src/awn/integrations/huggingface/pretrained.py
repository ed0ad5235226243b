"""`save_pretrained` and `from_pretrained` for models whose layers differ in width."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import transformers
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel

from awn.adapt.hidden import Hidden
from awn.adapt.trace import find_hidden
from awn.core.groups import find_groups, is_width_entry
from awn.errors import ArgumentError, CheckpointError
from awn.smaller.finalize import finalize

Widths = Literal["padded", "exact"]

# Where a config keeps the width of the feed-forward layers.
_SIZE_NAMES = (
    "intermediate_size",  # BERT, ViT, Llama
    "n_inner",  # GPT-2
    "d_ff",  # T5
    "ffn_dim",  # OPT
    "hidden_dim",  # DistilBERT
    "encoder_ffn_dim",  # BART
    "decoder_ffn_dim",
)
# Where a config of exact widths keeps them: {"transformer.h.0.mlp.c_fc": 40, …}
_WIDTHS_NAME = "awn_widths"


def save_pretrained(model: PreTrainedModel, folder: str | Path, widths: Widths = "padded") -> None:
    """Write a model to a folder as a plain model; an adaptive one is finalized first.

    `"padded"` pads layers with units of zero weight to the widest one, so that any `from_pretrained` reads the folder.
    `"exact"` keeps the width of every layer in the config, and `awn.huggingface.from_pretrained` reads the folder.

    >>> import awn, tempfile
    >>> from transformers import AutoModel, ViTConfig, ViTModel
    >>> model = ViTModel(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32))
    >>> _ = awn.adapt_(model)
    >>> _ = awn.advanced.set_units_(model, {name: 20 + i for i, name in enumerate(awn.widths(model))}, optimizer=None)
    >>> folder = tempfile.mkdtemp()
    >>> awn.huggingface.save_pretrained(model, folder)
    >>> AutoModel.from_pretrained(folder).config.intermediate_size
    21
    """
    if not isinstance(model, PreTrainedModel):
        raise ArgumentError(f"save_pretrained takes a model of transformers, got {type(model).__name__}.")
    if widths not in get_args(Widths):
        raise ArgumentError(f"widths must be one of {', '.join(get_args(Widths))}; got {widths!r}.")
    plain: Any = finalize(model) if find_groups(model) else copy.deepcopy(model)
    layers = _feed_forward_layers(plain)
    config = plain.config
    if widths == "padded":
        widest = max(hidden.units for hidden in layers.values())
        state = _padded(plain, list(layers.values()), widest)
        _set_size_(config, widest)
    else:
        state = plain.state_dict()
        setattr(config, _WIDTHS_NAME, {name: hidden.units for name, hidden in layers.items()})
    _check_readable(type(plain), config, state, widths)
    plain.save_pretrained(folder, state_dict=state)


def from_pretrained(
    folder: str | Path, model_class: type[PreTrainedModel] | None = None, **options: Any
) -> PreTrainedModel:
    """Load a plain model of transformers, with the exact widths of its layers.

    `model_class` is by default the saved class. `options` are those of its own `from_pretrained`.

    >>> import awn, tempfile
    >>> from transformers import ViTConfig, ViTModel
    >>> model = ViTModel(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32))
    >>> _ = awn.adapt_(model)
    >>> _ = awn.advanced.set_units_(model, {name: 20 + i for i, name in enumerate(awn.widths(model))}, optimizer=None)
    >>> folder = tempfile.mkdtemp()
    >>> awn.huggingface.save_pretrained(model, folder, widths="exact")
    >>> plain = awn.huggingface.from_pretrained(folder)
    >>> sum(weight.numel() for weight in plain.parameters()) == awn.advanced.count_parameters(model)
    True
    """
    if not Path(folder).is_dir():
        raise CheckpointError(f"there is no folder {folder}.")
    _refuse_adaptive(Path(folder))
    config = transformers.AutoConfig.from_pretrained(folder)
    if model_class is None:
        named = (config.architectures or [""])[0]
        model_class = getattr(transformers, named, None)
        if model_class is None:
            raise CheckpointError(f"{folder} holds a {named or 'model'}, no class of transformers: pass model_class=….")
    model: PreTrainedModel = _exact(model_class, getattr(config, _WIDTHS_NAME, {})).from_pretrained(folder, **options)
    model.__class__ = model_class
    return model


def _refuse_adaptive(folder: Path) -> None:
    """A model's own `save_pretrained` writes raw weights while it is adaptive; a plain model would compute nonsense."""
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            if any(is_width_entry(name) for name in tensors.keys()):  # noqa: SIM118  no dict, and it has no iterator
                raise CheckpointError(
                    f"{folder} was written by the model's own save_pretrained while it was adaptive, so its weights "
                    "lack the importance of the units. Write it with awn.huggingface.save_pretrained, or awn.save."
                )


def _feed_forward_layers(model: nn.Module) -> dict[str, Hidden]:
    """The feed-forward layers of a model of transformers, by the path of the producer."""
    paths = {module: path for path, module in model.named_modules()}
    found = [hidden for hidden in find_hidden(model) if isinstance(hidden, Hidden)]
    if not found:
        raise ArgumentError(f"{type(model).__name__} has no feed-forward layer that awn knows; see awn.adapt.add_rule.")
    return {paths[hidden.producers[0]]: hidden for hidden in found}


def _padded(model: nn.Module, layers: Sequence[Hidden], units: int) -> dict[str, Tensor]:
    """The state dict with all feed-forward layers padded to one width by units of zero weight."""
    state = model.state_dict()
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for hidden in layers:
        missing = units - hidden.units
        for axis in hidden.axes():
            name = names[axis.tensor]
            after_it = [0, 0] * (axis.tensor.dim() - 1 - axis.dim)  # torch pads from the last dimension on
            state[name] = F.pad(state[name], [*after_it, 0, missing * axis.per_unit])
    return state


def _set_size_(config: PretrainedConfig, units: int) -> None:
    names = [name for name in _SIZE_NAMES if hasattr(config, name)]
    if not names:
        raise ArgumentError(
            f"{type(config).__name__} has none of {', '.join(_SIZE_NAMES)}, where the width of the feed-forward layers "
            "would go. Save the exact widths: widths='exact'."
        )
    for name in names:
        setattr(config, name, units)
    if hasattr(config, _WIDTHS_NAME):
        delattr(config, _WIDTHS_NAME)


def _exact(model_class: type[PreTrainedModel], widths: Mapping[str, int]) -> type[PreTrainedModel]:
    """A subclass whose feed-forward layers have these widths before any weight is loaded."""

    class Exact(model_class):  # type: ignore[misc, valid-type]
        def __init__(self, config: PretrainedConfig, *args: Any, **kwargs: Any) -> None:
            super().__init__(config, *args, **kwargs)
            layers = _feed_forward_layers(self) if widths else {}
            if layers.keys() != widths.keys():
                raise CheckpointError(
                    f"the config keeps the widths of {', '.join(widths)}, but the feed-forward layers of "
                    f"{model_class.__name__} are {', '.join(layers)}. Pass the model_class that was saved."
                )
            for name, hidden in layers.items():
                _narrow_(hidden, widths[name])

    return Exact


def _narrow_(hidden: Hidden, units: int) -> None:
    """Change the width of layers whose weights are not loaded yet."""
    for axis in hidden.axes():
        shape = [units * axis.per_unit if dim == axis.dim else size for dim, size in enumerate(axis.tensor.shape)]
        setattr(axis.module, axis.name, nn.Parameter(axis.tensor.new_empty(shape)))
        for name in axis.size_names:
            setattr(axis.module, name, units * axis.per_unit)


def _check_readable(
    model_class: type[PreTrainedModel], config: PretrainedConfig, state: Mapping[str, Tensor], widths: Widths
) -> None:
    """Raise if a model that is built from the config could not load the state dict."""
    exact = getattr(config, _WIDTHS_NAME, {})
    with torch.device("meta"):
        built = _exact(model_class, exact)(copy.deepcopy(config)).state_dict()
    for name in [*built, *state]:
        if name not in built or name not in state or built[name].shape != state[name].shape:
            here, there = (tuple(each[name].shape) if name in each else "not there" for each in (state, built))
            advice = "Save the exact widths, widths='exact'" if widths == "padded" else "Save it with awn.save"
            raise ArgumentError(
                f"{name!r} is {here} in the model, and {there} in a {model_class.__name__} that is built from the "
                f"config, which does not keep the width of that layer. {advice}. Nothing was written."
            )
