"""A table of models that `adapt_` is tested over: how each is built, what it is called with, the widths it must get.

The widths are read off the code of the models here, not asked of the code under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import convert_wild

Build = Callable[[], nn.Module]
Inputs = tuple[Any, ...] | dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A model, what it is called with, and the widths that `adapt_` must find in it."""

    build: Build
    inputs: Callable[[], Inputs]
    widths: dict[str, int]
    example: bool = False  # whether it takes an example_input to see them


def run(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """All tensors that a model returns."""
    result = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
    result = dict(result) if isinstance(result, dict) else result
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def rows(*shape: int) -> Callable[[], Inputs]:
    return lambda: (torch.randn(*shape),)


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 12)
        self.layers = nn.ModuleList([nn.Linear(12, 9), nn.Linear(9, 7)])
        self.head = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        for layer in self.layers:
            x = F.dropout(torch.tanh(layer(x)), 0.1, self.training)
        return self.head(x)


class Shared(nn.Module):
    """One layer used twice, both times on the units that it makes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.again, self.leave = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.enter(x))
        return self.leave(torch.relu(self.again(torch.relu(self.again(x)))))


class Recurrent(nn.Module):
    """A recurrent loop: the hidden units feed themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.over, self.out = nn.Linear(4, 10), nn.Linear(10, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.into(x[:, 0]))
        for step in range(1, 4):
            h = torch.tanh(self.into(x[:, step]) + self.over(h))
        return self.out(h)


class ConvNet(nn.Module):
    """Convolutions whose channels a linear layer reads, after a reshape that the test chooses."""

    def __init__(self, flat: Callable[[Tensor], Tensor], repeat: int = 4) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.fc, self.flat = nn.Linear(8 * repeat, 3), flat

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.avg_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(self.flat(x))


CONV_WIDTHS = {"conv1": 6, "conv2": 8}


def conv_case(flat: Callable[[Tensor], Tensor], repeat: int = 4, *, example: bool = False) -> Case:
    return Case(lambda: ConvNet(flat, repeat), rows(3, 2, 8, 8), CONV_WIDTHS, example)


def pooled(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 1).squeeze(-1).squeeze(-1)


FLATTENINGS = {
    "torch.flatten": conv_case(lambda x: torch.flatten(x, 1)),
    "flatten": conv_case(lambda x: x.flatten(1)),
    "view by size": conv_case(lambda x: x.view(x.size(0), -1)),
    "view by shape": conv_case(lambda x: x.view(x.shape[0], -1)),
    "reshape": conv_case(lambda x: x.reshape((x.shape[0], -1))),
    "reshape, known shapes": conv_case(lambda x: x.reshape(x.shape[0], -1), example=True),
    "flatten, known shapes": conv_case(lambda x: x.flatten(start_dim=1), example=True),
    "view of all sizes": conv_case(lambda x: x.view(x.size(0), x.size(1), -1).flatten(1), example=True),
    "mean of a tuple": conv_case(lambda x: x.mean((2, 3)), 1),
    "mean of a list": conv_case(lambda x: x.mean([-2, -1]), 1),
    "amax": conv_case(lambda x: x.amax(dim=(2, 3)), 1),
    "kept mean, flattened": conv_case(lambda x: x.mean((2, 3), keepdim=True).flatten(1), 1),
    "variance": conv_case(lambda x: x.var((2, 3)), 1),
    "pooled, squeezed": conv_case(pooled, 1, example=True),
    "channels last": conv_case(lambda x: x.permute(0, 2, 3, 1)[:, 0, 0], 1),
}


class Depthwise(nn.Module):
    """An inverted residual block: expand, filter each channel, project, add."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 1)
        self.expand, self.bn1 = nn.Conv2d(6, 12, 1, bias=False), nn.BatchNorm2d(12)
        self.depth, self.bn2 = nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False), nn.BatchNorm2d(12)
        self.project, self.bn3 = nn.Conv2d(12, 6, 1, bias=False), nn.BatchNorm2d(6)
        self.head = nn.Conv2d(6, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = F.relu6(self.bn1(self.expand(x)))
        y = F.relu6(self.bn2(self.depth(y)))
        return self.head(x + self.bn3(self.project(y))).mean((2, 3))


class Basic(nn.Module):
    """ResNet's basic block, with an identity or a projection for a shortcut, or option A's padded one."""

    def __init__(self, inside: int, outside: int, stride: int = 1, option: str = "B") -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.conv2, self.bn2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.added = outside - inside
        self.stride = stride
        self.shortcut: nn.Module | None = None
        if self.added and option == "B":
            conv = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.shortcut is not None:
            x = self.shortcut(x)
        elif self.added:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.added // 2, self.added // 2))
        return F.relu(y + x)


class Bottleneck(nn.Module):
    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, padding=1, bias=False), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, channels, 1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + x)


class ResNet(nn.Module):
    def __init__(self, *blocks: nn.Module, first: int, last: int) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(2, first, 3, padding=1, bias=False), nn.BatchNorm2d(first)
        self.blocks = nn.Sequential(*blocks)
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(last, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.pool(self.blocks(F.relu(self.bn(self.stem(x))))), 1))


def resnet() -> nn.Module:
    return ResNet(Basic(4, 4), Basic(4, 8, 2), Basic(8, 8), Bottleneck(8, 5), first=4, last=8)


def cifar_resnet() -> nn.Module:
    return ResNet(Basic(4, 4, option="A"), Basic(4, 8, 2, option="A"), Basic(8, 8, option="A"), first=4, last=8)


class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.squeeze, self.excite = nn.Conv2d(2, 8, 3, padding=1), nn.Linear(8, 4), nn.Linear(4, 8)
        self.head = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x))
        b, c, _, _ = x.size()
        y = F.adaptive_avg_pool2d(x, 1).view(b, c)
        y = torch.sigmoid(self.excite(F.relu(self.squeeze(y)))).view(b, c, 1, 1)
        return self.head(x * y.expand_as(x)).mean((2, 3))


class Gated(nn.Module):
    """SwiGLU, written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(5, 11), nn.Linear(5, 11), nn.Linear(11, 5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(6, 9, 3, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(9, 7, 2, 2),
        nn.BatchNorm2d(7),
        nn.ReLU(),
        nn.ConvTranspose2d(7, 1, 2, 2),
    )


def encoder_layer(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, **{"batch_first": True, **options})


def transformer_cases() -> Iterator[tuple[str, Case]]:
    """Encoder and decoder layers in every layout; batch first or not changes nothing about the shapes used here."""
    for batch_first, norm_first, activation in (
        (True, True, "relu"),
        (True, False, "gelu"),
        (False, True, F.silu),
        (False, False, "relu"),
    ):
        options = {"batch_first": batch_first, "norm_first": norm_first, "activation": activation}
        name = f"{batch_first=}, {norm_first=}, {activation if isinstance(activation, str) else 'silu'}"
        yield (
            f"encoder layer {name}",
            Case(lambda o=options: encoder_layer(**o), rows(3, 4, 8), {"self_attn": 2, "linear1": 12}),
        )
        yield (
            f"decoder layer {name}",
            Case(
                lambda o=options: nn.TransformerDecoderLayer(8, 2, 12, **o),
                lambda: (torch.randn(3, 4, 8), torch.randn(3, 4, 8)),
                {"self_attn": 2, "multihead_attn": 2, "linear1": 12},
            ),
        )


def layers(number: int, heads: str, units: str) -> dict[str, int]:
    """Two heads, and twelve units of the feed-forward part, in every layer."""
    return {pattern.format(n): size for n in range(number) for pattern, size in ((heads, 2), (units, 12))}


def padding_mask() -> Tensor:
    return torch.arange(4)[None, :] >= torch.tensor([4, 2, 3])[:, None]


def encoder_stack() -> nn.Module:
    return nn.TransformerEncoder(encoder_layer(), num_layers=2)


def full_transformer() -> nn.Module:
    return nn.Transformer(8, 2, 1, 1, 12, batch_first=True)


PLAIN: dict[str, Case] = {
    "sequential": Case(
        lambda: nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Sequential(nn.Linear(12, 9), nn.GELU()), nn.Linear(9, 3)),
        rows(6, 5),
        {"0": 12, "2.0": 9},
    ),
    "mlp by hand": Case(MLP, rows(6, 5), {"first": 12, "layers.0": 9, "layers.1": 7}),
    "batch norm": Case(
        lambda: nn.Sequential(nn.Linear(5, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3)),
        rows(6, 5),
        {"0": 12},
    ),
    "prelu": Case(
        lambda: nn.Sequential(nn.Linear(5, 12), nn.PReLU(12), nn.Linear(12, 9), nn.PReLU(), nn.Linear(9, 3)),
        rows(6, 5),
        {"0": 12, "2": 9},
    ),
    "tokens": Case(
        lambda: nn.Sequential(nn.Linear(5, 12), nn.GELU(), nn.Dropout(0.1), nn.Linear(12, 3)), rows(6, 4, 5), {"0": 12}
    ),
    "shared": Case(Shared, rows(6, 5), {"enter": 8}),
    "recurrent": Case(Recurrent, rows(6, 4, 4), {"into": 10}),
    "gated": Case(Gated, rows(6, 5), {"gate": 11}),
    "conv 1d": Case(
        lambda: nn.Sequential(
            nn.Conv1d(2, 6, 3),
            nn.BatchNorm1d(6),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(6, 8, 3),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(24, 3),
        ),
        rows(5, 2, 12),
        {"0": 6, "4": 8},
    ),
    "conv 3d": Case(
        lambda: nn.Sequential(
            nn.Conv3d(1, 5, 2), nn.BatchNorm3d(5), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(5, 3)
        ),
        rows(3, 1, 4, 4, 4),
        {"0": 5},
    ),
    "autoencoder": Case(autoencoder, rows(3, 1, 8, 8), {"0": 6, "2": 9, "4": 7}),
    "depthwise": Case(Depthwise, rows(3, 2, 6, 6), {"stem": 6, "expand": 12}),
    "resnet": Case(
        resnet,
        rows(3, 2, 8, 8),
        {
            "stem": 4,
            "blocks.0.conv1": 4,
            "blocks.1.conv1": 8,
            "blocks.1.conv2": 8,
            "blocks.2.conv1": 8,
            "blocks.3.conv1": 5,
            "blocks.3.conv2": 5,
        },
    ),
    "cifar resnet": Case(
        cifar_resnet,
        rows(3, 2, 8, 8),
        {"stem": 4, "blocks.0.conv1": 4, "blocks.1.conv1": 8, "blocks.2.conv1": 8},
    ),
    "squeeze and excite": Case(SqueezeExcite, rows(3, 2, 6, 6), {"conv": 8, "squeeze": 4}, example=True),
    **{f"conv net, {name}": case for name, case in FLATTENINGS.items()},
    **dict(transformer_cases()),
    "encoder": Case(encoder_stack, rows(3, 4, 8), layers(2, "layers.{}.self_attn", "layers.{}.linear1")),
    "encoder, padded": Case(
        encoder_stack,
        lambda: {"src": torch.randn(3, 4, 8), "src_key_padding_mask": padding_mask()},
        layers(2, "layers.{}.self_attn", "layers.{}.linear1"),
    ),
    "transformer": Case(
        full_transformer,
        lambda: (torch.randn(3, 4, 8), torch.randn(3, 5, 8)),
        {
            **layers(1, "encoder.layers.{}.self_attn", "encoder.layers.{}.linear1"),
            **layers(1, "decoder.layers.{}.self_attn", "decoder.layers.{}.linear1"),
            "decoder.layers.0.multihead_attn": 2,
        },
    ),
}


def tokens() -> Tensor:
    return torch.randint(2, 20, (3, 6))


def gpt2() -> nn.Module:
    from transformers.models.gpt2.configuration_gpt2 import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=2, n_head=2, n_inner=12))


def bert() -> nn.Module:
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertModel

    config = BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=8,
    )
    return BertModel(config)


def vit() -> nn.Module:
    from transformers.models.vit.configuration_vit import ViTConfig
    from transformers.models.vit.modeling_vit import ViTModel

    config = ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        image_size=8,
        patch_size=4,
    )
    return ViTModel(config)


def t5(kind: str) -> nn.Module:
    from transformers.models.t5.configuration_t5 import T5Config
    from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

    config = T5Config(
        vocab_size=20,
        d_model=8,
        d_kv=4,
        d_ff=12,
        num_layers=1,
        num_heads=2,
        feed_forward_proj=kind,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config)


def llama() -> nn.Module:
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=8,
    )
    return LlamaForCausalLM(config)


def text(**more: Any) -> Callable[[], Inputs]:
    return lambda: {"input_ids": tokens(), **{name: make() for name, make in more.items()}}


def t5_case(kind: str, first: str) -> Case:
    where = "block.0.layer.{}.DenseReluDense." + first
    widths = {
        "encoder.block.0.layer.0.SelfAttention.q": 2,
        "encoder." + where.format(1): 12,
        "decoder.block.0.layer.0.SelfAttention.q": 2,
        "decoder.block.0.layer.1.EncDecAttention.q": 2,
        "decoder." + where.format(2): 12,
    }
    return Case(lambda: t5(kind), text(decoder_input_ids=tokens), widths)


HUGGING_FACE: dict[str, Case] = {
    "gpt-2": Case(
        gpt2, text(use_cache=lambda: False), layers(2, "transformer.h.{}.attn.c_attn", "transformer.h.{}.mlp.c_fc")
    ),
    "bert": Case(
        bert, text(), layers(2, "encoder.layer.{}.attention.self.query", "encoder.layer.{}.intermediate.dense")
    ),
    "vit": Case(
        vit,
        lambda: {"pixel_values": torch.randn(3, 3, 8, 8)},
        layers(1, "layers.{}.attention.q_proj", "layers.{}.mlp.fc1"),
    ),
    "t5": t5_case("relu", "wi"),
    "t5, gated": t5_case("gated-gelu", "wi_0"),
    "llama": Case(
        llama,
        text(use_cache=lambda: False),
        layers(2, "model.layers.{}.self_attn.q_proj", "model.layers.{}.mlp.gate_proj"),
    ),
}


class GIN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn.conv import GINConv

        def mlp(inside: int) -> nn.Module:
            return nn.Sequential(nn.Linear(inside, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 6))

        self.convs = nn.ModuleList([GINConv(mlp(4), train_eps=True), GINConv(mlp(6))])
        self.head = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 2))

    def forward(self, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
        from torch_geometric.nn.pool import global_add_pool

        for conv in self.convs:
            x = torch.relu(conv(x, edges))
        return self.head(global_add_pool(x, batch))


def graphs() -> Inputs:
    """Two rings, of four and of three nodes."""
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 0, 5, 6, 4]])
    return torch.randn(7, 4), torch.cat([edges, edges.flip(0)], 1), torch.tensor([0, 0, 0, 0, 1, 1, 1])


GIN_WIDTHS = {"convs.0.nn.0": 9, "convs.0.nn.3": 6, "convs.1.nn.0": 9, "convs.1.nn.3": 6, "head.0": 7}
GRAPHS = {"gin": Case(GIN, graphs, GIN_WIDTHS)}

EXPERTS = {f"experts.{number}.0": 8 for number in range(2)}
WILD = {
    "temporal": Case(convert_wild.Temporal, rows(3, 3, 7), {"first": 8, "second": 6}, example=True),
    "upsampled": Case(convert_wild.Upsampled, rows(3, 2, 6, 6), {"net.0": 7, "net.3": 5}, example=True),
    "experts": Case(convert_wild.Experts, rows(6, 5), {**EXPERTS, "experts.0.2": 6}, example=True),
    "routed": Case(convert_wild.Routed, rows(6, 5), EXPERTS),
    "graph": Case(convert_wild.Graph, lambda: (torch.randn(6, 4), torch.rand(6, 6)), {"first": 9}, example=True),
    "standardised": Case(convert_wild.Standardised, rows(3, 3, 7), {"first": 8, "second": 6}),
    "lstm": Case(lambda: convert_wild.Words(nn.LSTM), lambda: (tokens(),), {"table": 4, "words": 6}),
    "gru, two layers both ways": Case(
        lambda: convert_wild.Words(nn.GRU, num_layers=2, bidirectional=True),
        lambda: (tokens(),),
        {"table": 4, "words": 6},
    ),
    "packed": Case(
        convert_wild.Packed,
        lambda: (torch.randn(3, 4, 5), torch.tensor([2, 4, 3])),
        {"up": 7, "words": 6},
        example=True,
    ),
    "attending": Case(convert_wild.Attending, rows(3, 4, 8), {"query": 8, "attention": 4, "values": 5}),
    "odd call": Case(convert_wild.OddCall, rows(6, 5), {"first": 9}, example=True),
}

MODELS = {**PLAIN, **HUGGING_FACE, **GRAPHS, **WILD}
