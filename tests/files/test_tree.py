"""Trees: what is packed comes back as it was, and what cannot be saved without pickle is refused."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import awn
from awn.files.tree import pack, unpack
from cases import assert_same


def through_json(value: Any) -> Any:
    """Packed, written as JSON, read and unpacked, as a file would have it."""
    tensors: dict[str, Tensor] = {}
    form = json.dumps(pack(value, "root", tensors))
    return unpack(json.loads(form), tensors)


VALUES: dict[str, Any] = {
    "none": None,
    "numbers": [0, -1, 2**70, 0.1, -0.0, 1e308, True, False],
    "infinities": [math.inf, -math.inf, math.nan],
    "text": ["", "ν ≥ 1", "~", 'quoted "text"', "line\nbreak", "\u0000"],
    "nested": {"a": [1, (2, [3, (4,)])], "b": {"c": {}}},
    "empty": [[], (), {}],
    "keys that are not text": {1: "a", 2.5: "b", None: "c", (1, "x"): "d"},
    "keys that look like marks": {"~": "tensor", "items": ["a"], "kind": {"~": {"~": 1}}},
    "a counter": Counter({3: 2, 5: 1}),
    "tensors": {"a": torch.arange(6.0).view(2, 3), "b": [torch.tensor(3), (torch.zeros(0, 4),)]},
    "kinds of tensors": [
        torch.zeros(2, dtype=dtype)
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
    ],
    "tensors under keys 1 and '1'": {1: torch.tensor(1.0), "1": torch.tensor(2.0)},
    "tensors under keys with dots": {"a.b": torch.tensor(1.0), "a": {"b": torch.tensor(2.0)}},
    "a tensor beside a list's": {"a.0": torch.tensor(1.0), "a": [torch.tensor(2.0)]},
    "the same tensor twice": [torch.ones(2)] * 2,
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_what_is_packed_comes_back_as_it_was(value: Any) -> None:
    assert_same(value, through_json(value))


# Some libraries, once loaded, have the processor take the numbers nearest to zero for zero.
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_subnormal=False) | st.text()
keys = st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers(), st.text())
tensors = st.integers(-5, 5).map(lambda number: torch.tensor([number]))
trees = st.recursive(
    plain | tensors,
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(value=trees)
def test_any_tree_comes_back_as_it_was(value: Any) -> None:
    assert_same(value, through_json(value))


def test_an_ordered_dict_comes_back_as_a_dict_in_its_order() -> None:
    assert list(through_json(OrderedDict(b=1, a=2)).items()) == [("b", 1), ("a", 2)]


def test_the_state_of_optimizers_and_schedulers_comes_back() -> None:
    weight = nn.Parameter(torch.randn(3))
    optimizer = torch.optim.Adam([{"params": [weight], "lr": torch.tensor(0.1)}], betas=(0.8, 0.9))
    schedulers: list[Any] = [
        torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2, 5]),
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
    ]
    weight.sum().backward()
    optimizer.step()
    for one in (optimizer, *schedulers):
        assert_same(one.state_dict(), through_json(one.state_dict()))


Point = namedtuple("Point", "x y")
REFUSED: dict[str, Any] = {
    "an object": object(),
    "a function": print,
    "a set": {1, 2},
    "bytes": b"12",
    "a complex number": 1j,
    "a class": Counter,
    "a named tuple": Point(1, 2),
    "a module": nn.Identity(),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_what_has_no_form_without_pickle_is_refused_by_its_path(value: Any) -> None:
    with pytest.raises(awn.AwnError, match=r"'root\.history\.1' is a .*cannot be saved without pickle\. Save numbers"):
        pack({"history": [0, value]}, "root", {})


def test_a_tensor_as_a_key_is_refused() -> None:
    with pytest.raises(awn.AwnError, match="root"):
        through_json({torch.tensor(1): "one"})
