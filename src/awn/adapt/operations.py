"""Which operations act on each unit alone, by the names that torch gives them as functions and as methods."""

from __future__ import annotations

from typing import Any

from torch import nn

_ACTIVATIONS = """
    relu relu_ relu6 gelu silu mish elu elu_ celu selu leaky_relu leaky_relu_ hardswish softplus
"""
# Their slope is about 1 on both sides of 0: a gain of 1 in Kaiming+.
_LIKE_TANH = "sigmoid sigmoid_ tanh tanh_ softsign hardtanh hardtanh_ hardsigmoid"
_ENTRY_BY_ENTRY = """
    logsigmoid tanhshrink softshrink hardshrink threshold
    dropout dropout_ dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout
    abs neg exp log log2 log10 log1p sqrt rsqrt reciprocal square pow sin cos erf
    clamp clamp_ clamp_min clamp_max clip round floor ceil sign
    contiguous clone detach to float double half bfloat16 type type_as
    add add_ iadd sub sub_ isub mul mul_ imul div div_ truediv itruediv maximum minimum masked_fill addcmul lerp
    gt lt ge le eq ne logical_and logical_or logical_not where zeros_like ones_like expand_as
"""
ACTIVATIONS = frozenset(_ACTIVATIONS.split())
LIKE_TANH = frozenset(_LIKE_TANH.split())
# Of one activation, or of several entry by entry.
UNIT_WISE = frozenset(_ENTRY_BY_ENTRY.split()) | ACTIVATIONS | LIKE_TANH

# What they give is no activation: a type, a device, a number of dimensions.
NO_TENSOR = frozenset(["dim", "dtype", "device", "ndim", "is_floating_point", "_assert"])
# They give a shape, or a number from it.
SIZES = frozenset(["size", "shape", "numel", "nelement", "len"])

REDUCTIONS = frozenset(["mean", "sum", "amax", "amin", "var"])
# They give values, and where those were.
EXTREMES = frozenset(["max", "min"])
DIVISIONS = frozenset(["div", "div_", "truediv", "itruediv"])
PRODUCTS = frozenset(["mul", "mul_", "imul"])
IN_PLACE = frozenset(["iadd", "isub", "imul", "itruediv"])
# They change the kind of number, or where it is kept.
CASTS = frozenset(["to", "type", "type_as", "float", "double", "half", "bfloat16", "contiguous", "clone", "detach"])
# They, or their slopes, are not finite at 0 or below.
NOT_EVERYWHERE = frozenset(["log", "log2", "log10", "sqrt", "rsqrt", "reciprocal"])

UNIT_WISE_MODULES: tuple[type[nn.Module], ...] = (
    nn.Identity,
    nn.ReLU,
    nn.ReLU6,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.LeakyReLU,
    nn.RReLU,
    nn.Hardtanh,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
    nn.Softsign,
    nn.LogSigmoid,
    nn.Tanhshrink,
    nn.Softshrink,
    nn.Hardshrink,
    nn.Threshold,
    nn.modules.dropout._DropoutNd,
)

# By how many of the last dimensions a module mixes.
SPATIAL_MODULES: dict[type[nn.Module], int] = {
    **dict.fromkeys((nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d), 1),
    **dict.fromkeys((nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d), 2),
    **dict.fromkeys((nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool3d), 3),
    **dict.fromkeys((nn.ZeroPad1d, nn.ReflectionPad1d, nn.ReplicationPad1d, nn.ConstantPad1d), 1),
    **dict.fromkeys((nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.ConstantPad2d), 2),
    **dict.fromkeys((nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d), 2),
}
SPATIAL_FUNCTIONS: dict[str, int] = {
    f"{kind}_pool{dims}d": dims for dims in (1, 2, 3) for kind in ("max", "avg", "adaptive_avg", "adaptive_max")
}

_LEAVE = "leave the layer's width fixed"
NOT_AT_ZERO = (
    "may not be finite, or have no slope, where its units are 0, as in the room for units to come. Add a small number "
    f"before it, or {_LEAVE}"
)
_BATCH_NORM = f"Use a batch norm there, or {_LEAVE}"
# What mixes units, with what to do about it.
MIXING: dict[str, str] = {
    **dict.fromkeys(("LayerNorm", "layer_norm", "RMSNorm", "rms_norm"), f"normalises over all units. {_BATCH_NORM}"),
    **dict.fromkeys(
        (f"{kind}Norm{dims}d" for kind in ("Instance", "Batch") for dims in (1, 2, 3)),
        "is not known to normalise each unit alone, with an entry of its own. With affine=True, and "
        "example_input to show where the units lie, it may be",
    ),
    **dict.fromkeys(("GroupNorm", "group_norm"), f"normalises units in groups. {_BATCH_NORM}"),
    **dict.fromkeys(("Softmax", "softmax", "log_softmax"), f"divides by a sum over all units: {_LEAVE}"),
    **dict.fromkeys(("cat", "concat"), "lays its units beside others. Read each part by a layer of its own, and add"),
    "pad": f"adds entries among its units: {_LEAVE}",
    **dict.fromkeys(("chunk", "split"), "takes its units apart by their places. Make the parts by layers of their own"),
    "getitem": "picks entries by their places. Give example_input, so that it is known which, or leave the width fixed",
    **dict.fromkeys(
        ("matmul", "bmm", "mm", "einsum"),
        f"multiplies units with each other, or so it seems without example_input: {_LEAVE}",
    ),
    **dict.fromkeys(("LPPool1d", "LPPool2d", "LPPool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d"), NOT_AT_ZERO),
    "std": "has no slope where its units do not vary, as in the room for units to come. Use the root of var plus a "
    "small number",
    **dict.fromkeys(
        ("scaled_dot_product_attention", "MultiheadAttention"), "mixes units: the width of attention is not learned"
    ),
}


def torch_name(target: Any) -> str:
    """The name of a function or a method of torch; a function of someone else's by its full name, which none here has.

    >>> import operator
    >>> torch_name(nn.functional.relu), torch_name(operator.add), torch_name("view")
    ('relu', 'add', 'view')
    """
    if isinstance(target, str):
        return target
    home, name = getattr(target, "__module__", None) or "torch", getattr(target, "__name__", repr(target))
    return name if home.split(".")[0] in ("torch", "_operator", "builtins", "math") else f"{home}.{name}"


def acts_unit_wise(activation: Any) -> bool:
    """Whether a function or a module is an activation that acts on each entry alone.

    >>> acts_unit_wise(nn.functional.gelu), acts_unit_wise(nn.ReLU()), acts_unit_wise(nn.functional.softmax)
    (True, True, False)
    """
    if isinstance(activation, nn.Module):
        return isinstance(activation, UNIT_WISE_MODULES)
    return torch_name(activation) in UNIT_WISE
