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
from transformers import PretrainedConfig, PreTrainedModel

from awn.adapt import adapt_
from awn.core.attribute import Attribute
from awn.core.groups import find_groups, is_width_entry
from awn.errors import ArgumentError, CheckpointError
from awn.files.model_folder import describe
from awn.files.model_schema import FIXED, OWN
from awn.smaller.finalize import plain_copy

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
# Where a config of exact widths keeps them: the groups, as `awn.files.model_folder.describe` has them.
_WIDTHS_NAME = "awn_widths"


def save_pretrained(model: PreTrainedModel, folder: str | Path, widths: Widths = "padded") -> None:
    """Write a model to a folder as a plain model; an adaptive one is finalized first.

    `"padded"` pads feed-forward layers with units of zero weight to the widest one, so that any `from_pretrained` reads
    the folder; attention heads must be as many as they were. `"exact"` keeps the width of every layer in the config,
    and `awn.huggingface.from_pretrained` reads the folder.

    >>> import awn, tempfile
    >>> from transformers import AutoModel, ViTConfig, ViTModel
    >>> model = ViTModel(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32))
    >>> _ = awn.adapt_(model, include="*.fc1")
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
    adaptive, fold = _adaptive(model)
    groups = describe(adaptive)["groups"]
    sizes = {group["name"]: group["units"] for group in groups}
    if widths == "padded":
        config = copy.deepcopy(model.config)
        sizes |= _padded_sizes(type(model), config, groups)
        plain: Any = plain_copy(adaptive, sizes, fold=fold)
    else:
        plain = plain_copy(adaptive, sizes, fold=fold)
        config = copy.deepcopy(plain.config)
        kept = ("name", "units", "axes", "attributes")
        setattr(config, _WIDTHS_NAME, [{key: group[key] for key in kept} for group in groups])
    _check_readable(type(model), config, plain.state_dict(), widths)
    plain.config = config
    plain.save_pretrained(folder)


def _adaptive(model: PreTrainedModel) -> tuple[nn.Module, bool]:
    """The model, adaptive, and whether its weights are gated; a plain one is looked through first."""
    if find_groups(model):
        return model, True
    adaptive = copy.deepcopy(model)
    adapt_(adaptive, block=1)
    return adaptive, False


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
    groups = getattr(config, _WIDTHS_NAME, [])
    if not isinstance(groups, list):
        raise CheckpointError(f"{folder} was written by an earlier version of awn. Save the model again.")
    model: PreTrainedModel = _exact(model_class, groups).from_pretrained(folder, **options)
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


def _padded_sizes(
    model_class: type[PreTrainedModel], config: PretrainedConfig, groups: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """The sizes of feed-forward layers that are padded to the widest one, which the config takes up."""
    names = [name for name in _SIZE_NAMES if hasattr(config, name)]
    with torch.device("meta"):
        stock = dict(model_class(copy.deepcopy(config)).named_parameters())
    sizes = {getattr(config, name) or 4 * config.hidden_size for name in names}
    wide = [group for group in groups if _units_in(stock, group["axes"][0]) in sizes]
    if not wide:
        if all(_units_in(stock, group["axes"][0]) == group["units"] for group in groups):
            return {}
        raise ArgumentError(
            f"{type(config).__name__} has none of {', '.join(_SIZE_NAMES)}, where the width of the feed-forward layers "
            "would go. Save the exact widths: widths='exact'."
        )
    widest = max(group["units"] for group in wide)
    for name in names:
        setattr(config, name, widest)
    if hasattr(config, _WIDTHS_NAME):
        delattr(config, _WIDTHS_NAME)
    return {group["name"]: widest for group in wide}


def _units_in(stock: Mapping[str, Tensor], axis: Mapping[str, Any]) -> int | None:
    """The units of an axis in a model as the config builds it."""
    tensor = stock.get(f"{axis['module']}.{axis['name']}")
    plain = len(axis["layout"]) == 1
    return tensor.shape[axis["dim"]] // axis["layout"][0]["entries"] if tensor is not None and plain else None


def _exact(model_class: type[PreTrainedModel], groups: Sequence[Mapping[str, Any]]) -> type[PreTrainedModel]:
    """A subclass whose layers have these widths before any weight is loaded."""

    class Exact(model_class):  # type: ignore[misc, valid-type]
        def __init__(self, config: PretrainedConfig, *args: Any, **kwargs: Any) -> None:
            super().__init__(config, *args, **kwargs)
            units = {group["name"]: group["units"] for group in groups}
            for group in groups:
                for axis in group["axes"]:
                    _resize_(self, model_class, axis, _extent(axis["layout"], group["name"], units))
                for one in group["attributes"]:
                    number = _extent(one["counts"], group["name"], units)
                    Attribute(_submodule(self, model_class, one), one["name"], (), one["index"]).set_(number)

    return Exact


def _extent(layout: Sequence[Mapping[str, Any]], own: str, units: Mapping[str, int]) -> int:
    """The size of a dimension with this layout."""
    of = {FIXED: 1, OWN: units[own], **units}
    return sum(block["entries"] * of[block["of"]] for block in layout)


def _submodule(model: nn.Module, model_class: type[PreTrainedModel], described: Mapping[str, Any]) -> nn.Module:
    try:
        return model.get_submodule(described["module"])
    except AttributeError:
        raise CheckpointError(
            f"the config keeps the width of {described['module']!r}, but {model_class.__name__} has no such layer. "
            "Pass the model_class that was saved."
        ) from None


def _resize_(model: nn.Module, model_class: type[PreTrainedModel], axis: Mapping[str, Any], size: int) -> None:
    """Change the size of a tensor that is not loaded yet."""
    module = _submodule(model, model_class, axis)
    tensor = getattr(module, axis["name"])
    shape = [size if dim == axis["dim"] else number for dim, number in enumerate(tensor.shape)]
    fresh = tensor.new_empty(shape)
    setattr(module, axis["name"], nn.Parameter(fresh) if isinstance(tensor, nn.Parameter) else fresh)
    names = axis["size_name"]
    for name in [names] if isinstance(names, str) else names or ():
        setattr(module, name, size)


def _check_readable(
    model_class: type[PreTrainedModel], config: PretrainedConfig, state: Mapping[str, Tensor], widths: Widths
) -> None:
    """Raise if a model that is built from the config could not load the state dict."""
    exact = getattr(config, _WIDTHS_NAME, [])
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
