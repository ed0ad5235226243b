"""Rest: what operations make of the zeros in the room for units that are not there yet.

A tensor has room for more units than are active, and what their layer gives there is 0. What follows must stay finite,
and so must its slope: nothing else undoes a NaN, not even a weight of 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, fx, nn

from awn.adapt.operations import CASTS, DIVISIONS, IN_PLACE, NOT_EVERYWHERE, PRODUCTS, torch_name


def at_rest(node: fx.Node, rests: Mapping[fx.Node, float | None], dtype: torch.dtype) -> float | None:
    """What an operation on each entry gives where units are at rest: NaN if that, or its slope, is not finite.

    `rests` has what its inputs are there, None where that is not known; other inputs are known nowhere. A number that
    is too small for the `dtype` is 0.

    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> root = graph.call_method("sqrt", (x,))
    >>> at_rest(root, {x: 0.0}, torch.float32), at_rest(root, {x: 4.0}, torch.float32)
    (nan, 2.0)
    """
    name = torch_name(node.target)
    if name in CASTS:
        return rests.get(node.all_input_nodes[0])
    if name in DIVISIONS:
        below = node.args[1] if len(node.args) > 1 else node.kwargs.get("other")
        if isinstance(below, fx.Node) and below in rests and not rests[below]:
            return math.nan
    if "dropout" in name or any(rests.get(each) is None for each in node.all_input_nodes):
        return _if_unknown(node, name, rests)
    leaves = {
        each: torch.tensor(rest, dtype=None if rest is True or rest is False else dtype) for each, rest in rests.items()
    }
    slanted = [leaf.requires_grad_() for leaf in leaves.values() if leaf.is_floating_point()]
    args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda each: leaves[each].clone())
    with torch.enable_grad():
        run = getattr(torch.Tensor, node.target) if isinstance(node.target, str) else node.target
        try:
            result = run(*args, **kwargs)
        except Exception:  # it does not take single numbers
            return math.nan if name in ("masked_fill", "where") else None
        if not isinstance(result, Tensor):
            return None
        slopes = torch.autograd.grad(result, slanted, allow_unused=True) if result.requires_grad else ()
    finite = all(bool(torch.isfinite(one)) for one in (result, *slopes) if one is not None)
    return result.item() if finite else math.nan


def _if_unknown(node: fx.Node, name: str, rests: Mapping[fx.Node, float | None]) -> float | None:
    zeros = [each for each in node.all_input_nodes if rests.get(each) == 0]
    if zeros and (name in PRODUCTS or (name in DIVISIONS and node.args[0] in zeros)):
        return 0.0
    if "dropout" in name:
        return 0.0 if zeros and "alpha" not in name else None
    exponent = node.args[1] if name == "pow" and len(node.args) > 1 else node.kwargs.get("exponent")
    whole = isinstance(exponent, int | float) and exponent >= 1
    return math.nan if name in NOT_EVERYWHERE or (name == "pow" and not whole) else None


def changes_its_input(node: fx.Node) -> bool:
    """Whether an operation works in place.

    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> changes_its_input(graph.call_method("add_", (x, 1))), changes_its_input(graph.call_method("add", (x, 1)))
    (True, False)
    """
    name = torch_name(node.target)
    in_place = (name.endswith("_") and not name.endswith("__")) or name in IN_PLACE
    return in_place and node.op in ("call_function", "call_method") and bool(node.args)


def module_at_rest(module: nn.Module, rest: float | None) -> float | None:
    """What an activation gives where units are at rest.

    >>> module_at_rest(nn.Sigmoid(), 0.0)
    0.5
    """
    if rest is None or isinstance(module, nn.Identity | nn.RReLU | nn.modules.dropout._DropoutNd):
        return rest if rest == 0 and not isinstance(module, nn.AlphaDropout | nn.FeatureAlphaDropout) else None
    return float(module(torch.tensor(rest)).item())
