"""The schema of a training's checkpoint: what `Run` and `Shrink` keep besides the model and its optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from awn.basics.schema import Schema, anything, entries, flag, items, maybe, one_of, record, row, text, whole
from awn.errors import CheckpointError
from awn.files.read import check_content

# A best score may still be minus infinity.
_NUMBER = Schema("a number", lambda value: type(value) in (int, float))
_TENSORS = entries(anything())
_EPOCH = record(
    {
        "epoch": whole(1),
        "score": maybe(_NUMBER),
        "total": _NUMBER,
        "widths": entries(whole(1)),
        "best": flag(),
    },
    {"validation_loss": _NUMBER, "path": one_of("by hand", "autograd")},
    others=anything(),
)
_BEST = record(
    {
        "merit": _NUMBER,
        "since": whole(0),
        "slack": _NUMBER,
        "kept": _NUMBER,
        "units": whole(0),
        "state": maybe(_TENSORS),
    }
)
_EXTRA = record(
    {
        "settings": entries(anything()),
        "epoch": whole(0),
        "step": whole(0),
        "stop": flag(),
        "rows": items(_EPOCH),
        "best": _BEST,
        "shuffling": Schema("the state of a random generator", lambda value: _is_generator_state(value)),
    },
    {"callbacks": items(row(text(), entries(anything())))},
)
_SHRINK = record(
    {
        "epoch": whole(0),
        "best": _NUMBER,
        "waited": whole(0),
        "cutting": flag(),
        "done": flag(),
        "fraction": _NUMBER,
        "removed": whole(0),
        "bounds": entries(maybe(whole(1))),
        "kept": maybe(record({"model": _TENSORS, "optimizers": items(entries(anything())), "score": _NUMBER})),
    }
)


def check_run_state(extra: Any, source: str) -> None:
    """Raise unless a checkpoint holds the state of a training."""
    check_content(extra, _EXTRA, source)
    rows = extra["rows"]
    if [one["epoch"] for one in rows] != list(range(1, extra["epoch"] + 1)):
        raise CheckpointError(f"{source} is damaged: it holds {len(rows)} rows of {extra['epoch']} epochs.")


def check_shrink_state(state: Any) -> None:
    """Raise unless a state is that of a `Shrink`."""
    check_content(state, _SHRINK, "the state of a Shrink callback")


def _is_generator_state(value: Any) -> bool:
    try:
        torch.Generator().set_state(value)
    except (RuntimeError, TypeError, ValueError):
        return False
    return isinstance(value, Tensor)
