"""Sizes: attributes in which layers record the sizes of their tensors, although their forward does not need them."""

from __future__ import annotations

from torch import nn

from awn.core.axes import Norm, is_depthwise, require_layout
from awn.errors import ArgumentError

# Recurrent layers record two or three sizes for all their layers and directions; some tensor of the first has each.
_RECURRENT = {("weight_ih_l0", 1): ("input_size",), ("weight_hh_l0", 1): ("hidden_size",)}
_PROJECTED = {
    ("weight_ih_l0", 1): ("input_size",),
    ("weight_hr_l0", 1): ("hidden_size",),
    ("weight_hr_l0", 0): ("proj_size",),
}
_ATTENTION = {
    ("in_proj_weight", 1): ("embed_dim", "kdim", "vdim"),
    ("q_proj_weight", 1): ("embed_dim",),
    ("k_proj_weight", 1): ("kdim",),
    ("v_proj_weight", 1): ("vdim",),
}


def size_names(module: nn.Module, name: str, dim: int) -> tuple[str, ...]:
    """The attributes of a module that record the size of a dimension of one of its tensors.

    >>> size_names(nn.Linear(2, 3), "weight", 0), size_names(nn.BatchNorm1d(4), "running_mean", 0)
    (('out_features',), ('num_features',))
    """
    if isinstance(module, Norm):
        return ("num_features",)
    if isinstance(module, nn.PReLU):
        return ("num_parameters",)
    if isinstance(module, nn.GroupNorm):
        return ("num_channels",)
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return ("embedding_dim",) if dim == 1 else ()
    if isinstance(module, nn.MultiheadAttention):
        return _ATTENTION.get((name, dim), ())
    if isinstance(module, nn.RNNBase):
        return _RECURRENT.get((name, dim), ()) if module.proj_size == 0 else _PROJECTED.get((name, dim), ())
    if name != "weight":
        return ()
    try:
        layout = require_layout(module, "outputs")
    except ArgumentError:
        return _by_channels(module, dim)
    if is_depthwise(module):
        return (layout.out_name, layout.in_name, "groups") if dim == 0 else ()
    if getattr(module, "groups", 1) != 1 and dim != layout.out_dim:
        return ()
    found = layout.out_name if dim == layout.out_dim else layout.in_name if dim == layout.in_dim else ""
    return (found,) if found in vars(module) else ()


def _by_channels(module: nn.Module, dim: int) -> tuple[str, ...]:
    """The linear layers of PyTorch Geometric record their channels."""
    weight = module._parameters.get("weight")
    names = ("out_channels", "in_channels")
    if (
        weight is None
        or weight.dim() != 2
        or dim > 1
        or any(vars(module).get(n) != s for n, s in zip(names, weight.shape, strict=True))
    ):
        return ()
    return (names[dim],)
