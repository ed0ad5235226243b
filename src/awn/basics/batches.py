"""Batches of inputs to run a model on, without training: read and checked once, then kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as tree

from awn.basics.random_states import random_states, set_random_states
from awn.errors import ArgumentError

#: No more rows than these are read: statistics of layers need no more.
MOST_ROWS = 8192
# The rows of one tensor are run in batches of about this size.
_BATCH_ROWS = 1024
# Every fifth batch, or the last fifth of a single one, is held out.
_HELD_EVERY = 5


@dataclass(frozen=True)
class Batch:
    """The arguments of a call of the model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, batch: Any, argument: str) -> Batch:
        """A batch as loaders yield it: a tensor, a tuple or list that begins with the input, or named arguments."""
        first = batch[0] if isinstance(batch, list | tuple) and batch else batch
        if isinstance(first, Mapping):
            return cls((), dict(first))
        if isinstance(first, Tensor):
            return cls((first,), {})
        raise ArgumentError(
            f"{argument} must hold batches of inputs: tensors, tuples whose first element is the input, or dicts of "
            f"named arguments; got {type(first).__name__}.",
            argument=argument,
        )

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments."""
        return [leaf for leaf in tree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Tensor)]

    @property
    def rows(self) -> int:
        """The number of rows of the first tensor."""
        return next((len(tensor) for tensor in self.tensors if tensor.dim()), 0)

    def split(self, at: int) -> tuple[Batch, Batch]:
        """The rows before and from a place."""
        parts = ((lambda rows: rows[:at]), (lambda rows: rows[at:]))
        first, second = (Batch(*tree.tree_map_only(Tensor, part, (self.args, self.kwargs))) for part in parts)
        return first, second

    def run(self, model: nn.Module) -> Any:
        """The model's result."""
        return model(*self.args, **self.kwargs)

    @contextmanager
    def naming_errors(self, argument: str) -> Iterator[None]:
        """Name the argument and the shapes if the model cannot be run on this batch."""
        try:
            yield
        except Exception as error:
            raise ArgumentError(
                f"{argument} has a batch that the model cannot be run on, {self}: {error}", argument=argument
            ) from error

    def outputs(self, model: nn.Module) -> list[Tensor]:
        """The tensors of floating-point numbers that a model returns, without scalars such as a loss."""
        result = self.run(model)
        leaves = tree.tree_leaves(dict(result) if isinstance(result, Mapping) else result)
        return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() and leaf.is_floating_point()]

    def __str__(self) -> str:
        shapes = [f"{tuple(one.shape)} of {str(one.dtype).removeprefix('torch.')}" for one in self.tensors]
        return ", ".join(shapes) or "without tensors"


def read_batches(data: Any, argument: str) -> list[Batch]:
    """The batches of an iterable, of one dict of named arguments, or of one tensor, up to `MOST_ROWS` rows.

    The rows of a tensor are drawn at random, always the same ones, since a table may be sorted.

    >>> [batch.rows for batch in read_batches(torch.zeros(12, 3), "repair")]
    [3, 3, 2, 2, 2]
    """
    if isinstance(data, Tensor):
        batches = [Batch((rows,), {}) for rows in _in_batches(data, argument)]
    elif isinstance(data, Mapping):
        batches = [Batch.of(data, argument)]
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        batches = list(_up_to_the_most_rows(Batch.of(batch, argument) for batch in data))
    else:
        raise ArgumentError(
            f"{argument} must be a tensor of inputs or an iterable of batches, got {type(data).__name__}.",
            argument=argument,
        )
    if sum(batch.rows for batch in batches) < 2:
        raise ArgumentError(
            f"{argument} needs at least two rows of inputs. Without them, leave it out.", argument=argument
        )
    for tensor in itertools.chain.from_iterable(batch.tensors for batch in batches):
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ArgumentError(
                f"{argument} has inputs that are not finite. Remove or fill them in.", argument=argument
            )
    return batches


def hold_out(batches: Sequence[Batch], argument: str) -> tuple[list[Batch], list[Batch]]:
    """Split off every fifth batch: the last of fewer than five, and the last fifth of the rows of a single one.

    >>> fitted, held = hold_out(read_batches(torch.zeros(100, 3), "repair"), "repair")
    >>> sum(batch.rows for batch in fitted), sum(batch.rows for batch in held)
    (80, 20)
    """
    if len(batches) == 1:
        (batch,) = batches
        if any(not tensor.dim() or len(tensor) != batch.rows for tensor in batch.tensors):
            raise ArgumentError(
                f"{argument} has a single batch, whose tensors have different numbers of rows ({batch}), so none can "
                "be held out. Give at least two batches.",
                argument=argument,
            )
        first, second = batch.split(batch.rows - max(1, batch.rows // _HELD_EVERY))
        return [first], [second]
    if len(batches) < _HELD_EVERY:
        return list(batches[:-1]), [batches[-1]]
    is_held = [number % _HELD_EVERY == _HELD_EVERY - 1 for number in range(len(batches))]
    held = list(itertools.compress(batches, is_held))
    return list(itertools.compress(batches, [not one for one in is_held])), held


def _in_batches(rows: Tensor, argument: str) -> Sequence[Tensor]:
    if rows.dim() == 0:
        raise ArgumentError(f"{argument} must be a tensor of rows, got a single number.", argument=argument)
    drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:MOST_ROWS]
    pieces = max(min(len(drawn), _HELD_EVERY), -(-len(drawn) // _BATCH_ROWS))
    return rows[drawn.to(rows.device)].tensor_split(pieces) if pieces else ()


def _up_to_the_most_rows(batches: Iterable[Batch]) -> Iterator[Batch]:
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.rows
        if rows >= MOST_ROWS:
            return


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards, the modules' modes and all random states are as before.

    >>> layer = nn.Dropout()
    >>> with evaluating(layer):
    ...     print(layer.training, torch.is_grad_enabled())
    False False
    >>> layer.training, torch.is_grad_enabled()
    (True, True)
    """
    modes = [(module, module.training) for model in models for module in model.modules()]
    # To set the mode of many modules takes longer than the forward pass of a small model.
    trained = any(training for _, training in modes)
    states, fast = random_states(), torch.backends.mha.get_fastpath_enabled()
    # torch's fused transformer layer calls no linear layer, so that hooks on these would not run.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            for model in models if trained else ():
                model.eval()
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        set_random_states(states)
        for module, training in modes:
            if module.training != training:
                module.training = training
