"""Small models of every kind that the installed libraries can build, each with two examples of different shapes.

`benchmarks/adapt_coverage.py` tries `awn.adapt_` on them. A Hugging Face type gets a configuration with little of
everything, by the names of its numbers, and inputs by the names of its arguments. The first that runs is taken.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from awn.adapt.operation import tensors_in

Example = tuple[Any, ...] | dict[str, Any]
Built = tuple[nn.Module, Example, Example | None]

# What a number in a configuration becomes, by its name: the first pattern that fits, if the number is larger.
_SMALL = [
    (r"vocab_size|num_embeddings", 99),
    (r"codebook_size", 64),
    (r"feat_extract|kernel|stride|num_channels", 10**9),
    (r"max_.*position|n_positions|n_ctx|max_.*length|max_seq", 64),
    (r"context_size|chunk_size", 16),
    (r"type_vocab", 2),
    (r"experts_per_tok|top_?k|topk_group|n_group|moe_k", 2),
    (r"num.*experts|n_.*experts", 4),
    (r"(key_value|kv)_heads|n_kv_head|num_kv", 2),
    (r"heads?$|n_head$|num_heads|attention_heads", 4),
    (r"lora_rank$", 12),
    (r"qk_rope_head_dim|rotary_dim", 4),
    (r"head_(dim|size)|d_kv|key_dim|value_dim|d_head", 8),
    (r"intermediate|ffn|d_ff|n_inner|mlp_(dim|size)|inner_dim|feed_forward|expansion_dim", 40),
    (
        r"hidden_size|d_model|n_embd|embed(ding)?_(dim|size)|hidden_dim|projection|^dim$|width|_dim$|channels?$|d_embed",
        32,
    ),
    (r"num.*layers|n_layers?$|_layers$|depth$|num_blocks|layers$", 2),
    (r"image_size|img_size|resolution|input_size$", 32),
    (r"patch_size", 8),
    (r"num_queries|num_latents", 6),
    (r"mel_bins|num_mel", 16),
    (r"source_positions", 32),
]
_LEFT_AS_IS = ("out_features", "out_indices", "stage_names", "transformers_version", "use_cache")
# Of models of timm.
_SMALL_NAMES = r"test_|tiny|nano|pico|femto|atto|xxs|_xs|small|mobile|lite|_s\d|_s$|_b0|18|050|_1_0|x1_0"
_ARGUMENTS = (
    ("input_ids",),
    ("input_ids", "pixel_values"),
    ("pixel_values",),
    ("input_features", "decoder_input_ids"),
    ("input_values", "decoder_input_ids"),
    ("input_ids", "bbox"),
)


def collection() -> dict[str, Callable[[], Built]]:
    """All models by name; building one may fail."""
    found: dict[str, Callable[[], Built]] = {}
    with contextlib.suppress(ImportError):
        from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

        found |= {f"transformers/{kind}": partial(hugging_face, kind) for kind in MODEL_MAPPING_NAMES}
    with contextlib.suppress(ImportError):
        found |= {f"torch_geometric/{name}": build for name, build in graph_networks().items()}
    with contextlib.suppress(ImportError):
        found |= {f"timm/{family}": partial(smallest_of_timm, family) for family in families_of_timm()}
    found |= {f"own/{name}": build for name, build in own_models().items()}
    return found


def families_of_timm() -> list[str]:
    """The modules of timm that define models."""
    from timm.models import list_models, list_modules  # type: ignore[import-not-found]

    return [name for name in list_modules() if list_models(module=name)]


def smallest_of_timm(family: str) -> Built:
    """A small model of a family: of those whose names promise it, the one with the fewest weights."""
    import timm  # type: ignore[import-not-found]

    names = sorted(timm.list_models(module=family), key=lambda name: (not re.search(_SMALL_NAMES, name), name))[:12]
    sizes = {}
    for name in names:
        with contextlib.suppress(Exception), torch.device("meta"):
            sizes[name] = sum(parameter.numel() for parameter in timm.create_model(name).parameters())
    name = min(sizes, key=lambda one: sizes[one])
    if sizes[name] > 2e7:
        raise ValueError("it has too many weights for this trial")
    torch.manual_seed(0)
    model = timm.create_model(name).eval()
    *_, usual = model.default_cfg["input_size"]
    for size in (64, 96, usual):
        with contextlib.suppress(Exception), torch.no_grad():
            model(torch.randn(1, 3, size, size))
            break
    draw = torch.Generator().manual_seed(0)
    return model, (torch.randn(2, 3, size, size, generator=draw),), (torch.randn(3, 3, size, size, generator=draw),)


def own_models() -> dict[str, Callable[[], Built]]:
    """The table of models that the tests go over."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from convert_models import MODELS  # type: ignore[import-not-found]

    def build(name: str) -> Built:
        case = MODELS[name]
        inputs = case.inputs()
        more = {k: longer(v) for k, v in inputs.items()} if isinstance(inputs, dict) else tuple(map(longer, inputs))
        return case.build().eval(), inputs, None if name == "gin" else more

    return {name: partial(build, name) for name in MODELS}


def longer(value: Any) -> Any:
    """One more sample."""
    return torch.cat([value, value[:1]]) if isinstance(value, Tensor) and value.dim() else value


def graph_networks() -> dict[str, Callable[[], Built]]:
    """Networks of PyTorch Geometric: those of its own, and pairs of convolutions."""
    import torch_geometric.nn as g

    class Pair(nn.Module):
        def __init__(self, first: nn.Module, second: nn.Module) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            result: Tensor = self.second(torch.relu(self.first(x, edges)), edges)
            return result

    degrees = torch.ones(5)
    models: dict[str, Callable[[], nn.Module]] = {
        "GCN": lambda: g.GCN(8, 16, 3, 4),
        "GraphSAGE": lambda: g.GraphSAGE(8, 16, 3, 4),
        "GIN": lambda: g.GIN(8, 16, 3, 4),
        "GAT": lambda: g.GAT(8, 16, 3, 4),
        "GAT, four heads": lambda: g.GAT(8, 16, 3, 4, heads=4, v2=True),
        "EdgeCNN": lambda: g.EdgeCNN(8, 16, 3, 4),
        "GIN, norms and jumps": lambda: g.GIN(8, 16, 3, 4, norm="batch_norm", jk="cat"),
        "PNA": lambda: g.PNA(8, 16, 3, 4, aggregators=["mean", "max"], scalers=["identity"], deg=degrees),
        "TransformerConv": lambda: Pair(g.TransformerConv(8, 6, heads=4), g.TransformerConv(24, 4)),
        "ChebConv": lambda: Pair(g.ChebConv(8, 16, 3), g.ChebConv(16, 4, 3)),
        "ResGatedGraphConv": lambda: Pair(g.ResGatedGraphConv(8, 16), g.ResGatedGraphConv(16, 4)),
        "TAGConv": lambda: Pair(g.TAGConv(8, 16), g.TAGConv(16, 4)),
        "ARMAConv": lambda: Pair(g.ARMAConv(8, 16, num_stacks=2), g.ARMAConv(16, 4)),
        "GraphConv": lambda: Pair(g.GraphConv(8, 16), g.GraphConv(16, 4)),
        "SGConv": lambda: Pair(g.SGConv(8, 16), g.SGConv(16, 4)),
        "LEConv": lambda: Pair(g.LEConv(8, 16), g.LEConv(16, 4)),
    }
    return {name: partial(_with_graphs, build) for name, build in models.items()}


def _with_graphs(build: Callable[[], nn.Module]) -> Built:
    return build().eval(), _graph(13), _graph(16)


def _graph(nodes: int) -> Example:
    edges = torch.randint(0, nodes, (2, 3 * nodes), generator=torch.Generator().manual_seed(nodes))
    return torch.randn(nodes, 8, generator=torch.Generator().manual_seed(nodes)), edges


def hugging_face(kind: str) -> Built:
    """A small model of a type that transformers knows."""
    import transformers

    build: Any = transformers.AutoModel.from_config
    kind_of_config, first = transformers.CONFIG_MAPPING[kind], None
    for kv_heads in (2, 4):
        try:
            config = kind_of_config(**small(kind_of_config().to_dict(), kv_heads))
            configs = [config, *(one for one in vars(config).values() if hasattr(one, "to_dict"))]
            for one in configs:
                one._experts_implementation = "eager"  # the fused kernel wants multiples of 16 bytes
            with torch.device("meta"):
                empty = build(config)
            if sum(parameter.numel() for parameter in empty.parameters()) > 2e7:
                raise ValueError("it has too many weights for this trial")
            torch.manual_seed(0)
            model = build(config, dtype=torch.float32).eval()
            return model, *hugging_face_examples(model, configs)
        except ImportError:
            raise
        except Exception as error:
            first = first or error
    assert first is not None
    raise first


def small(values: dict[str, Any], kv_heads: int) -> dict[str, Any]:
    """A configuration with little of everything."""
    result: dict[str, Any] = {"use_cache": False} if "use_cache" in values else {}
    layers = next((values[name] for name in ("num_hidden_layers", "num_layers", "n_layer") if name in values), None)
    for name, value in values.items():
        if name.strip("_") not in _LEFT_AS_IS:
            result[name] = _smaller(name, value, kv_heads, layers if isinstance(layers, int) else 0, len(result))
    return result


def _smaller(name: str, value: Any, kv_heads: int, layers: int, place: int) -> Any:
    limit = next((limit for pattern, limit in _SMALL if re.search(pattern, name)), 10**9)
    if isinstance(value, dict) and "2" not in name:
        inner = small(value, kv_heads)
        nested = any(isinstance(one, dict) for one in value.values())
        rotates = name.startswith("rope_") and kv_heads > 2 and not nested
        return inner | ({"mrope_section": [1, 1, 2]} if rotates else {})
    if isinstance(value, list | tuple) and len(value) == layers and layers > 2:
        return [value[0], value[-1]]
    if name == "mrope_section":
        return [1, 1, 2]
    if name == "head_dim" and value is None:
        return 8
    if type(value) is int and name.endswith(("token_id", "token_index")):
        return min(value, 98 - place % 20)
    if type(value) is int and value > 2:
        return min(value, kv_heads if limit == 2 and "head" in name else limit)
    if isinstance(value, list | tuple) and value and all(type(one) is int for one in value):
        if re.search(r"depths|_blocks|num_.*layers|layers$", name):
            return [min(one, 1) for one in value]
        if "heads" in name:
            return [min(one, 2) for one in value]
        if re.search(r"dim|hidden_sizes|channels|sizes$|widths", name) and max(value) > 8:
            return [min(one, 16 if "dim" in name else 16 + 4 * min(i, 2)) for i, one in enumerate(value)]
    return value


def hugging_face_examples(model: Any, configs: list[Any]) -> tuple[Example, Example]:
    """The first named arguments that the model runs with, and others of another shape."""
    wanted, main, error = inspect.signature(model.forward).parameters, model.main_input_name, None
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needed = [n for n, p in wanted.items() if p.default is p.empty and p.kind in plain]
    first, second = _values(configs, 2, 12), _values(configs, 3, 9)
    for more in ((main,), (main, "decoder_input_ids"), *_ARGUMENTS):
        names = list(dict.fromkeys(needed + [n for n in more if n in wanted or "kwargs" in wanted]))
        for picks in itertools.product(*(range(len(first.get(n, ()))) for n in names)) if names else ():
            one, two = ({n: v[n][i] for n, i in zip(names, picks, strict=True)} for v in (first, second))
            try:
                with torch.no_grad():
                    outs = tensors_in(model(**one))
                if any(out.is_floating_point() for out in outs):
                    return one, two
            except Exception as new:
                error = error or new
    raise ValueError(f"it does not run: {error}" if error else f"no inputs are known for {needed or main}")


def _values(configs: list[Any], batch: int, length: int) -> dict[str, list[Tensor]]:
    """Inputs by the names of arguments, in several shapes."""

    def look(name: str, default: int) -> int:
        found = next((getattr(c, name) for c in configs if getattr(c, name, None)), default)
        return int(found[0]) if isinstance(found, list | tuple) else int(found)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(batch))

    ids = torch.randint(3, 60, (batch, length), generator=torch.Generator().manual_seed(batch)) % look("vocab_size", 99)
    size, channels = look("image_size", 32), look("num_channels", 3)
    sound = normal(batch, 2 * look("max_source_positions", 32), look("num_mel_bins", look("feature_size", 16)))
    patches = normal(16 * batch, channels * look("temporal_patch_size", 1) * look("patch_size", 8) ** 2)
    video, wave = normal(batch, look("num_frames", 2), channels, size, size), normal(batch, 1600 + 320 * batch)
    images = [normal(batch, channels, n, n) for n in (size, 64, 224)]
    return {
        "input_ids": [ids],
        "decoder_input_ids": [ids],
        "pixel_values": [*images, video, patches],
        "pixel_values_videos": [video],
        "input_features": [sound.transpose(1, 2), sound],
        "inputs": [ids],
        "input_values": [wave, wave[:, None], sound],
        "bbox": [torch.arange(4).expand(batch, length, 4)],
        "attention_mask": [torch.ones_like(ids)],
        "hidden_states": [patches],
        "audio_codes": [ids[:, None]],
        "grid_thw": [torch.tensor([[1, 4, 4]] * batch)],
        "qformer_input_ids": [ids],
        "past_values": [normal(batch, look("context_length", 32), look("num_input_channels", 1))],
    }


def warm_up() -> Iterator[str]:
    """Import the code of some families before processes are forked."""
    for kind in [
        "bert",
        "llama",
        "clip",
        "bart",
        "t5",
        "wav2vec2",
        "vit",
        "mixtral",
        "whisper",
        "resnet",
        "llava",
        "qwen2_vl",
        "sam",
        "gpt2",
        "deberta",
    ]:
        with contextlib.suppress(Exception):
            hugging_face(kind)
            yield kind
